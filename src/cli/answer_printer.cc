#include "cli/answer_printer.h"

#include <unistd.h>

#include <string>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/parsed_json.h"

namespace markbase::cli {
namespace {

constexpr std::string_view kDim = "\x1b[2m";
constexpr std::string_view kPlain = "\x1b[22m";

}  // namespace

AnswerPrinter::AnswerPrinter() : terminal_(isatty(STDOUT_FILENO) == 1) {}

std::string AnswerPrinter::leave_other() {
  if (!dimmed_) return {};
  dimmed_ = false;
  return std::string(kPlain) + (mid_line_ ? "\n" : "");
}

std::string AnswerPrinter::shown(std::string_view text) {
  if (!terminal_) return std::string(text);
  std::string whole = (holds_return_ ? "\r" : "") + std::string(text);
  holds_return_ = whole.ends_with('\r');
  if (holds_return_) whole.pop_back();
  return without_controls(whole);
}

Result<void> AnswerPrinter::show(const TokenEvent& event) {
  switch (event.kind) {
    case OutputPiece::Kind::kReasoning:
      return terminal_ ? show_reasoning(shown(event.text)) : Result<void>();
    case OutputPiece::Kind::kToolCall: {
      if (hide_calls_) return {};
      std::string line = leave_other();
      if (line.empty() && mid_line_) line = "\n";
      mid_line_ = false;
      after_call_ = true;
      holds_return_ = false;
      return print(line + shown(call_json(*event.call) + "\n"));
    }
    case OutputPiece::Kind::kContent:
      break;
  }
  const std::string text = shown(event.text);
  if (text.empty()) return {};
  const std::string before = leave_other();
  after_call_ = false;
  mid_line_ = !text.ends_with('\n');
  return print(before + text);
}

Result<void> AnswerPrinter::show_reasoning(const std::string& text) {
  if (text.empty()) return {};
  const std::string before = dimmed_ ? "" : (mid_line_ ? "\n" : "") + std::string(kDim);
  dimmed_ = true;
  mid_line_ = !text.ends_with('\n');
  return print(before + text);
}

Result<void> AnswerPrinter::leave_line() {
  holds_return_ = false;
  std::string text = leave_other();
  if (text.empty() && mid_line_) text = "\n";
  mid_line_ = false;
  return text.empty() ? Result<void>() : print(text);
}

Result<void> AnswerPrinter::finish() {
  const bool open = mid_line_ || !(dimmed_ || after_call_);
  const std::string before = dimmed_ ? std::string(kPlain) : "";
  dimmed_ = false;
  after_call_ = false;
  mid_line_ = false;
  holds_return_ = false;
  return print(before + (open ? "\n" : ""));
}

}  // namespace markbase::cli
