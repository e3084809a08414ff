// Rotary position embedding, rotate-half layout over the whole head.
#pragma once

#include <span>

#include "tensor/tensor.h"

namespace markbase::ops {

// For k in 0 .. head_dim/2 - 1, p = positions[t], angle = p * inv_freq[k]:
//   x'[k]              = x[k] cos(angle) - x[k + head_dim/2] sin(angle)
//   x'[k + head_dim/2] = x[k + head_dim/2] cos(angle) + x[k] sin(angle)
// x: [T, heads, head_dim] f32 contiguous in the last two axes, in place. positions: [T] i32 >= 0.
// table: [num_positions, head_dim] f32, row p = cos(angle) for each k, then sin(angle) for each k,
// made by rope_table(): the same table for every backend, so no backend needs sin or cos.
// positions[t] must be below num_positions.
struct RopeArgs {
  tensor::TensorView x;
  tensor::TensorView positions;
  tensor::TensorView table;
};
void check(const RopeArgs& args);

// Fills rows [begin, end) of a table in host memory. angle = float32(p) * inv_freq[k] in float32,
// as the reference does; its sine and cosine are then exact to the last bit or so (computed in
// double). inv_freq: [head_dim / 2].
void fill_rope_table(std::span<const float> inv_freq, int64_t begin, int64_t end, float* table);

// The head norm, then rope: x = rope(rms_norm(x over head_dim, weight)). x: [T, heads, head_dim]
// f32 in place.
struct NormRopeArgs {
  tensor::TensorView x;
  tensor::TensorView weight;  // [head_dim] f32
  float eps = 1e-6F;
  tensor::TensorView positions;
  tensor::TensorView table;
};
void check(const NormRopeArgs& args);
class Backend;
void compose(Backend& backend, const NormRopeArgs& args);

}  // namespace markbase::ops
