// A mixture of experts: which experts a row goes to, and what they make of it.
#pragma once

#include <memory>
#include <span>

#include "ops/packed_weight.h"
#include "tensor/tensor.h"

namespace markbase::ops {

// For each row of scores s over all E experts:
//   p = softmax(s), which replaces the scores
//   ids = the K experts of the highest scores, highest first, ties to the lower index
//   weights[k] = p[ids[k]] / (sum over the K of p) * expert_scale[ids[k]]
// scores: [T, E] f32, overwritten. expert_scale: [E] f32. ids: [T, K] i32. weights: [T, K] f32. All
// contiguous, 1 <= K <= E, K <= kMostExpertsPerToken. A row with a score that is NaN goes to some K
// experts with weights that are NaN.
inline constexpr int64_t kMostExpertsPerToken = 64;
struct RouteArgs {
  tensor::TensorView scores;
  tensor::TensorView expert_scale;
  tensor::TensorView ids;
  tensor::TensorView weights;
};
void check(const RouteArgs& args);

// With gate, up and down of expert e = ids[t, k]:
//   d[t, k] = down . (gelu_tanh(gate . x[t]) * (up . x[t]))     by linear, gelu_mul, linear
//   y[t] = sum over k, in the order of k, of weights[t, k] * d[t, k], each term one fma from +0
// x, y: [T, H] f32, rows may be strided, no aliasing. ids: [T, K] i32 in [0, E);
// weights: [T, K] f32; both contiguous, as route leaves them, in the backend's memory: which
// experts a step uses is never known to the host. gate, up: E weights [M, H]; down: E weights
// [H, M]. A row's result depends on nothing but the row.
struct ExpertsArgs {
  tensor::TensorView x;
  tensor::TensorView ids;
  tensor::TensorView weights;
  std::span<const std::unique_ptr<PackedWeight>> gate;
  std::span<const std::unique_ptr<PackedWeight>> up;
  std::span<const std::unique_ptr<PackedWeight>> down;
  tensor::TensorView y;
};
// Looks at the first expert only.
void check(const ExpertsArgs& args);
// For each expert in use, where the host computes.
void check_expert(const ExpertsArgs& args, int32_t id);

}  // namespace markbase::ops
