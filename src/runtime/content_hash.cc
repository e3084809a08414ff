#include "runtime/content_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace markbase::runtime {

uint64_t content_hash(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace markbase::runtime
