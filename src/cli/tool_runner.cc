#include "cli/tool_runner.h"

#include "base/error.h"
#include "cli/parsed_json.h"
#include "cli/subprocess.h"

namespace markbase::cli {
namespace {

// A result longer than this would fill any context.
constexpr size_t kMaxResultBytes = size_t{1} << 20;

ToolResult failure(std::string_view why, const std::string& output = {}) {
  base::Json json = {{"error", why}};
  if (!output.empty()) json["output"] = output;
  return {base::dump_json(json), true};
}

std::string call_line(const ToolCall& call) {
  return fmt::format("{{\"name\":{},\"arguments\":{},\"id\":{}}}\n",
                     base::dump_json(base::Json(call.name)), call.arguments,
                     base::dump_json(base::Json(call.id)));
}

}  // namespace

void add_tool_options(CLI::App& app, ToolFlags& flags) {
  app.add_option("--tools", flags.file,
                 "a JSON file with the tools that the model may call (OpenAI form)");
  app.add_option("--tool-exec", flags.exec,
                 "run this command for each call: JSON on its stdin, the result on its stdout");
}

Result<std::vector<std::string>> split_command(const std::string& text) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool white = c == ' ' || c == '\t' || c == '\n';
    if (quote == 0 && white) {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      words.back().push_back(text[++i]);
    } else {
      words.back().push_back(c);
    }
  }
  if (quote != 0)
    return base::usage_error("--tool-exec: a {} without its end in '{}'", quote, text);
  return words;
}

Result<ToolRunner> ToolRunner::create(const ToolFlags& flags) {
  ToolRunner runner;
  if (flags.file.empty()) {
    if (!flags.exec.empty()) return base::usage_error("--tool-exec: goes with --tools FILE");
    return runner;
  }
  MB_ASSIGN(runner.tools_, read_file(flags.file));
  Result<ToolDeclarations> declarations = ToolDeclarations::from_json(runner.tools_);
  if (!declarations.ok()) {
    return base::bad_input("--tools {}: {}", flags.file, declarations.error().message);
  }
  runner.declarations_.emplace(std::move(*declarations));
  if (flags.exec.empty()) return runner;
  MB_ASSIGN(runner.command_, split_command(flags.exec));
  if (runner.command_.empty()) return base::usage_error("--tool-exec: expected a command");
  return runner;
}

Result<ToolResult> ToolRunner::run(const ToolCall& call) const {
  const std::vector<std::string> faults = declarations_->faults(call);
  if (!faults.empty()) return failure(fmt::format("{}", fmt::join(faults, "; ")));
  MB_ASSIGN(const ProcessResult done, run_process(command_, call_line(call), kMaxResultBytes));
  if (!done.error.empty()) return failure(done.error, done.output);
  return ToolResult{done.output, false};
}

}  // namespace markbase::cli
