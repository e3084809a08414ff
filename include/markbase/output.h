// The output of a model taken apart: thoughts, the answer, calls of tools.
#pragma once

#include <string>
#include <vector>

#include "markbase/options.h"

namespace markbase {

struct ParsedOutput {
  std::string reasoning;
  std::vector<std::string> labels;  // of channels of thought that are not called "thought"
  std::string content;              // broken calls included, where they stood
  std::vector<ToolCall> tool_calls;
  std::vector<BrokenCall> broken_calls;
  std::string after_end;      // what was written past the end of the answer
  std::string finish_reason;  // "stop", "length", "tool_calls", "cancelled"
};

}  // namespace markbase
