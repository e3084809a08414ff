// One checksum for what is kept in files and found by content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace markbase::runtime {

// XXH3, 64 bits.
uint64_t content_hash(std::span<const std::byte> bytes, uint64_t seed = 0);

}  // namespace markbase::runtime
