// The bytes of a KV block on the CPU.
//
// A block holds 64 positions of one layer: KV head after KV head, each
//   keys    [64 / 16][head_dim][16 keys]    a score is one chain over head_dim with one key a lane
//   values  [head_dim / 16][64 keys][16 dims]
//   scales  float32 [64] of the keys, then [64] of the values (kQ8 only)
// with head_dim padded by zeros to a multiple of 16, in the cache's type, each head's part rounded
// up to 64 bytes. Attention reads both straight through.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/kernels/vector_kernels.h"
#include "ops/kv_cache.h"

namespace markbase::backends::cpu {

struct KvHeadLayout {
  KvStore type;
  KvHeadOffsets offsets;
  size_t head_bytes;  // from one head's part to the next
};

inline int64_t padded_head_dim(int64_t head_dim) { return (head_dim + 15) / 16 * 16; }

KvHeadLayout kv_head_layout(const ops::KvLayout& layout);

}  // namespace markbase::backends::cpu
