// Where a token's key and value stand. Private to this room.
#pragma once

#include "backends/ref/ref_backend_impl.h"

namespace markbase::backends {

// Floats from a key to the value of the same token.
inline int64_t kv_value_offset(const ops::KvLayout& layout) {
  return ops::kKvBlockTokens * layout.num_kv_heads * layout.head_dim;
}

// [num_kv_heads, head_dim] of the key at a position of a sequence.
inline float* kv_key(const ops::KvView& cache, size_t block_bytes, int32_t sequence,
                     int64_t position) {
  const tensor::TensorView& table = cache.block_table;
  MB_CHECK(sequence >= 0 && sequence < table.dim(0) && position >= 0);
  const int64_t column = position / ops::kKvBlockTokens % table.dim(1);
  const int32_t block = table.as<int32_t>()[sequence * table.stride[0] + column];
  MB_CHECK(block >= 0);
  char* data = static_cast<char*>(cache.blocks) + static_cast<size_t>(block) * block_bytes;
  const int64_t entry = position % ops::kKvBlockTokens;
  return reinterpret_cast<float*>(data) + entry * cache.layout.num_kv_heads * cache.layout.head_dim;
}

}  // namespace markbase::backends
