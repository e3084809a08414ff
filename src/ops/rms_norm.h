// y = x * (mean(x^2) + eps)^(-1/2) * weight, over the last axis.
#pragma once

#include "tensor/tensor.h"

namespace markbase::ops {

// x, y: [rows, width] f32, rows may be strided, y may be x. weight: [width] f32, or data == nullptr
// for a norm without weight. The weight is used as it is: a model whose files hold w - 1 adds the
// one at load.
struct RmsNormArgs {
  tensor::TensorView x;
  tensor::TensorView weight;
  float eps = 1e-6F;
  tensor::TensorView y;
};
void check(const RmsNormArgs& args);

// residual = (residual + rms_norm(x, post_weight)) * scale; y = rms_norm(residual, next_weight).
// The end of one sub-layer and the start of the next in one pass. Gives the bits of its
// composition, in which a scale of 1 changes nothing. x, residual, y: [rows, width] f32; y may be
// x, neither may be residual. next_weight.data == nullptr with y.data == nullptr: only the residual
// is updated; the composed default then overwrites x with its norm.
struct AddRmsNormArgs {
  tensor::TensorView x;
  tensor::TensorView post_weight;
  tensor::TensorView residual;
  float scale = 1.0F;
  tensor::TensorView next_weight;
  float eps = 1e-6F;
  tensor::TensorView y;
};
void check(const AddRmsNormArgs& args);
class Backend;
void compose(Backend& backend, const AddRmsNormArgs& args);

}  // namespace markbase::ops
