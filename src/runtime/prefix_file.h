// Kept prefixes in a file: a header, a table (nodes with their ids, which blocks they have, what is
// known of each block), then the bytes of the blocks, one after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "markbase/result.h"
#include "ops/kv_cache.h"

namespace markbase::runtime {

// What a file belongs to: another one is refused.
struct PrefixFileKey {
  uint64_t model = 0;
  uint64_t layout = 0;  // of the cache: backend, types, layers, windows
};

struct PrefixFileKind {
  int64_t window = 0;        // 0: a full kind
  uint64_t block_bytes = 0;  // of all its layers
};

struct PrefixFileNode {
  int32_t parent = -1;  // a node before this one; -1: the root
  bool is_border = false;
  int64_t depth = 0;      // in blocks
  uint64_t last_use = 0;  // in the order of the numbers
  std::array<int32_t, ops::kKvBlockTokens> ids = {};
  std::vector<uint32_t> blocks;   // contents, one a full kind
  std::vector<uint32_t> windows;  // contents, of a border: kind after kind, in order of position
};

struct PrefixFileContent {
  uint32_t kind_idx = 0;
  uint64_t hash = 0;
  uint64_t offset = 0;  // from the beginning of the file; set when read
};

struct PrefixFile {
  std::vector<PrefixFileNode> nodes;
  std::vector<PrefixFileContent> contents;
};

inline constexpr size_t kPrefixHeaderBytes = 80;
// Bytes of header and table together, from the header. Errors (kBadInput): not such a file, another
// version or key, sizes that the file does not have.
Result<uint64_t> prefix_table_bytes(std::span<const std::byte> header, uint64_t file_bytes,
                                    const PrefixFileKey& key);
enum class TableChecksum : uint8_t {
  kChecked,
  kIgnored,  // for fuzzing: the rules behind it are reached
};
// `bytes`: header and table. Errors (kBadInput): those of prefix_table_bytes, a checksum that does
// not hold, nodes or blocks that do not belong together, a file of another size.
Result<PrefixFile> parse_prefix_table(std::span<const std::byte> bytes, uint64_t file_bytes,
                                      const PrefixFileKey& key,
                                      std::span<const PrefixFileKind> kinds,
                                      TableChecksum checksum = TableChecksum::kChecked);

// Writes a file as it is read, whole or not at all. `read_content` brings the bytes of a content.
// Errors: kFailed; kUsage where anything but such a file stands in its place.
Result<void> write_prefix_file(
    const std::string& path, const PrefixFileKey& key, std::span<const PrefixFileKind> kinds,
    PrefixFile file,
    base::FunctionRef<void(size_t content_idx, std::span<std::byte>)> read_content);

}  // namespace markbase::runtime
