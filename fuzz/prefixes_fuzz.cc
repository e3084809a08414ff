// Any bytes as the table of a file of kept prefixes.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "runtime/prefix_cache.h"
#include "runtime/prefix_file.h"

using namespace markbase;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  // The key and the size that the bytes themselves ask for, so that the rules behind them are
  // reached; a full kind and two sliding ones.
  runtime::PrefixFileKey key;
  uint64_t file_bytes = size;
  if (size >= 40) {
    std::memcpy(&key, data + 16, sizeof key);
    std::memcpy(&file_bytes, data + 32, sizeof file_bytes);
  }
  const runtime::PrefixFileKind kinds[] = {{0, 32}, {100, 16}, {20, 8}};
  const auto file =
      runtime::parse_prefix_table(bytes, file_bytes, key, kinds, runtime::TableChecksum::kIgnored);
  if (!file.ok()) return 0;
  for (size_t i = 0; i < file->nodes.size(); ++i) {
    const runtime::PrefixFileNode& node = file->nodes[i];
    if (node.parent >= static_cast<int64_t>(i) || node.blocks.size() != 1) __builtin_trap();
    const int64_t windows = node.is_border
                                ? 2 * node.depth - runtime::first_block_seen(node.depth, 100) -
                                      runtime::first_block_seen(node.depth, 20)
                                : 0;
    if (static_cast<int64_t>(node.windows.size()) != windows) __builtin_trap();
    for (const uint32_t content : node.windows) {
      if (content >= file->contents.size()) __builtin_trap();
    }
    if (node.blocks[0] >= file->contents.size()) __builtin_trap();
  }
  for (const runtime::PrefixFileContent& content : file->contents) {
    const uint64_t content_bytes = kinds[content.kind_idx].block_bytes;
    if (content.offset > file_bytes || content_bytes > file_bytes - content.offset)
      __builtin_trap();
  }
  return 0;
}
