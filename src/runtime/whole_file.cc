#include "runtime/whole_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"

namespace markbase::runtime {
namespace {

// The file that is written to before it is whole, locked by its writer; -1 where another process
// writes. Only a plain file of its own is taken: a link put there would have us overwrite what it
// leads to.
Result<int> open_part_file(const std::string& part) {
  // A writer that ends renames or unlinks the file between our opening and locking it: try again.
  constexpr int kTries = 3;
  for (int i = 0; i < kTries; ++i) {
    FileDescriptor file(
        ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
    if (file.fd() < 0) return base::failed("{}: cannot be written: {}", part, std::strerror(errno));
    struct stat ours = {};
    if (fstat(file.fd(), &ours) != 0 || !S_ISREG(ours.st_mode) || ours.st_nlink > 1)
      return base::failed("{}: cannot be written: expected a plain file with one name", part);
    if (::flock(file.fd(), LOCK_EX | LOCK_NB) != 0) return -1;
    struct stat named = {};
    if (::lstat(part.c_str(), &named) == 0 && ours.st_ino == named.st_ino &&
        ours.st_dev == named.st_dev) {
      return file.release();
    }
  }
  return -1;
}

}  // namespace

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Result<OpenedFile> open_plain_file(const std::string& path) {
  OpenedFile opened = {FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))};
  if (opened.file.fd() < 0)
    return base::bad_input("{}: cannot be opened: {}", path, std::strerror(errno));
  struct stat status = {};
  if (fstat(opened.file.fd(), &status) != 0 || !S_ISREG(status.st_mode))
    return base::bad_input("{}: expected a plain file", path);
  opened.size_bytes = static_cast<uint64_t>(status.st_size);
  return opened;
}

bool read_fully(int fd, std::span<std::byte> out, uint64_t offset) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return true;
}

bool write_fully(int fd, std::span<const std::byte> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return true;
}

Result<bool> write_whole_file(const std::string& path, base::FunctionRef<bool(int fd)> write) {
  const std::string part = path + ".part";
  MB_ASSIGN(const int fd, open_part_file(part));
  if (fd < 0) return false;
  const FileDescriptor file(fd);
  if (::ftruncate(fd, 0) == 0 && write(fd) && ::rename(part.c_str(), path.c_str()) == 0)
    return true;
  const Error error = base::failed("{}: cannot be written: {}", path, std::strerror(errno));
  ::unlink(part.c_str());
  return error;
}

}  // namespace markbase::runtime
