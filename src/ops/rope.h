// Rotary position embedding, rotate-half layout over the whole head.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace markbase::ops {

// The angles of a step's rows, once for all layers and heads that rotate alike:
//   angle = float32(positions[t]) * inv_freq[k] in float32, as the reference does
//   table[t][k] = cos(angle), table[t][P + k] = sin(angle)
// both computed in double and rounded once. positions: [T] i32 >= 0. inv_freq: [P] f32.
// table: [T, 2 P] f32.
struct RopeTableArgs {
  tensor::TensorView positions;
  tensor::TensorView inv_freq;
  tensor::TensorView table;
};
void check(const RopeTableArgs& args);
// One row in host memory, [2 inv_freq.size()]: what every backend's table holds.
void fill_rope_row(std::span<const float> inv_freq, int32_t position, float* row);

// With cos and sin of row table_rows[t], for k in 0 .. P - 1:
//   x'[k]              = x[k] cos[k] - x[k + head_dim/2] sin[k]
//   x'[k + head_dim/2] = x[k + head_dim/2] cos[k] + x[k] sin[k]
// The pairs from P on (those of a partial rotation that do not turn) stay as they are.
// x: [T, heads, head_dim] f32 contiguous in the last two axes, in place. table_rows: [T] i32, below
// num_rows. table: [num_rows, 2 P] f32 by rope_table(), P <= head_dim/2.
struct RopeArgs {
  tensor::TensorView x;
  tensor::TensorView table_rows;
  tensor::TensorView table;
};
void check(const RopeArgs& args);

// The head norm, then rope: x = rope(rms_norm(x over head_dim, weight)). x: [T, heads, head_dim]
// f32 in place.
struct NormRopeArgs {
  tensor::TensorView x;
  tensor::TensorView weight;  // [head_dim] f32
  float eps = 1e-6F;
  tensor::TensorView table_rows;
  tensor::TensorView table;
};
void check(const NormRopeArgs& args);
class Backend;
void compose(Backend& backend, const NormRopeArgs& args);

}  // namespace markbase::ops
