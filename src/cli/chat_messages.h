// Messages of a conversation as JSON, in the form that servers take.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "markbase/options.h"
#include "markbase/result.h"

namespace markbase::cli {

// A list of {"role", "content", "reasoning_content", "tool_calls", "tool_call_id"}. content: a
// text, or a list of one {"type": "text", "text"}; it may be left out beside tool_calls.
// tool_calls:
// {"id", "type", "function": {"name", "arguments"}}, arguments as JSON text or as an object.
// `written`: the list as it was written, for numbers that lose digits otherwise. Errors: kUsage
// naming message and key.
Result<std::vector<Message>> parse_messages(const base::Json& list, std::string_view written);

}  // namespace markbase::cli
