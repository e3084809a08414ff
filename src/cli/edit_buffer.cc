#include "cli/edit_buffer.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace markbase::cli {
namespace {

constexpr size_t kMaxHistory = 1000;
constexpr size_t kMaxEscape = 16;  // longer sequences are no keys
constexpr char kEscape = '\x1b';

bool is_continuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

size_t character_length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

char32_t decode(std::string_view bytes) {
  if (bytes.size() == 1) return static_cast<uint8_t>(bytes[0]);
  char32_t value = static_cast<uint8_t>(bytes[0]) & (0x7Fu >> bytes.size());
  for (const char c : bytes.substr(1)) value = (value << 6) | (static_cast<uint8_t>(c) & 0x3Fu);
  return value;
}

struct Range {
  char32_t first;
  char32_t last;
};

}  // namespace

int column_width(char32_t c) {
  constexpr Range kZero[] = {{0x300, 0x36F},   {0x483, 0x489},    {0x591, 0x5BD},
                             {0x610, 0x61A},   {0x64B, 0x65F},    {0x200B, 0x200F},
                             {0x20D0, 0x20FF}, {0xFE00, 0xFE0F},  {0xFE20, 0xFE2F},
                             {0xFEFF, 0xFEFF}, {0x1F3FB, 0x1F3FF}};
  constexpr Range kWide[] = {{0x1100, 0x115F},   {0x2E80, 0x303E},   {0x3041, 0xA4CF},
                             {0xAC00, 0xD7A3},   {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},
                             {0xFF00, 0xFF60},   {0xFFE0, 0xFFE6},   {0x1F300, 0x1F64F},
                             {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF}, {0x20000, 0x3FFFD}};
  const auto in = [c](const Range& range) { return c >= range.first && c <= range.last; };
  if (std::any_of(std::begin(kZero), std::end(kZero), in)) return 0;
  return std::any_of(std::begin(kWide), std::end(kWide), in) ? 2 : 1;
}

EditBuffer::Event EditBuffer::key(char byte) {
  if (!escape_.empty()) {
    escape_.push_back(byte);
    escape_sequence();
    return Event::kNone;
  }
  if (byte == kEscape) {
    character_.clear();
    escape_.push_back(byte);
    return Event::kNone;
  }
  if (static_cast<uint8_t>(byte) < 0x20 || byte == 0x7F) {
    character_.clear();
    // A paste brings its newlines as Enter sends them.
    if (paste_ && (byte == '\r' || byte == '\n' || byte == '\t')) {
      insert(byte == '\t' ? "\t" : "\n");
      return Event::kNone;
    }
    return paste_ ? Event::kNone : control(byte);
  }
  if (!is_continuation(byte)) character_.clear();
  character_.push_back(byte);
  if (character_.size() >= character_length(character_[0])) {
    // A continuation without a lead is no character.
    if (!is_continuation(character_[0])) insert(character_);
    character_.clear();
  }
  return Event::kNone;
}

EditBuffer::Event EditBuffer::control(char byte) {
  constexpr char kCtrl = 0x40;  // Ctrl-A is 'A' - kCtrl
  switch (byte) {
    case '\r':
    case '\n':
      return Event::kSubmit;
    case 'C' - kCtrl:
      return Event::kCancel;
    case 'D' - kCtrl:
      if (text_.empty()) return Event::kEnd;
      erase(cursor_, after(cursor_));
      break;
    case 'L' - kCtrl:
      return Event::kClear;
    case 0x7F:
    case 'H' - kCtrl:
      erase(before(cursor_), cursor_);
      break;
    case 'A' - kCtrl:
      cursor_ = line_begin();
      break;
    case 'E' - kCtrl:
      cursor_ = line_end();
      break;
    case 'B' - kCtrl:
      cursor_ = before(cursor_);
      break;
    case 'F' - kCtrl:
      cursor_ = after(cursor_);
      break;
    case 'K' - kCtrl:
      erase(cursor_, line_end());
      break;
    case 'U' - kCtrl:
      erase(line_begin(), cursor_);
      break;
    case 'W' - kCtrl:
      erase(word_begin(), cursor_);
      break;
    case 'P' - kCtrl:
      up();
      break;
    case 'N' - kCtrl:
      down();
      break;
    case '\t':
      insert("\t");
      break;
    default:
      break;
  }
  return Event::kNone;
}

