#include "cli/line_editor.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/error.h"
#include "cli/cli.h"

namespace markbase::cli {
namespace {

bool is_editable_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && term != nullptr &&
         std::string_view(term) != "dumb";
}

int terminal_columns() {
  winsize size = {};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

// Keys come one by one and unseen; pastes come in brackets. Ctrl-C is a key here.
class RawMode {
 public:
  RawMode() {
    active_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (!active_) return;
    termios raw = before_;
    raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | IXON | INLCR | ISTRIP);
    raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON | ISIG | IEXTEN);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    active_ = ::tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
    (void)print("\x1b[?2004h");
  }
  ~RawMode() {
    if (!active_) return;
    (void)print("\x1b[?2004l");
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }
  RawMode(const RawMode&) = delete;
  RawMode& operator=(const RawMode&) = delete;

 private:
  termios before_ = {};
  bool active_ = false;
};

bool more_is_there() {
  int bytes = 0;
  return ::ioctl(STDIN_FILENO, FIONREAD, &bytes) == 0 && bytes > 0;
}

}  // namespace

LineEditor::LineEditor() : terminal_(is_editable_terminal()) {}

Result<LineEditor::Line> LineEditor::read(std::string_view prompt, std::string* text) {
  text->clear();
  if (terminal_) return edit(prompt, text);
  if (isatty(STDIN_FILENO) == 1) MB_TRY(print(prompt));
  return read_plain(text);
}

LineEditor::Line LineEditor::read_plain(std::string* line) {
  for (;;) {
    char c = 0;
    const ssize_t n = ::read(STDIN_FILENO, &c, 1);
    if (n < 0) return Line::kInterrupted;
    if (n == 0) return line->empty() ? Line::kEnd : Line::kText;
    if (c == '\n') return Line::kText;
    line->push_back(c);
  }
}

Result<LineEditor::Line> LineEditor::edit(std::string_view prompt, std::string* text) {
  const RawMode raw;
  buffer_.begin();
  cursor_row_ = 0;
  MB_TRY(draw(prompt));
  for (;;) {
    char byte = 0;
    const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
    if (n < 0 && errno == EINTR && !interrupted()) continue;
    EditBuffer::Event event = n > 0 ? buffer_.key(byte) : EditBuffer::Event::kEnd;
    if (n < 0 && interrupted()) event = EditBuffer::Event::kCancel;
    if (event == EditBuffer::Event::kClear) {
      MB_TRY(print("\x1b[H\x1b[2J"));
      cursor_row_ = 0;
    }
    // A paste is drawn once, at its end.
    const bool complete =
        event != EditBuffer::Event::kNone || (!buffer_.pending() && !more_is_there());
    if (complete) MB_TRY(draw(prompt));
    if (event == EditBuffer::Event::kNone || event == EditBuffer::Event::kClear) continue;
    const int rows =
        buffer_.place_of(buffer_.text().size(), terminal_columns(), static_cast<int>(prompt.size()))
            .row;
    std::string down(static_cast<size_t>(rows - cursor_row_) + 1, '\n');
    MB_TRY(print("\r" + down));
    if (event == EditBuffer::Event::kCancel) return Line::kInterrupted;
    if (event == EditBuffer::Event::kEnd) return Line::kEnd;
    *text = buffer_.text();
    buffer_.remember(*text);
    return Line::kText;
  }
}

// What a text looks like on the terminal.
std::string LineEditor::shown(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\r\n";
    } else {
      out += c == '\t' ? ' ' : c;
    }
  }
  return out;
}

// The prompt and the text from the first row on, and the cursor at its place: what stands before it
// is written a second time, since terminals differ in how wide they make an emoji.
Result<void> LineEditor::draw(std::string_view prompt) {
  const int columns = terminal_columns();
  const int prompt_columns = static_cast<int>(prompt.size());
  const std::string_view text = buffer_.text();
  // A terminal waits at the last column for the next character; the cursor shall not.
  const auto with_end = [&](std::string_view part, const EditBuffer::Place& end) {
    const bool waits = end.column == 0 && end.row > 0 && !part.ends_with('\n');
    return std::string(prompt) + shown(part) + (waits ? "\r\n" : "");
  };
  std::string out = "\r";
  if (cursor_row_ > 0) out += fmt::format("\x1b[{}A", cursor_row_);
  out += "\x1b[J";
  const EditBuffer::Place end = buffer_.place_of(text.size(), columns, prompt_columns);
  out += with_end(text, end);
  cursor_row_ = end.row;
  if (buffer_.cursor() < text.size()) {
    const EditBuffer::Place cursor = buffer_.place_of(buffer_.cursor(), columns, prompt_columns);
    out += '\r';
    if (end.row > 0) out += fmt::format("\x1b[{}A", end.row);
    out += with_end(text.substr(0, buffer_.cursor()), cursor);
    cursor_row_ = cursor.row;
  }
  return print(out);
}

}  // namespace markbase::cli
