// Reads what a person types: with editing, history and whole pastes on a terminal, else line by
// line.
#pragma once

#include <string>
#include <string_view>

#include "cli/edit_buffer.h"
#include "markbase/result.h"

namespace markbase::cli {

class LineEditor {
 public:
  enum class Line { kText, kEnd, kInterrupted };

  LineEditor();
  bool is_terminal() const { return terminal_; }
  // A text without its last newline; only a paste or Alt-Enter puts newlines into it. Errors
  // (kFailed): stdout is closed.
  Result<Line> read(std::string_view prompt, std::string* text);

 private:
  Result<Line> edit(std::string_view prompt, std::string* text);
  Line read_plain(std::string* line);
  static std::string shown(std::string_view text);
  Result<void> draw(std::string_view prompt);

  bool terminal_;
  EditBuffer buffer_;
  int cursor_row_ = 0;  // of the drawn text
};

}  // namespace markbase::cli
