// Tools that the user offers to the model, and the command that runs them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "markbase/output.h"

namespace markbase::cli {

struct ToolFlags {
  std::string file;  // --tools
  std::string exec;  // --tool-exec
};
void add_tool_options(CLI::App& app, ToolFlags& flags);

// What a call came to. Failures are results too: the model is told.
struct ToolResult {
  std::string content;
  bool failed = false;
};

class ToolRunner {
 public:
  // Without flags: no tools. Errors: kUsage (an empty command, --tool-exec alone), kBadInput (a
  // file that cannot be read, or holds no list of tools).
  static Result<ToolRunner> create(const ToolFlags& flags);

  // The JSON list for Request::tools; empty: none.
  const std::string& tools() const { return tools_; }
  bool runs_calls() const { return !command_.empty(); }
  const ToolDeclarations* declarations() const { return declarations_ ? &*declarations_ : nullptr; }

  // Runs the command for a call that fits the declared tools. It gets one line of JSON on stdin,
  // {"name", "arguments", "id"}, and what it writes to stdout is the result; its stderr is ours.
  // No shell sees any of it. Errors: kCancelled.
  Result<ToolResult> run(const ToolCall& call) const;

 private:
  std::string tools_;
  std::optional<ToolDeclarations> declarations_;
  std::vector<std::string> command_;
};

// A command line to its words: separated by white space; '...' takes all literally, "..." and a
// backslash keep spaces. No variables, no patterns. Errors (kUsage): a quote without its end.
Result<std::vector<std::string>> split_command(const std::string& text);

}  // namespace markbase::cli
