// An answer on stdout as it comes. On a terminal thoughts are shown too, dimmed, and control
// characters as U+FFFD; elsewhere text goes out as it is.
#pragma once

#include <string>
#include <string_view>

#include "markbase/options.h"
#include "markbase/result.h"

namespace markbase::cli {

class AnswerPrinter {
 public:
  AnswerPrinter();
  // A call becomes a line of JSON, unless `hide_calls`.
  void hide_calls() { hide_calls_ = true; }
  Result<void> show(const TokenEvent& event);
  // Ends a line that has begun, and whatever is dimmed, before something else is written.
  Result<void> leave_line();
  // The same at the end of the answer, which ends with a newline of ours in any case.
  Result<void> finish();

 private:
  Result<void> show_reasoning(const std::string& text);
  // What is shown of a text. A \r at its end is held back: a \n may follow, if only ours.
  std::string shown(std::string_view text);
  // Before the answer goes on after a thought or a call.
  std::string leave_other();

  bool terminal_;
  bool hide_calls_ = false;
  bool holds_return_ = false;
  bool dimmed_ = false;
  bool mid_line_ = false;
  bool after_call_ = false;
};

}  // namespace markbase::cli
