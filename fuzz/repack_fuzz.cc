// Any bytes as the table of a cache of packed weights.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "runtime/repack_cache.h"

using namespace markbase;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  // The key and the size that the bytes themselves ask for, so that the rules behind them are
  // reached.
  runtime::RepackKey key = {};
  uint64_t file_bytes = size;
  if (size >= 40) {
    std::memcpy(&key, data + 16, sizeof key);
    std::memcpy(&file_bytes, data + 32, sizeof file_bytes);
  }
  const auto entries = runtime::parse_repack_table(bytes, file_bytes, key);
  if (!entries.ok()) return 0;
  for (const runtime::RepackEntry& entry : *entries) {
    if (entry.offset + entry.size_bytes > file_bytes || entry.offset > file_bytes ||
        entry.offset % 4096 != 0)
      __builtin_trap();
  }
  return 0;
}
