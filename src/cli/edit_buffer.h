// A text under a cursor: what the keys of a line editor do, without a terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace markbase::cli {

// Columns that a terminal gives a character: 0 for combining marks, 2 for wide ones.
int column_width(char32_t character);

class EditBuffer {
 public:
  enum class Event { kNone, kSubmit, kCancel, kEnd, kClear };

  // Takes the next byte of what the terminal sends: text, control keys and escape sequences.
  // Between the brackets of a paste all bytes are text.
  Event key(char byte);
  // True while bytes of a character, an escape sequence or a paste are outstanding.
  bool pending() const { return paste_ || !escape_.empty() || !character_.empty(); }

  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }
  // A fresh line. What was submitted is kept for the up key unless it is empty or the same again.
  void begin();
  void remember(const std::string& text);

  // Where the cursor stands and how many rows there are when `columns` wide, after a prompt of
  // `prompt_columns`; rows after a newline begin at column 0.
  struct Place {
    int row = 0;
    int column = 0;
  };
  Place place_of(size_t byte, int columns, int prompt_columns) const;

 private:
  Event control(char byte);
  void escape_sequence();
  void insert(std::string_view text);
  void erase(size_t begin, size_t end);
  size_t before(size_t byte) const;
  size_t after(size_t byte) const;
  size_t line_begin() const;
  size_t line_end() const;
  size_t word_begin() const;
  void show_history(size_t entry);
  void up();
  void down();

  std::string text_;
  size_t cursor_ = 0;
  std::string character_;  // bytes of a character that is not complete
  std::string escape_;     // an escape sequence that is not complete
  bool paste_ = false;
  std::vector<std::string> history_;
  size_t shown_entry_ = 0;  // history_.size(): the text that is being written
  std::string draft_;       // that text, while history is shown
};

}  // namespace markbase::cli
