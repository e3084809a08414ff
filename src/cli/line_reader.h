// The lines of a file or of stdin as they come, one held at a time.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "markbase/result.h"

namespace markbase::cli {

class LineReader {
 public:
  struct Line {
    std::string_view text;  // without its newline; valid until the next call
    size_t number = 0;      // the first is 1
  };
  // Called about ten times a second while nothing comes; false ends the waiting.
  using OnIdle = std::function<bool()>;

  // file: empty or "-" for stdin. Errors: kBadInput.
  static Result<LineReader> open(const std::string& file);
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;
  ~LineReader();

  // Nothing at the end; a last line needs no newline. Errors: kBadInput (cannot be read, or a line
  // longer than kMostInputBytes), kCancelled (interrupted, or `on_idle` said so).
  Result<std::optional<Line>> next(const OnIdle& on_idle = {});

 private:
  LineReader(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  // False: there is no more.
  Result<bool> read_more(const OnIdle& on_idle);
  Result<void> wait_for_input(const OnIdle& on_idle) const;

  int fd_;
  std::string name_;
  std::string buffer_;
  size_t begin_ = 0;     // of what has not been given out
  size_t searched_ = 0;  // up to here there is no newline
  size_t number_ = 0;
  bool at_end_ = false;
};

}  // namespace markbase::cli
