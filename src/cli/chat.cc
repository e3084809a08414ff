// chat: a conversation in a terminal.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <utility>

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
  PromptOptions of_run;  // refused by name
  std::string json_schema;
};

constexpr std::string_view kHelp =
    "/reset forgets the conversation, /save FILE writes it, /help says this, /exit or Ctrl-D ends. "
    "Ctrl-C stops an answer. Pasted text may have many lines; Alt-Enter begins a new one";

constexpr const char* kInput =
    R"(stdin: messages. On a terminal Enter sends one, and Alt-Enter begins a new line in it; elsewhere each
line is one. Lines that begin with / are commands:
  /reset        forgets the conversation
  /save FILE    writes it, as a JSON list of messages; /save! FILE writes over a file that is there
  /help         says this
  /exit         ends, as does Ctrl-D
  //TEXT        sends /TEXT as a message)";

// Without the spaces around it, or the quotes that a shell would take off.
std::string plain_argument(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  text = text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
  const char quote = text.front();
  const bool quoted = text.size() > 1 && (quote == '"' || quote == '\'') && text.back() == quote;
  return std::string(quoted ? text.substr(1, text.size() - 2) : text);
}

// What `run` takes and a conversation does not.
Result<void> refuse_options_of_run(const ChatOptions& options) {
  const PromptOptions& p = options.of_run;
  const std::pair<const char*, bool> no_prompt[] = {{"-p", p.text.has_value()},
                                                    {"-f", !p.file.empty()},
                                                    {"--ids", !p.ids.empty()},
                                                    {"--raw", p.raw},
                                                    {"--special", p.special}};
  for (const auto& [name, given] : no_prompt) {
    if (given) {
      return base::usage_error("{}: chat takes messages from the terminal or stdin; use `run {}`",
                               name, name);
    }
  }
  const std::pair<const char*, bool> not_yet[] = {{"--image", !p.image.empty()},
                                                  {"--audio", !p.audio.empty()},
                                                  {"--video", !p.video.empty()},
                                                  {"--json-schema", !options.json_schema.empty()}};
  for (const auto& [name, given] : not_yet) {
    if (given) return base::usage_error("{}: not in this build yet", name);
  }
  return {};
}

