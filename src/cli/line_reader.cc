#include "cli/line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "cli/cli.h"

namespace markbase::cli {

Result<LineReader> LineReader::open(const std::string& file) {
  if (file.empty() || file == "-") return LineReader(STDIN_FILENO, "stdin");
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return base::bad_input("{}: cannot be opened: {}", file, std::strerror(errno));
  return LineReader(fd, file);
}

LineReader::LineReader(LineReader&& other) noexcept
    : fd_(std::exchange(other.fd_, STDIN_FILENO)),
      name_(std::move(other.name_)),
      buffer_(std::move(other.buffer_)),
      begin_(other.begin_),
      searched_(other.searched_),
      number_(other.number_),
      at_end_(other.at_end_) {}

LineReader::~LineReader() {
  if (fd_ != STDIN_FILENO) ::close(fd_);
}

Result<std::optional<LineReader::Line>> LineReader::next(const OnIdle& on_idle) {
  for (;;) {
    const size_t end = buffer_.find('\n', searched_);
    if (end != std::string::npos) {
      const Line line{std::string_view(buffer_).substr(begin_, end - begin_), ++number_};
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
    const Line line{std::string_view(buffer_).substr(begin_), ++number_};
    begin_ = buffer_.size();
    return std::optional<Line>(line);
  }
}

Result<bool> LineReader::read_more(const OnIdle& on_idle) {
  buffer_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  char chunk[65536];
  for (;;) {
    if (on_idle) MB_TRY(wait_for_input(on_idle));
    const ssize_t n = ::read(fd_, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR && !interrupted()) continue;
    if (n < 0 && errno == EINTR) return Error{ErrorCode::kCancelled, "interrupted"};
    if (n < 0) return base::bad_input("{}: cannot be read: {}", name_, std::strerror(errno));
    if (static_cast<size_t>(n) > kMostInputBytes - buffer_.size()) {
      return base::bad_input("{}: line {}: expected at most {} MiB, got more", name_, number_ + 1,
                             kMostInputBytes >> 20);
    }
    buffer_.append(chunk, static_cast<size_t>(n));
    return n > 0;
  }
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
