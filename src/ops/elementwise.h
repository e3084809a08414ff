// Ops that treat each element alone.
#pragma once

#include "tensor/tensor.h"

namespace markbase::ops {

// y = x + y. [rows, width] f32.
struct AddArgs {
  tensor::TensorView x;
  tensor::TensorView y;
};
void check(const AddArgs& args);

// y = gelu_tanh(gate) * up, gelu_tanh(z) = 0.5 z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))).
// gate, up, y: [rows, width] f32, rows may be strided; y may be gate or up.
struct GeluMulArgs {
  tensor::TensorView gate;
  tensor::TensorView up;
  tensor::TensorView y;
};
void check(const GeluMulArgs& args);

// x = cap * tanh(x / cap), in place. x: [rows, width] f32.
struct SoftCapArgs {
  tensor::TensorView x;
  float cap = 0.0F;
};
void check(const SoftCapArgs& args);

// x = x * factor, in place. x: [rows, width] f32.
struct ScaleArgs {
  tensor::TensorView x;
  float factor = 1.0F;
};
void check(const ScaleArgs& args);

// y[i, :] = x[rows[i], :]. rows: [n] i32; x: [T, width] f32; y: [n, width] f32, no aliasing.
struct GatherRowsArgs {
  tensor::TensorView x;
  tensor::TensorView rows;
  tensor::TensorView y;
};
void check(const GatherRowsArgs& args);

}  // namespace markbase::ops
