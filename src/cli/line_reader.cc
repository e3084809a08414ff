#include "cli/line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "cli/cli.h"

namespace markbase::cli {

namespace {

// Of a file that says its size; those of the kernel that say 0 are read to their end.
std::optional<uint64_t> bytes_left(int fd) {
  struct stat status = {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) return {};
  const off_t at = ::lseek(fd, 0, SEEK_CUR);
  if (at < 0) return {};
  return at < status.st_size ? static_cast<uint64_t>(status.st_size - at) : 0;
}

}  // namespace

Result<LineReader> LineReader::open(const std::string& file, LongLines long_lines) {
  if (file.empty() || file == "-") return LineReader(STDIN_FILENO, "stdin", long_lines);
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return base::bad_input("{}: cannot be opened: {}", file, std::strerror(errno));
  return LineReader(fd, file, long_lines);
}

LineReader::LineReader(int fd, std::string name, LongLines long_lines)
    : fd_(fd), name_(std::move(name)), long_lines_(long_lines), left_(bytes_left(fd)) {}

LineReader::LineReader(LineReader&& other) noexcept
    : fd_(std::exchange(other.fd_, STDIN_FILENO)),
      name_(std::move(other.name_)),
      long_lines_(other.long_lines_),
      left_(other.left_),
      buffer_(std::move(other.buffer_)),
      begin_(other.begin_),
      searched_(other.searched_),
      number_(other.number_),
      left_out_bytes_(other.left_out_bytes_),
      at_end_(other.at_end_) {}

bool LineReader::reads(int fd) const {
  struct stat mine = {};
  struct stat other = {};
  return ::fstat(fd_, &mine) == 0 && ::fstat(fd, &other) == 0 && S_ISREG(mine.st_mode) &&
         mine.st_dev == other.st_dev && mine.st_ino == other.st_ino;
}

LineReader::~LineReader() {
  if (fd_ != STDIN_FILENO) ::close(fd_);
}

Result<std::optional<LineReader::Line>> LineReader::next(const OnIdle& on_idle) {
  for (;;) {
    const size_t end = buffer_.find('\n', searched_);
    if (end != std::string::npos) {
      const Line line = line_until(end);
      begin_ = searched_ = end + 1;
      return std::optional<Line>(line);
    }
    searched_ = buffer_.size();
    if (!at_end_) {
      MB_ASSIGN(const bool more, read_more(on_idle));
      if (more) continue;
      at_end_ = true;
    }
    if (begin_ == buffer_.size()) return std::optional<Line>();
    const Line line = line_until(buffer_.size());
    begin_ = buffer_.size();
    return std::optional<Line>(line);
  }
}

LineReader::Line LineReader::line_until(size_t end) {
  return {std::string_view(buffer_).substr(begin_, end - begin_), ++number_,
          std::exchange(left_out_bytes_, 0)};
}

Result<bool> LineReader::read_more(const OnIdle& on_idle) {
  buffer_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  char chunk[65536];
  const size_t wanted = std::min<uint64_t>(sizeof chunk, left_.value_or(sizeof chunk));
  if (wanted == 0) return false;
  for (;;) {
    if (on_idle) MB_TRY(wait_for_input(on_idle));
    const ssize_t n = ::read(fd_, chunk, wanted);
    if (n < 0 && errno == EINTR && !interrupted()) continue;
    if (n < 0 && errno == EINTR) return Error{ErrorCode::kCancelled, "interrupted"};
    if (n < 0) return base::bad_input("{}: cannot be read: {}", name_, std::strerror(errno));
    if (left_) *left_ -= static_cast<uint64_t>(n);
    MB_TRY(take({chunk, static_cast<size_t>(n)}));
    return n > 0;
  }
}

// The buffer holds a part of one line: it grows up to the limit, and what follows is left out.
Result<void> LineReader::take(std::string_view chunk) {
  const size_t of_line = std::min(chunk.find('\n'), chunk.size());
  const size_t room = kMostInputBytes - std::min(buffer_.size(), kMostInputBytes);
  if (of_line > room) {
    if (long_lines_ == LongLines::kAreErrors) {
      return base::bad_input("{}: line {}: expected at most {} MiB, got more", name_, number_ + 1,
                             kMostInputBytes >> 20);
    }
    left_out_bytes_ += of_line - room;
    buffer_.append(chunk.substr(0, room));
    chunk.remove_prefix(of_line);
  }
  buffer_.append(chunk);
  return {};
}

Result<void> LineReader::wait_for_input(const OnIdle& on_idle) const {
  constexpr int kIdleMs = 100;
  pollfd waiting = {fd_, POLLIN, 0};
  while (::poll(&waiting, 1, kIdleMs) <= 0) {
    if (interrupted() || !on_idle()) return Error{ErrorCode::kCancelled, "interrupted"};
  }
  return {};
}

}  // namespace markbase::cli
