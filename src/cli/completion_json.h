// A completion as the members of a JSON object. By hand, because arguments of calls keep the
// spelling of their numbers.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "markbase/options.h"
#include "markbase/output.h"

namespace markbase::cli {

struct JsonMember {
  std::string key;
  std::string value;  // JSON text
};
using JsonMembers = std::vector<JsonMember>;

base::Json timings_json(const Timings& timings);
// "text", "ids", "finish_reason", "reasoning", "tool_calls" (with "faults" where `tools` is given),
// and where there are any "labels", "broken_calls" and "logprobs".
JsonMembers completion_members(const Completion& completion, const ToolDeclarations* tools);
// {"a":1,"b":2} on one line.
std::string object_json(const JsonMembers& members);

}  // namespace markbase::cli
