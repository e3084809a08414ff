#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "cli/cli.h"

namespace markbase::cli {
namespace {

Error too_long(const std::string& name) {
  return base::bad_input("{}: expected at most {} MiB, got more", name, kMostInputBytes >> 20);
}

Result<std::string> read_all(int fd, const std::string& name) {
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof(buffer));
    if (n == 0) return text;
    if (n < 0) {
      if (errno == EINTR && !interrupted()) continue;
      if (errno == EINTR) return Error{ErrorCode::kCancelled, "interrupted"};
      return base::bad_input("{}: cannot be read: {}", name, std::strerror(errno));
    }
    if (static_cast<size_t>(n) > kMostInputBytes - text.size()) return too_long(name);
    text.append(buffer, static_cast<size_t>(n));
  }
}

Error cannot_write(const std::string& path, int error) {
  return base::failed("{}: cannot be written: {}", path, std::strerror(error));
}

std::string parent_of(const std::filesystem::path& path) {
  const std::filesystem::path parent =
      (path.has_filename() ? path : path.parent_path()).parent_path();
  return parent.empty() ? "." : parent.string();
}

// That `folder` is one and takes files.
Result<void> check_folder(const std::string& path, const std::string& folder) {
  struct stat status = {};
  if (::stat(folder.c_str(), &status) != 0) return cannot_write(path, errno);
  if (!S_ISDIR(status.st_mode)) return cannot_write(path, ENOTDIR);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return cannot_write(path, errno);
  return {};
}

// Lines of at most `columns` characters, broken at spaces; a longer word stays as it is.
std::string wrapped_at(std::string_view text, size_t columns) {
  std::string out(text);
  size_t column = 0;
  size_t space = out.npos;  // the last one of this line
  size_t since_space = 0;   // characters after it
  for (size_t i = 0; i < out.size(); ++i) {
    if ((static_cast<uint8_t>(out[i]) & 0xC0) == 0x80) continue;
    ++column;
    ++since_space;
    if (out[i] == '\n') {
      column = since_space = 0;
      space = out.npos;
    } else if (out[i] == ' ') {
      space = i;
      since_space = 0;
    }
    if (column > columns && space != out.npos) {
      out[space] = '\n';
      space = out.npos;
      column = since_space;
    }
  }
  return out;
}

// "120 / 246 MB", "512 / 9157 tokens"
std::string amount_text(const Progress& progress) {
  constexpr uint64_t kMegabyte = 1'000'000;
  switch (progress.unit) {
    case Progress::Unit::kBytes:
      return fmt::format("{} / {} MB", progress.done / kMegabyte, progress.total / kMegabyte);
    case Progress::Unit::kTokens:
      return fmt::format("{} / {} tokens", progress.done, progress.total);
    case Progress::Unit::kRuns:
      return fmt::format("{} / {} runs", progress.done, progress.total);
  }
  return {};
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  if (path == "-") return read_stdin();
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return base::bad_input("{}: cannot be opened: {}", path, std::strerror(errno));
  Result<std::string> text = read_all(fd, path);
  ::close(fd);
  return text;
}

Error input_error(std::string_view where, const Error& error) {
  const bool is_usage = error.code == ErrorCode::kUsage;
  return {is_usage ? ErrorCode::kBadInput : error.code,
          fmt::format("{}: {}", where, error.message)};
}

Result<void> check_file_target(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) return cannot_write(path, EISDIR);
    if (!S_ISREG(status.st_mode)) return {};  // /dev/null: written in place
  }
  return check_folder(path, parent_of(path));
}

Result<void> check_folder_target(const std::string& path) {
  std::error_code ignored;
  return check_folder(path, std::filesystem::exists(path, ignored) ? path : parent_of(path));
}

Result<std::string> read_stdin() { return read_all(STDIN_FILENO, "stdin"); }

Result<void> print(std::string_view text) {
  const size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written != text.size() || std::fflush(stdout) != 0) {
    const int reason = errno;
    if (reason == EPIPE) return base::failed("stdout was closed by the reader");
    return base::failed("stdout: {}", std::strerror(reason));
  }
  return {};
}

std::string without_controls(std::string_view text) {
  constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    const auto next = static_cast<uint8_t>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool c1 = byte == 0xC2 && next >= 0x80 && next <= 0x9F;  // U+0080 to U+009F
    if (byte == '\r' && next == '\n') continue;
    if (c1 || byte == 0x7F || (byte < 0x20 && byte != '\n' && byte != '\t')) {
      out += kReplacement;
      i += c1 ? 1 : 0;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string shown_on(int fd, std::string_view text) {
  return isatty(fd) == 1 ? without_controls(text) : std::string(text);
}

void note(bool quiet, std::string_view text) {
  if (quiet) return;
  winsize size = {};
  std::string wrapped;
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    wrapped = wrapped_at(text, size.ws_col);
    text = wrapped;
  }
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fputc('\n', stderr);
}

bool stderr_is_terminal() { return isatty(STDERR_FILENO) == 1; }

void ProgressLine::show(const Progress& progress) {
  if (!enabled_ || progress.total == 0) return;
  if (progress.done >= progress.total) return clear();
  const int percent = static_cast<int>(progress.done * 100 / progress.total);
  if (percent == last_percent_) return;
  last_percent_ = percent;
  const std::string line =
      fmt::format("\r{} {} ({} %)\x1b[K", progress.what, amount_text(progress), percent);
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
  shown_ = true;
}

void ProgressLine::clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  shown_ = false;
  last_percent_ = -1;
}

}  // namespace markbase::cli
