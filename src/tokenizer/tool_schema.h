// Whether a call fits the tools that were declared.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "markbase/options.h"
#include "markbase/result.h"

namespace markbase::tokenizer {

// Declared tools: a list of {"type": "function", "function": {"name", "description",
// "parameters"}}, or of the inner objects. Of the parameters' JSON schema it looks at type (a name
// or a list of them, upper case too), nullable, enum, properties, required, items and
// additionalProperties; other keywords restrict nothing. A name that `properties` does not list is
// a fault unless additionalProperties allows it.
class ToolSet {
 public:
  // Errors (kUsage): not such a list, a function without a name, a name twice.
  static Result<ToolSet> from_json(const base::Json& tools);

  // What is wrong with the call, one line each with the place in the arguments; empty: nothing.
  // At most a hundred lines.
  std::vector<std::string> faults(const ToolCall& call) const;
  const base::Json& functions() const { return functions_; }

 private:
  base::Json functions_ = base::Json::array();
};

}  // namespace markbase::tokenizer
