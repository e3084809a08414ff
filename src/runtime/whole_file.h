// Files that are written to the end or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/function_ref.h"
#include "markbase/result.h"

namespace markbase::runtime {

// An open file, closed on destruction.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  FileDescriptor(const FileDescriptor&) = delete;
  ~FileDescriptor();
  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

struct OpenedFile {
  FileDescriptor file;
  uint64_t size_bytes = 0;
};
// For reading. Errors: kBadInput with the path, for what is no plain file too.
Result<OpenedFile> open_plain_file(const std::string& path);

// False at the end of the file or on an error.
bool read_fully(int fd, std::span<std::byte> out, uint64_t offset);
bool write_fully(int fd, std::span<const std::byte> bytes, uint64_t offset);

// Has `write` fill a file under another name, which is put in place when that is done; `write`
// returns false on an error of the system (errno). Two processes that do so do not disturb each
// other: the second one leaves it to the first and gets false. Errors: kFailed (no room, no
// permission, something else under that name); no file of ours is left behind then.
Result<bool> write_whole_file(const std::string& path, base::FunctionRef<bool(int fd)> write);

// The same for a path that somebody else chose: what stands there is replaced only where it is a
// plain file that begins with `magic`, as what `write` makes does, too; so is what stands under the
// other name (or an empty file). Errors also: kUsage for anything else, which is left alone; `kind`
// calls the files in the message ("a file of kept prefixes").
struct FileKind {
  std::string_view magic;
  std::string_view kind;
};
Result<bool> write_file_of_kind(const std::string& path, const FileKind& kind,
                                base::FunctionRef<bool(int fd)> write);

}  // namespace markbase::runtime
