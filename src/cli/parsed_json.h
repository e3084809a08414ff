// Outputs taken apart, as JSON. Arguments keep their numbers as the model spelled them.
#pragma once

#include <span>
#include <string>

#include "markbase/output.h"

namespace markbase::cli {

// {"name", "arguments": {...}}
std::string call_json(const ToolCall& call);
// [{"name", "arguments": {...}, "faults": [...]}]; faults only where `tools` is given.
std::string calls_json(std::span<const ToolCall> calls, const ToolDeclarations* tools);
// [{"text", "why", "truncated"}]
std::string broken_calls_json(std::span<const BrokenCall> calls);
// {"reasoning", "content", "tool_calls", "finish_reason"} on one line, and "labels", "broken_calls"
// and "after_end" where there are any. An absent reasoning is null, as is an empty content beside
// calls.
std::string parsed_json(const ParsedOutput& output, const ToolDeclarations* tools);

}  // namespace markbase::cli