// Acts once the sequence is complete: ESC [ parameters letter, ESC O letter, or ESC and one key.
void EditBuffer::escape_sequence() {
  const char last = escape_.back();
  const bool begun = escape_.size() == 2 && (last == '[' || last == 'O');
  const bool parameter = escape_.size() > 2 && (last < 0x40 || last > 0x7E);
  if ((begun || parameter) && escape_.size() < kMaxEscape) return;
  const std::string sequence = std::exchange(escape_, {}).substr(1);
  if (sequence == "[200~") {
    paste_ = true;
  } else if (sequence == "[201~") {
    paste_ = false;
  } else if (paste_) {
    return;
  } else if (sequence == "\r" || sequence == "\n") {
    insert("\n");
  } else if (sequence == "[A" || sequence == "OA") {
    up();
  } else if (sequence == "[B" || sequence == "OB") {
    down();
  } else if (sequence == "[C" || sequence == "OC") {
    cursor_ = after(cursor_);
  } else if (sequence == "[D" || sequence == "OD") {
    cursor_ = before(cursor_);
  } else if (sequence == "[H" || sequence == "OH" || sequence == "[1~") {
    cursor_ = line_begin();
  } else if (sequence == "[F" || sequence == "OF" || sequence == "[4~") {
    cursor_ = line_end();
  } else if (sequence == "[3~") {
    erase(cursor_, after(cursor_));
  }
}

void EditBuffer::begin() {
  text_.clear();
  cursor_ = 0;
  character_.clear();
  escape_.clear();
  paste_ = false;
  draft_.clear();
  shown_entry_ = history_.size();
}

void EditBuffer::remember(const std::string& text) {
  if (text.empty() || (!history_.empty() && history_.back() == text)) return;
  if (history_.size() == kMaxHistory) history_.erase(history_.begin());
  history_.push_back(text);
}

void EditBuffer::insert(std::string_view text) {
  text_.insert(cursor_, text);
  cursor_ += text.size();
}

void EditBuffer::erase(size_t begin, size_t end) {
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

size_t EditBuffer::before(size_t byte) const {
  if (byte > 0) --byte;
  while (byte > 0 && is_continuation(text_[byte])) --byte;
  return byte;
}

size_t EditBuffer::after(size_t byte) const {
  if (byte < text_.size()) ++byte;
  while (byte < text_.size() && is_continuation(text_[byte])) ++byte;
  return byte;
}

size_t EditBuffer::line_begin() const {
  const size_t newline = cursor_ == 0 ? text_.npos : text_.rfind('\n', cursor_ - 1);
  return newline == text_.npos ? 0 : newline + 1;
}

size_t EditBuffer::line_end() const { return std::min(text_.find('\n', cursor_), text_.size()); }

size_t EditBuffer::word_begin() const {
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\t'; };
  size_t begin = cursor_;
  while (begin > 0 && is_space(text_[begin - 1])) --begin;
  while (begin > 0 && !is_space(text_[begin - 1])) --begin;
  return begin;
}

void EditBuffer::show_history(size_t entry) {
  if (shown_entry_ == history_.size()) draft_ = text_;
  shown_entry_ = entry;
  text_ = entry == history_.size() ? draft_ : history_[entry];
  cursor_ = text_.size();
}

void EditBuffer::up() {
  if (shown_entry_ > 0) show_history(shown_entry_ - 1);
}

void EditBuffer::down() {
  if (shown_entry_ < history_.size()) show_history(shown_entry_ + 1);
}

EditBuffer::Place EditBuffer::place_of(size_t byte, int columns, int prompt_columns) const {
  Place place{0, prompt_columns};
  for (size_t i = 0; i < byte;) {
    const size_t next = after(i);
    if (text_[i] == '\n') {
      place = {place.row + 1, 0};
    } else {
      const int width =
          text_[i] == '\t' ? 1 : column_width(decode(std::string_view(text_).substr(i, next - i)));
      // A wide character that does not fit goes to the next row as a whole.
      if (place.column + width > columns) place = {place.row + 1, 0};
      place.column += width;
    }
    i = next;
  }
  if (place.column >= columns) place = {place.row + 1, 0};
  return place;
}

}  // namespace markbase::cli
