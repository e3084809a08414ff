// chat: a conversation in a terminal.
#include <cstdio>
#include <fstream>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/line_editor.h"
#include "cli/parsed_json.h"
#include "cli/sampling.h"
#include "cli/turn.h"

namespace markbase::cli {
namespace {

struct ChatOptions {
  SharedOptions shared;
  SamplingFlags sampling;
  ToolFlags tools;
  std::string system;
  bool think = false;
};

constexpr std::string_view kHelp =
    "/reset forgets the conversation, /save FILE writes it, /help says this. Ctrl-C stops an "
    "answer, Ctrl-D ends. Pasted text may have many lines; Alt-Enter begins a new one";

// In the form that servers take. Arguments are JSON text there.
base::Json message_json(const Message& message) {
  base::Json json = {{"role", message.role}, {"content", message.content}};
  if (!message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
  for (const ToolCall& call : message.tool_calls) {
    json["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
  return json;
}

class Chat {
 public:
  Chat(Engine& engine, const ToolRunner& tools, const ChatOptions& options)
      : engine_(engine), tools_(tools), options_(options) {
    reset();
  }

  Result<int> loop() {
    if (editor_.is_terminal()) note(options_.shared.quiet, kHelp);
    std::string line;
    for (;;) {
      MB_ASSIGN(const LineEditor::Line kind, editor_.read("> ", &line));
      if (kind == LineEditor::Line::kEnd) break;
      if (kind == LineEditor::Line::kInterrupted) {
        // At the prompt Ctrl-C gives a fresh line; the program ends with Ctrl-D.
        clear_interrupt();
        if (!editor_.is_terminal()) MB_TRY(print("\n"));
        continue;
      }
      if (line.empty()) continue;
      MB_TRY(line.front() == '/' && line.find('\n') == std::string::npos ? command(line)
                                                                         : answer(line));
    }
    return 0;
  }

 private:
  void reset() {
    messages_.clear();
    if (!options_.system.empty()) messages_.push_back({"system", options_.system});
  }

  Result<void> command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string argument = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/reset") {
      reset();
      note(false, "the conversation is forgotten");
    } else if (name == "/save") {
      save(argument);
    } else if (name == "/help") {
      note(false, kHelp);
    } else if (name == "/image" || name == "/audio") {
      note(false, fmt::format("{}: this build has no picture or sound input yet", name));
    } else {
      note(false, fmt::format("{}: not a command; there are /reset, /save FILE and /help", name));
    }
    return {};
  }

  void save(const std::string& path) const {
    if (path.empty()) return note(false, "/save: which file?");
    base::Json json = base::Json::array();
    for (const Message& message : messages_) json.push_back(message_json(message));
    std::ofstream file(path);
    file << base::dump_json(json, 2) << '\n';
    file.close();
    note(false,
         file ? fmt::format("saved to {}", path) : fmt::format("{}: cannot be written", path));
  }

  Result<void> answer(const std::string& text) {
    Request request;
    request.messages = messages_;
    request.messages.push_back({"user", text});
    request.enable_thinking = options_.think;
    MB_TRY(apply_sampling(options_.sampling, engine_.info().sampling_defaults, request));
    explain_sampling(request, options_.shared);
    MB_TRY(offer_tools(tools_, engine_, request));
    AnswerPrinter printer;
    if (tools_.runs_calls()) printer.hide_calls();
    const Result<Turn> turn = run_turn(engine_, request, tools_, &printer, options_.shared.quiet);
    if (!turn.ok() && turn.error().code == ErrorCode::kUsage) {
      note(false, fmt::format("{} (/reset starts anew)", turn.error().message));
      return {};
    }
    if (!turn.ok()) return turn.error();
    clear_interrupt();
    MB_TRY(printer.finish());
    note_broken_calls(turn->completion, options_.shared.quiet);
    const bool stopped = turn->completion.finish_reason == "cancelled";
    note(options_.shared.quiet,
         (stopped ? "stopped | " : "") + timing_line(turn->completion.timings));
    messages_ = std::move(request.messages);
    return {};
  }

  Engine& engine_;
  const ToolRunner& tools_;
  const ChatOptions& options_;
  LineEditor editor_;
  std::vector<Message> messages_;
};

Result<int> run(const ChatOptions& options) {
  if (options.shared.json)
    return base::usage_error("--json: chat talks to a person; use `run --json`");
  MB_ASSIGN(const ToolRunner tools, ToolRunner::create(options.tools));
  MB_ASSIGN(Engine engine, load_engine(options.shared));
  if (!engine.info().has_chat_format) {
    return base::usage_error("{}: this model has no chat format; use `run`", options.shared.model);
  }
  if (options.think && !engine.info().has_thinking) {
    return base::usage_error("--think: this model has no thinking mode");
  }
  Request probe;
  probe.messages.push_back({"user", {}});
  MB_TRY(offer_tools(tools, engine, probe));
  if (!engine.info().has_chat_template) {
    note(options.shared.quiet,
         "this model carries no chat template: the format of its family is used. A base model goes "
         "on with the text and does not answer; take an instruction-tuned one (\"it\") to chat");
  }
  note_overrides(options.sampling, engine.info().sampling_defaults, options.shared.quiet);
  const GracefulInterrupt graceful;
  return Chat(engine, tools, options).loop();
}

}  // namespace

Action make_chat(CLI::App& app) {
  auto options = std::make_shared<ChatOptions>();
  add_shared_options(app, options->shared, ModelArgument::kRequired);
  add_sampling_options(app, options->sampling);
  add_tool_options(app, options->tools);
  app.add_option("--system", options->system, "a system message");
  app.add_flag("--think", options->think, "let the model think first");
  return [options] { return run(*options); };
}

}  // namespace markbase::cli
