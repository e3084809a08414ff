// A line of a batch: what it asks for, and what tells it from other requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "cli/sampling.h"
#include "markbase/engine.h"
#include "markbase/output.h"

namespace markbase::cli {

// What counts for a line that does not say. --system, --think and --tools go to lines that can have
// them: a prompt or messages, through the chat template.
struct BatchDefaults {
  SamplingFlags sampling;
  std::string system;
  std::string tools;  // a JSON list
  bool raw = false;
  bool special = false;
  bool think = false;
};
// Errors (kUsage): values out of range, or what the model cannot honour.
Result<void> check_defaults(const BatchDefaults& defaults, const ModelInfo& model);

struct BatchRequest {
  Request request;
  std::optional<ToolDeclarations> tools;  // that `request` offers
  // Of all that the answer depends on: the request with its defaults, the model and what it
  // computes with. A seed that was drawn is no part of it.
  uint64_t hash = 0;
};

// The "id" of a line, a text or an integer; its number where it has none. Errors: kUsage.
Result<base::Json> batch_id(const base::Json& line, size_t number);
// `text` is the line as it was given, `line` the object in it; `setup` goes into the hash. Errors
// (kUsage): an unknown key with the nearest known one, a value of the wrong type or out of range,
// keys that do not go together, or what the model cannot honour.
Result<BatchRequest> batch_request(std::string_view text, const base::Json& line,
                                   const BatchDefaults& defaults, const ModelInfo& model,
                                   std::string_view setup);

}  // namespace markbase::cli
