// The key/value cache as the ops see it. The runtime owns the pool and hands out block numbers; the
// bytes inside a block are the backend's own layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tensor/tensor.h"

namespace markbase::ops {

enum class KvType : uint8_t { kF16, kBF16, kF32, kQ8 };
std::string_view kv_type_name(KvType type);

// Keys are kept in blocks of 64 at fixed absolute positions: position p is entry p % 64 of block p
// / 64. Attention reduces block after block in that order, so no result depends on where a chunk
// began.
inline constexpr int64_t kKvBlockTokens = 64;

// kQ8: int8 codes with one float32 scale for each token and KV head (max|x| / 127), of K and of V.
struct KvLayout {
  KvType type = KvType::kF16;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
};

// One layer's cache in a step.
// blocks: pool memory of this layer, block b begins at data + b * Backend::kv_block_bytes(layout).
// block_table: [num_sequences, table_blocks] i32, as long as the context. Block j (absolute) of
// sequence s is block_table[s, j % table_blocks]. Entries of blocks that no query of the step can
// see may hold anything.
struct KvView {
  KvLayout layout;
  void* blocks = nullptr;
  tensor::TensorView block_table;
};

// Rounds k and v to the cache type and stores them at (sequence, position).
// k, v: [T, num_kv_heads, head_dim] f32; positions, sequences: [T] i32 (row of block_table).
// overflow: [1] i32, set to 1 (never cleared) when a finite value does not fit the type or a value
// is not finite; the owner reads it after the step and names the layer.
struct KvWriteArgs {
  tensor::TensorView k;
  tensor::TensorView v;
  tensor::TensorView positions;
  tensor::TensorView sequences;
  KvView cache;
  tensor::TensorView overflow;
};
void check(const KvWriteArgs& args);

}  // namespace markbase::ops
