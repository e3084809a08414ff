// Packed weights kept in a file beside the model, so that the next start maps them instead of
// packing again. The file is only a copy of what packing gives: whatever is wrong with it, the
// weights are packed from the model, and it is written anew.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "formats/weight_source.h"
#include "markbase/result.h"
#include "model/weight_map.h"
#include "runtime/whole_file.h"

namespace markbase::runtime {

// What a cache was made from: layout, files (their state when they were opened) and the place,
// shape and type of every weight. Another model, or the same file changed, has another key.
using RepackKey = std::array<uint64_t, 2>;
// `layout`: ops::Backend::packed_layout().
RepackKey repack_key(const formats::WeightSource& source, const model::WeightMap& map,
                     std::string_view layout);
// "<first file of the model>.<layout>.repacked"
std::string repack_path(const formats::WeightSource& source, std::string_view layout);

struct RepackEntry {
  uint64_t name_hash = 0;
  uint64_t offset = 0;  // from the beginning of the file, a multiple of 4096
  uint64_t size_bytes = 0;
  uint64_t content_hash = 0;
};
// The table at the beginning of a cache, `bytes` being as much of the file as there is up to
// kMostTableBytes. Errors (kBadInput): not such a file, another version or key, cut off, or an
// entry outside the file or not at a page border.
Result<std::vector<RepackEntry>> parse_repack_table(std::span<const std::byte> bytes,
                                                    uint64_t file_bytes, const RepackKey& key);
inline constexpr size_t kMostTableBytes = size_t{4} << 20;

// A cache opened for reading: mapped, so that its contents are used where they are.
class RepackCache {
 public:
  // Errors: kBadInput with the path and why it is of no use.
  static Result<RepackCache> open(const std::string& path, const RepackKey& key);

  struct Wanted {
    std::string_view name;
    uint64_t size_bytes = 0;
  };
  // The contents kept under these names, in their order, each with its checksum compared: all
  // threads read the whole of them, and `on_checked` is told on this thread how many bytes are
  // done. They are valid as long as file(). Errors: kBadInput (not there, of another size, cut off,
  // damaged).
  Result<std::vector<std::span<const std::byte>>> contents(
      std::span<const Wanted> wanted, base::ThreadPool& pool,
      base::FunctionRef<void(uint64_t)> on_checked) const;

  // May be moved out of the cache, the contents stay where they are.
  base::MappedFile& file() { return file_; }

 private:
  RepackCache(base::MappedFile file, std::vector<RepackEntry> entries)
      : file_(std::move(file)), entries_(std::move(entries)) {}
  Result<std::span<const std::byte>> find(const Wanted& wanted, uint64_t* content_hash) const;

  base::MappedFile file_;
  std::vector<RepackEntry> entries_;
};

struct NamedContent {
  std::string_view name;
  std::span<const std::byte> bytes;
};
// Writes a cache under another name and puts it in place when it is whole. Two processes that do so
// do not disturb each other: the second one leaves it to the first and returns false. `on_written`
// is told how many bytes of contents are done. Errors: kFailed (no room, no permission, something
// else under that name); no file of ours is left behind then.
Result<bool> write_repack_cache(const std::string& path, const RepackKey& key,
                                std::span<const NamedContent> contents, base::ThreadPool& pool,
                                base::FunctionRef<void(uint64_t)> on_written);

}  // namespace markbase::runtime
