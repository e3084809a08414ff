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

Result<void> AnswerPrinter::show(const TokenEvent& event) {
  switch (event.kind) {
    case OutputPiece::Kind::kReasoning:
      return show_reasoning(event.text);
    case OutputPiece::Kind::kToolCall: {
      if (hide_calls_) return {};
      std::string line = leave_other();
      if (line.empty() && mid_line_) line = "\n";
      mid_line_ = false;
      after_call_ = true;
      return print(line + call_json(*event.call) + "\n");
    }
    case OutputPiece::Kind::kContent:
      break;
  }
  if (event.text.empty()) return {};
  const std::string before = leave_other();
  after_call_ = false;
  mid_line_ = !event.text.ends_with('\n');
  return print(before + std::string(event.text));
}

Result<void> AnswerPrinter::show_reasoning(std::string_view text) {
  if (!terminal_ || text.empty()) return {};
  const std::string before = dimmed_ ? "" : (mid_line_ ? "\n" : "") + std::string(kDim);
  dimmed_ = true;
  mid_line_ = !text.ends_with('\n');
  return print(before + std::string(text));
}

Result<void> AnswerPrinter::leave_line() {
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
  return print(before + (open ? "\n" : ""));
}

}  // namespace markbase::cli
