#include "cli/batch_output.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/completion_json.h"
#include "cli/line_reader.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace markbase::cli {
namespace {

std::string_view code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kBadInput:
      return "bad_input";
    case ErrorCode::kOutOfMemory:
      return "out_of_memory";
    default:
      return "failed";
  }
}

Error cannot_write(const std::string& name, int error) {
  if (error == EPIPE) return base::failed("{} was closed by the reader", name);
  return base::failed("{}: cannot be written: {}", name, std::strerror(error));
}

bool is_file(int fd) {
  struct stat status = {};
  return ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

// False: we are interrupted, and nobody takes what was written before. The signal may have reached
// another thread, so that no event wakes this one.
bool wait_for_room(int fd) {
  constexpr int kLookMs = 100;
  pollfd entry = {fd, POLLOUT, 0};
  for (;;) {
    const int ready = ::poll(&entry, 1, kLookMs);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;  // write says what is wrong
    if (ready == 0 && interrupted()) return false;
  }
}

}  // namespace

uint64_t hash_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

std::string hash_json(uint64_t hash) { return fmt::format("\"{:016x}\"", hash); }

std::string fault_line(const base::Json& id, size_t line, uint64_t hash, const Error& error) {
  const base::Json fault = {{"code", code_name(error.code)}, {"message", error.message}};
  return object_json({{"id", base::dump_json(id)},
                      {"line", std::to_string(line)},
                      {"request", hash_json(hash)},
                      {"error", base::dump_json(fault)}});
}

Result<BatchOutput> BatchOutput::open(const std::string& path, BatchRecord* record) {
  if (path.empty()) return BatchOutput(STDOUT_FILENO, "stdout");
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return cannot_write(path, errno);
  BatchOutput output(fd, path);
  struct stat status = {};
  if (::fstat(fd, &status) != 0) return cannot_write(path, errno);
  if (!S_ISREG(status.st_mode)) return output;
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return base::failed("{}: another batch is writing it", path);
  }
  if (status.st_size > 0) MB_TRY(output.take_up(record));
  return output;
}

Result<void> BatchOutput::take_up(BatchRecord* record) {
  MB_ASSIGN(LineReader reader, LineReader::open(name_, LineReader::LongLines::kAreCut));
  off_t whole = 0;  // bytes of the lines that end
  struct stat status = {};
  if (::fstat(fd_, &status) != 0) return cannot_write(name_, errno);
  for (;;) {
    MB_ASSIGN(const std::optional<LineReader::Line> line, reader.next());
    if (!line) return {};
    const off_t end = whole + static_cast<off_t>(line->text.size() + line->left_out_bytes) + 1;
    if (end > status.st_size) {
      if (!begins_batch_line(line->text)) {
        const Error error = not_of_a_batch(line->text, line->number);
        return base::bad_input("{}: {}: the file stays as it is", name_, error.message);
      }
      if (::ftruncate(fd_, whole) != 0) return cannot_write(name_, errno);
      return {};
    }
    const Result<void> added = line->left_out_bytes > 0
                                   ? record->add_begin(line->text, line->number)
                                   : record->add(line->text, line->number);
    if (!added.ok()) {
      return base::bad_input("{}: {}: the file stays as it is", name_, added.error().message);
    }
    whole = end;
  }
}

BatchOutput::BatchOutput(BatchOutput&& other) noexcept
    : fd_(std::exchange(other.fd_, STDOUT_FILENO)), name_(std::move(other.name_)) {}

BatchOutput::~BatchOutput() {
  if (fd_ != STDOUT_FILENO) ::close(fd_);
}

Result<void> BatchOutput::write(const std::string& line) {
  const std::string text = line + "\n";
  // A pipe that has any room has room for so many bytes, without a wait for the rest.
  const size_t most = is_file(fd_) ? text.size() : PIPE_BUF;
  size_t done = 0;
  while (done < text.size()) {
    if (!wait_for_room(fd_)) return Error{ErrorCode::kCancelled, "interrupted"};
    const ssize_t n = ::write(fd_, text.data() + done, std::min<size_t>(text.size() - done, most));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int reason = errno;
      // What did not fit goes again, where that can be.
      struct stat status = {};
      if (done > 0 && is_file(fd_) && ::fstat(fd_, &status) == 0) {
        (void)!::ftruncate(fd_, status.st_size - static_cast<off_t>(done));
      }
      return cannot_write(name_, reason);
    }
    done += static_cast<size_t>(n);
  }
  return {};
}

}  // namespace markbase::cli
