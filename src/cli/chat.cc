// chat: a conversation in a terminal.
#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/sampling.h"

namespace markbase::cli {
namespace {

struct ChatOptions {
  SharedOptions shared;
  SamplingFlags sampling;
  std::string system;
  bool think = false;
};

enum class Line { kText, kEnd, kInterrupted };

// One line from stdin, without its newline.
Line read_line(std::string* line) {
  line->clear();
  for (;;) {
    char c = 0;
    const ssize_t n = ::read(STDIN_FILENO, &c, 1);
    if (n < 0) return Line::kInterrupted;
    if (n == 0) return line->empty() ? Line::kEnd : Line::kText;
    if (c == '\n') return Line::kText;
    line->push_back(c);
  }
}

class Chat {
 public:
  Chat(Engine& engine, const ChatOptions& options) : engine_(engine), options_(options) { reset(); }

  Result<int> loop() {
    const bool terminal = isatty(STDIN_FILENO) == 1;
    if (terminal)
      note(options_.shared.quiet,
           "/reset forgets, /save FILE writes the conversation, Ctrl-D ends");
    std::string line;
    for (;;) {
      if (terminal) MB_TRY(print("> "));
      const Line kind = read_line(&line);
      if (kind == Line::kEnd) break;
      if (kind == Line::kInterrupted) {
        // At the prompt Ctrl-C gives a fresh line; the program ends with Ctrl-D.
        clear_interrupt();
        MB_TRY(print("\n"));
        continue;
      }
      if (line.empty()) continue;
      MB_TRY(line.front() == '/' ? command(line) : answer(line));
    }
    if (terminal) MB_TRY(print("\n"));
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
    } else if (name == "/image" || name == "/audio") {
      note(false, fmt::format("{}: this build has no picture or sound input yet", name));
    } else {
      note(false, fmt::format("{}: not a command; there are /reset and /save FILE", name));
    }
    return {};
  }

  void save(const std::string& path) const {
    if (path.empty()) return note(false, "/save: which file?");
    base::Json json = base::Json::array();
    for (const Message& message : messages_)
      json.push_back({{"role", message.role}, {"content", message.content}});
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
    MB_TRY(apply_sampling(options_.sampling, engine_.info().sampling_defaults, request));
    Result<void> printed;
    Result<Completion> completion = engine_.generate(request, [&](const TokenEvent& event) {
      if (!event.text.empty()) printed = print(event.text);
      return printed.ok() && !interrupted();
    });
    MB_TRY(std::move(printed));
    if (!completion.ok() && completion.error().code == ErrorCode::kUsage) {
      note(false, fmt::format("{} (/reset starts anew)", completion.error().message));
      return {};
    }
    if (!completion.ok()) return std::move(completion).error();
    clear_interrupt();
    MB_TRY(print("\n"));
    note(options_.shared.quiet, timing_line(completion->timings));
    messages_ = request.messages;
    messages_.push_back({"assistant", completion->text});
    return {};
  }

  Engine& engine_;
  const ChatOptions& options_;
  std::vector<Message> messages_;
};

Result<int> run(const ChatOptions& options) {
  if (options.think) return base::usage_error("--think: this model has no thinking mode");
  if (options.shared.json)
    return base::usage_error("--json: chat talks to a person; use `run --json`");
  MB_ASSIGN(Engine engine, load_engine(options.shared));
  if (!engine.info().has_chat_format) {
    return base::usage_error("{}: this model has no chat format; use `run`", options.shared.model);
  }
  if (!engine.info().has_chat_template) {
    note(options.shared.quiet,
         "this model carries no chat template: the format of its family is used. A base model goes "
         "on with the text and does not answer; take an instruction-tuned one (\"it\") to chat");
  }
  const GracefulInterrupt graceful;
  return Chat(engine, options).loop();
}

}  // namespace

Action make_chat(CLI::App& app) {
  auto options = std::make_shared<ChatOptions>();
  add_shared_options(app, options->shared, ModelArgument::kRequired);
  add_sampling_options(app, options->sampling);
  app.add_option("--system", options->system, "a system message");
  app.add_flag("--think", options->think, "let the model think first");
  return [options] { return run(*options); };
}

}  // namespace markbase::cli