void add_options_of_run(CLI::App& app, ChatOptions& options) {
  PromptOptions& p = options.of_run;
  const char* hidden = "";
  app.add_option("-p,--prompt", p.text)->group(hidden);
  app.add_option("-f,--file", p.file)->group(hidden);
  app.add_option("--ids", p.ids)->group(hidden);
  app.add_flag("--raw", p.raw)->group(hidden);
  app.add_flag("--special", p.special)->group(hidden);
  app.add_option("--image", p.image)->group(hidden);
  app.add_option("--audio", p.audio)->group(hidden);
  app.add_option("--video", p.video)->group(hidden);
  app.add_option("--json-schema", options.json_schema)->group(hidden);
  app.get_option("--json")->group(hidden);
}

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
    while (!left_) {
      MB_ASSIGN(const LineEditor::Line kind, editor_.read("> ", &line));
      if (kind == LineEditor::Line::kEnd) break;
      if (kind == LineEditor::Line::kInterrupted) {
        // At the prompt Ctrl-C gives a fresh line; the program ends with Ctrl-D.
        clear_interrupt();
        if (!editor_.is_terminal()) MB_TRY(print("\n"));
        continue;
      }
      if (line.empty()) continue;
      const bool one_line = line.find('\n') == std::string::npos;
      if (one_line && line.starts_with("//")) {
        MB_TRY(answer(line.substr(1)));
      } else {
        MB_TRY(one_line && line.front() == '/' ? command(line) : answer(line));
      }
    }
    // A person has seen what was refused; a script sees the exit code.
    return refused_ && !editor_.is_terminal() ? static_cast<int>(ErrorCode::kFailed) : 0;
  }

 private:
  void refuse(const std::string& why) {
    refused_ = true;
    note(false, shown_on(STDERR_FILENO, why));
  }

  void reset() {
    messages_.clear();
    if (!options_.system.empty()) messages_.push_back({"system", options_.system});
  }

  Result<void> command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string argument =
        space == std::string::npos ? "" : plain_argument(line.substr(space + 1));
    const bool leaves = name == "/exit" || name == "/quit";
    if (!argument.empty() && (leaves || name == "/reset" || name == "/help")) {
      refuse(fmt::format("{}: expected nothing after it, got {}", name, argument));
    } else if (leaves) {
      left_ = true;
    } else if (name == "/reset") {
      reset();
      note(options_.shared.quiet, "the conversation is forgotten");
    } else if (name == "/save" || name == "/save!") {
      save(argument, name == "/save!");
    } else if (name == "/help") {
      note(false, kHelp);
    } else if (name == "/image" || name == "/audio") {
      refuse(fmt::format("{}: this build has no picture or sound input yet", name));
    } else {
      refuse(
          fmt::format("{}: not a command; there are /reset, /save FILE, /help and /exit. A "
                      "message that begins with / is sent as /{}",
                      name, name));
    }
    return {};
  }

  // Whether something would be lost that is not ours.
  bool holds_other_text(const std::string& path) const {
    std::error_code ignored;
    return path != saved_ && std::filesystem::is_regular_file(path, ignored) &&
           std::filesystem::file_size(path, ignored) > 0;
  }

  void save(const std::string& path, bool over) {
    if (path.empty()) return refuse("/save: which file?");
    if (path == "-") return refuse("/save: expected a file, got -");
    if (!over && holds_other_text(path)) {
      return refuse(fmt::format("{}: is there already; /save! FILE writes over it", path));
    }
    base::Json json = base::Json::array();
    for (const Message& message : messages_) json.push_back(message_json(message));
    std::ofstream file(path);
    file << base::dump_json(json, 2) << '\n';
    file.close();
    if (!file) return refuse(fmt::format("{}: cannot be written", path));
    saved_ = path;
    note(options_.shared.quiet, fmt::format("saved to {}", path));
  }

  Result<void> answer(const std::string& text) {
    Request request;
    request.messages = messages_;
    request.messages.push_back({"user", text});
    request.enable_thinking = options_.think;
    apply_sampling(options_.sampling, engine_.info().sampling_defaults, request);
    explain_sampling(request, options_.shared);
    MB_TRY(offer_tools(tools_, engine_, request));
    AnswerPrinter printer;
    if (tools_.runs_calls()) printer.hide_calls();
    const Result<Turn> turn = run_turn(engine_, request, tools_, &printer, options_.shared.quiet);
    if (!turn.ok() && turn.error().code == ErrorCode::kUsage) {
      refuse(fmt::format("{} (/reset starts anew)", turn.error().message));
      return {};
    }
    if (!turn.ok()) return turn.error();
    clear_interrupt();
    MB_TRY(printer.finish());
    note_broken_calls(turn->completion, options_.shared.quiet);
    const bool stopped = turn->completion.finish_reason == "cancelled";
    note(options_.shared.quiet,
         (stopped ? "stopped | " : "") + timing_line(turn->completion.timings));
    note_seed(options_.sampling, request, options_.shared.quiet);
    messages_ = std::move(request.messages);
    return {};
  }

  Engine& engine_;
  const ToolRunner& tools_;
  const ChatOptions& options_;
  LineEditor editor_;
  std::vector<Message> messages_;
  std::string saved_;  // the file that /save wrote last
  bool left_ = false;
  bool refused_ = false;  // a line that was given
};

Result<int> run(const ChatOptions& options) {
  if (options.shared.json)
    return base::usage_error("--json: chat talks to a person; use `run --json`");
  MB_TRY(refuse_options_of_run(options));
  MB_TRY(check_sampling(options.sampling));
  MB_ASSIGN(const ToolRunner tools, ToolRunner::create(options.tools));
  SharedOptions shared = options.shared;
  shared.prefix_cache = true;
  MB_ASSIGN(Engine engine, load_engine(shared));
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
  add_options_of_run(app, *options);
  app.footer(kInput);
  return [options] { return run(*options); };
}

}  // namespace markbase::cli
