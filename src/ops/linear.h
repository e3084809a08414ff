// y[t, n] = sum over k of x[t, k] * weight[n, k].
#pragma once

#include <span>

#include "ops/packed_weight.h"
#include "tensor/tensor.h"

namespace markbase::ops {

// One output of a product. y: [T, weight rows] f32, rows may be strided, no aliasing with x.
struct LinearTarget {
  const PackedWeight* weight = nullptr;
  tensor::TensorView y;
};

// x: [T, K] f32, rows may be strided; every weight has K columns. Several weights share one x (q,
// k, v; gate and up), so that what is done to x is done once. Each row of x gives the same bits
// whatever T, the other targets, threads or chunking.
struct LinearArgs {
  tensor::TensorView x;
  std::span<const LinearTarget> targets;
};
void check(const LinearArgs& args);

// y = weight . (gelu_tanh(gate) * up): the down product of a gated MLP. gate, up: [T, K] f32; the
// composed default overwrites gate with the product of the two, a fused form may leave it alone.
struct GatedLinearArgs {
  tensor::TensorView gate;
  tensor::TensorView up;
  LinearTarget target;
};
void check(const GatedLinearArgs& args);
class Backend;
void compose(Backend& backend, const GatedLinearArgs& args);

}  // namespace markbase::ops
