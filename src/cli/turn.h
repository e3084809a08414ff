// One turn of the model: its answer, and where it calls tools that we run, their results and what
// it makes of them.
#pragma once

#include <vector>

#include "cli/answer_printer.h"
#include "cli/tool_runner.h"
#include "markbase/engine.h"

namespace markbase::cli {

struct ToolStep {
  ToolCall call;
  ToolResult result;
};

struct Turn {
  Completion completion;  // the last one
  std::vector<ToolStep> steps;
  std::vector<Completion> before;  // those whose calls were run, in order
  // The thoughts of all completions, with an empty line between those of two.
  std::string reasoning() const;
};

// Runs `request` and appends to its messages what was said: answers with their calls, results of
// tools, and the last answer. `printer` may be null.
// Ctrl-C ends the answer, or the command of a tool; then the turn ends with the finish reason
// "cancelled". Errors: those of the engine; kFailed where stdout is closed or the model goes on
// calling tools without an end.
Result<Turn> run_turn(Engine& engine, Request& request, const ToolRunner& tools,
                      AnswerPrinter* printer, bool quiet);

// Puts the tools into a request. Errors (kUsage): the model's chat format has none, or the request
// is no conversation.
Result<void> offer_tools(const ToolRunner& tools, const Engine& engine, Request& request);
// Says on stderr why calls in the answer are text.
void note_broken_calls(const Completion& completion, bool quiet);

}  // namespace markbase::cli
