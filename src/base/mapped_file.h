// A file mapped read-only. A page that can no longer be read (the file was truncated under us) does
// not kill the process: it reads as zeros and the file remembers it, so the reader returns an
// error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "markbase/result.h"

namespace markbase::base {

// Which file it was and in what state when it was opened: a file replaced or changed since, even
// with its times set back, has another one.
struct FileIdentity {
  uint64_t inode = 0;
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;
};

class MappedFile {
 public:
  // Errors: kBadInput with path and reason (missing, a directory, empty allowed: zero bytes).
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  MappedFile(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const;
  FileIdentity identity() const;
  std::span<const std::byte> bytes() const;
  // Asks for pages of 2 MiB, where file system and kernel have them: they are read in and streamed
  // through faster. For a file that is needed in full.
  void prefer_huge_pages() const;
  // Tells the kernel that these pages will be needed soon / are not needed any more. A hint:
  // nothing happens where `part` is not inside bytes().
  void prefetch(std::span<const std::byte> part) const;
  void release(std::span<const std::byte> part) const;
  // kBadInput if the file is shorter than when it was opened or was written to since, or a page was
  // met since that could not be read any more.
  Result<void> check_intact() const;

 private:
  struct State;
  MappedFile();
  std::unique_ptr<State> state_;
};

}  // namespace markbase::base
