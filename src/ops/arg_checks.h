// Shapes and dtypes that the ops' checks ask about. Private to this room.
#pragma once

#include "base/check.h"
#include "tensor/tensor.h"

namespace markbase::ops {

inline bool is_type(const tensor::TensorView& view, tensor::DType dtype, int rank) {
  return view.dtype == dtype && view.rank == rank &&
         (view.data != nullptr || view.num_elements() == 0);
}

// [rows, width] f32 whose last axis is contiguous.
inline bool is_f32_rows(const tensor::TensorView& view) {
  return is_type(view, tensor::DType::kF32, 2) && (view.dim(1) <= 1 || view.stride[1] == 1) &&
         (view.dim(0) <= 1 || view.stride[0] >= view.dim(1));
}

// [tokens, heads, head_dim] f32, contiguous in the last two axes.
inline bool is_f32_heads(const tensor::TensorView& view) {
  return is_type(view, tensor::DType::kF32, 3) && (view.dim(2) <= 1 || view.stride[2] == 1) &&
         (view.dim(1) <= 1 || view.stride[1] == view.dim(2)) &&
         (view.dim(0) <= 1 || view.stride[0] >= view.dim(1) * view.dim(2));
}

// [n] of a type, contiguous.
inline bool is_vector(const tensor::TensorView& view, tensor::DType dtype, int64_t n) {
  return is_type(view, dtype, 1) && view.dim(0) == n && view.contiguous();
}

inline bool same_shape(const tensor::TensorView& a, const tensor::TensorView& b) {
  return a.rank == b.rank && a.shape == b.shape;
}

inline bool same_device(const tensor::TensorView& a, const tensor::TensorView& b) {
  return a.device == b.device;
}

}  // namespace markbase::ops
