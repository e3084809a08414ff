#include "cli/turn.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "cli/parsed_json.h"

namespace markbase::cli {
namespace {

// Each round fills the context further; a model that needs more is going in circles.
constexpr int kMaxRounds = 32;

// Results find their calls by id, so ids are unique in a conversation.
void number_calls(const std::vector<Message>& messages, std::vector<ToolCall>* calls) {
  size_t number = 0;
  for (const Message& message : messages) number += message.tool_calls.size();
  for (ToolCall& call : *calls) call.id = fmt::format("call_{}", ++number);
}

Message answer_message(const Completion& completion) {
  Message message{"assistant", completion.text};
  message.reasoning = completion.reasoning;
  message.tool_calls = completion.tool_calls;
  return message;
}

// False: Ctrl-C came; every call has a result all the same.
bool run_calls(const ToolRunner& tools, const std::vector<ToolCall>& calls, bool quiet, Turn* turn,
               std::vector<Message>* messages) {
  bool go_on = true;
  for (const ToolCall& call : calls) {
    ToolResult result{R"({"error":"interrupted by the user"})", true};
    if (go_on) {
      note(quiet, shown_on(STDERR_FILENO, fmt::format("tool {}", call_json(call))));
      Result<ToolResult> ran = tools.run(call);
      go_on = ran.ok();
      if (ran.ok()) {
        result = std::move(*ran);
      } else if (ran.error().code != ErrorCode::kCancelled) {
        result = {base::dump_json(base::Json{{"error", ran.error().message}}), true};
        go_on = true;
      }
    }
    if (result.failed) {
      note(false,
           shown_on(STDERR_FILENO, fmt::format("tool {} failed: {}", call.name, result.content)));
    }
    Message message{"tool", result.content};
    message.tool_call_id = call.id;
    messages->push_back(std::move(message));
    turn->steps.push_back({call, std::move(result)});
  }
  return go_on;
}

}  // namespace

std::string Turn::reasoning() const {
  std::string all;
  const auto add = [&all](const Completion& c) {
    if (!all.empty() && !c.reasoning.empty()) all += "\n\n";
    all += c.reasoning;
  };
  for (const Completion& c : before) add(c);
  add(completion);
  return all;
}

Result<Turn> run_turn(Engine& engine, Request& request, const ToolRunner& tools,
                      AnswerPrinter* printer, bool quiet) {
  Turn turn;
  for (int round = 0; round < kMaxRounds; ++round) {
    Result<void> printed;
    MB_ASSIGN(turn.completion, engine.generate(request, [&](const TokenEvent& event) {
      if (printer != nullptr) printed = printer->show(event);
      return printed.ok() && !interrupted();
    }));
    MB_TRY(std::move(printed));
    number_calls(request.messages, &turn.completion.tool_calls);
    const bool calls = turn.completion.finish_reason == "tool_calls" && tools.runs_calls();
    Message message = answer_message(turn.completion);
    // Calls that nobody answers are not for the history.
    if (!calls) message.tool_calls.clear();
    request.messages.push_back(std::move(message));
    if (!calls) return turn;
    if (printer != nullptr) MB_TRY(printer->leave_line());
    if (!run_calls(tools, turn.completion.tool_calls, quiet, &turn, &request.messages)) {
      turn.completion.finish_reason = "cancelled";
      return turn;
    }
    turn.before.push_back(std::move(turn.completion));
  }
  return base::failed("the model called tools {} times in a row without an answer", kMaxRounds);
}

Result<void> offer_tools(const ToolRunner& tools, const Engine& engine, Request& request) {
  if (tools.tools().empty()) return {};
  if (!engine.info().has_tools) {
    return base::usage_error("--tools: this model's chat format has none");
  }
  if (request.messages.empty()) {
    if (!request.ids.empty()) {
      return base::usage_error("--tools: ids are taken as they are, without a template");
    }
    return base::usage_error("--tools: {}", engine.info().has_chat_template
                                                ? "--raw offers no tools"
                                                : "this model has no chat template");
  }
  request.tools = tools.tools();
  return {};
}

void note_broken_calls(const Completion& completion, bool quiet) {
  for (const BrokenCall& call : completion.broken_calls) {
    note(quiet,
         shown_on(STDERR_FILENO,
                  fmt::format("a tool call that cannot be read is shown as text: {}", call.why)));
  }
}

}  // namespace markbase::cli
