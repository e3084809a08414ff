// The lines of a file or of stdin as they come, one held at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "markbase/result.h"

namespace markbase::cli {

class LineReader {
 public:
  struct Line {
    std::string_view text;        // without its newline; valid until the next call
    size_t number = 0;            // the first is 1
    uint64_t left_out_bytes = 0;  // of one longer than kMostInputBytes: `text` is its begin
  };
  enum class LongLines { kAreErrors, kAreCut };
  // Called about ten times a second while nothing comes; false ends the waiting.
  using OnIdle = std::function<bool()>;

  // file: empty or "-" for stdin. What a file has now is read, not what is appended meanwhile: that
  // could be what is said about its lines. Errors: kBadInput.
  static Result<LineReader> open(const std::string& file,
                                 LongLines long_lines = LongLines::kAreErrors);
  LineReader(LineReader&& other) noexcept;
  LineReader& operator=(LineReader&&) = delete;
  ~LineReader();

  // Nothing at the end; a last line needs no newline. Errors: kBadInput (cannot be read, or a line
  // longer than kMostInputBytes where that is an error), kCancelled (interrupted, or `on_idle` said
  // so).
  Result<std::optional<Line>> next(const OnIdle& on_idle = {});

  // Whether `fd` is the file that is read, and not only the same terminal or the like.
  bool reads(int fd) const;

 private:
  LineReader(int fd, std::string name, LongLines long_lines);
  // False: there is no more.
  Result<bool> read_more(const OnIdle& on_idle);
  Result<void> take(std::string_view chunk);
  Result<void> wait_for_input(const OnIdle& on_idle) const;
  Line line_until(size_t end);

  int fd_;
  std::string name_;
  LongLines long_lines_;
  std::optional<uint64_t> left_;  // bytes of a file, where it can be known
  std::string buffer_;
  size_t begin_ = 0;     // of what has not been given out
  size_t searched_ = 0;  // up to here there is no newline
  size_t number_ = 0;
  uint64_t left_out_bytes_ = 0;  // of the line that is being read
  bool at_end_ = false;
};

}  // namespace markbase::cli
