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

bool begins_with(int fd, std::string_view magic) {
  std::string begin(magic.size(), '\0');
  return read_fully(fd, std::as_writable_bytes(std::span(begin)), 0) && begin == magic;
}

std::string_view name_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISBLK(mode) || S_ISCHR(mode)) return "a device";
  return "another file";
}

Error not_ours(const std::string& path, const FileKind& kind, std::string_view got) {
  return base::usage_error("{}: expected {} or nothing, got {}", path, kind.kind, got);
}

// Opening tells whether a plain file is ours; what is none is not opened, which may do something.
Result<void> check_replaceable(const std::string& path, const FileKind& kind) {
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    return base::failed("{}: cannot be written: {}", path, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) return not_ours(path, kind, name_of(status.st_mode));
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.fd() < 0) {
    return base::failed("{}: cannot be read to see what it is: {}", path, std::strerror(errno));
  }
  if (begins_with(file.fd(), kind.magic)) return {};
  return not_ours(path, kind, name_of(status.st_mode));
}

// Fills the locked file under its other name and puts it in place, unless `check` objects then.
Result<bool> fill_and_rename(const FileDescriptor& file, const std::string& part,
                             const std::string& path, base::FunctionRef<bool(int fd)> write,
                             base::FunctionRef<Result<void>()> check) {
  if (write(file.fd())) {
    const Result<void> checked = check();
    if (!checked.ok()) {
      ::unlink(part.c_str());
      return checked.error();
    }
    if (::rename(part.c_str(), path.c_str()) == 0) return true;
  }
  const Error error = base::failed("{}: cannot be written: {}", path, std::strerror(errno));
  ::unlink(part.c_str());
  return error;
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
  const auto fill = [&](int to) { return ::ftruncate(to, 0) == 0 && write(to); };
  return fill_and_rename(file, part, path, fill, [] { return Result<void>(); });
}

Result<bool> write_file_of_kind(const std::string& path, const FileKind& kind,
                                base::FunctionRef<bool(int fd)> write) {
  const std::string part = path + ".part";
  MB_TRY(check_replaceable(path, kind));
  MB_ASSIGN(const int fd, open_part_file(part));
  if (fd < 0) return false;
  const FileDescriptor file(fd);
  struct stat status = {};
  if (::fstat(fd, &status) != 0 || (status.st_size > 0 && !begins_with(fd, kind.magic)))
    return not_ours(part, kind, name_of(S_IFREG));
  // The magic comes first: a writer that is ended half-way leaves a file that the next one knows.
  const auto fill = [&](int to) {
    return ::ftruncate(to, 0) == 0 && write_fully(to, std::as_bytes(std::span(kind.magic)), 0) &&
           write(to);
  };
  return fill_and_rename(file, part, path, fill, [&] { return check_replaceable(path, kind); });
}

}  // namespace markbase::runtime
