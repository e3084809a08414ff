// Causal attention of the rows of a step over the cached keys and values.
#pragma once

#include "ops/kv_cache.h"
#include "tensor/tensor.h"

namespace markbase::ops {

// For row t with position p = positions[t], head h, KV head g = h / (num_heads / num_kv_heads):
//   visible keys j: max(0, p - window + 1) <= j <= p     (window = 0: all j <= p)
//   y[t, h] = sum_j softmax_j(scale * q[t, h] . k[j, g]) * v[j, g]
// All keys up to p are in the cache when the op starts (the step's own included).
// q, y: [T, num_heads, head_dim] f32 contiguous in the last two axes; positions, sequences: [T]
// i32. Rows of one sequence stand together with ascending positions.
struct AttentionArgs {
  tensor::TensorView q;
  tensor::TensorView positions;
  tensor::TensorView sequences;
  KvView cache;
  float scale = 1.0F;
  int64_t window = 0;
  tensor::TensorView y;
};
void check(const AttentionArgs& args);

}  // namespace markbase::ops
