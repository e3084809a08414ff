// What a tensor is: a looking TensorView. It owns nothing and computes nothing.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

#include "base/check.h"
#include "tensor/dtype.h"

namespace markbase::tensor {

// Where the bytes live. A view with device memory may never be read by the host.
enum class Device : uint8_t { kHost, kCuda };

inline constexpr int kMaxRank = 4;

// Shape outermost first; the last axis is contiguous, rows may be apart: stride[i] counts elements.
struct TensorView {
  DType dtype = DType::kF32;
  Device device = Device::kHost;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  std::array<int64_t, kMaxRank> stride{};
  void* data = nullptr;

  int64_t num_elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[static_cast<size_t>(i)];
    return n;
  }
  int64_t dim(int i) const { return shape[static_cast<size_t>(i)]; }
  bool contiguous() const {
    int64_t expected = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (dim(i) != 1 && stride[static_cast<size_t>(i)] != expected) return false;
      expected *= dim(i);
    }
    return true;
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  float* f32() const {
    MB_DCHECK(dtype == DType::kF32);
    return static_cast<float*>(data);
  }
  // Row i of a rank-2 float tensor.
  float* row(int64_t i) const { return f32() + i * stride[0]; }

  // The first n entries of the outermost axis.
  TensorView first(int64_t n) const {
    MB_CHECK(rank >= 1 && n <= shape[0]);
    TensorView v = *this;
    v.shape[0] = n;
    return v;
  }
  // n entries of the outermost axis from `begin`.
  TensorView slice(int64_t begin, int64_t n) const {
    MB_CHECK(rank >= 1 && begin + n <= shape[0]);
    TensorView v = *this;
    v.shape[0] = n;
    v.data = static_cast<char*>(data) + static_cast<size_t>(begin * stride[0]) * dtype_bytes(dtype);
    return v;
  }
  // The same contiguous bytes under another shape.
  TensorView reshaped(std::initializer_list<int64_t> new_shape) const;
};

// A contiguous view on memory that the caller owns.
inline TensorView make_view(void* data, DType dtype, std::initializer_list<int64_t> shape,
                            Device device = Device::kHost) {
  MB_CHECK(shape.size() <= kMaxRank);
  TensorView v;
  v.dtype = dtype;
  v.device = device;
  v.data = data;
  v.rank = static_cast<int>(shape.size());
  int i = 0;
  for (int64_t n : shape) v.shape[static_cast<size_t>(i++)] = n;
  int64_t stride = 1;
  for (i = v.rank - 1; i >= 0; --i) {
    v.stride[static_cast<size_t>(i)] = stride;
    stride *= v.dim(i);
  }
  return v;
}

inline TensorView TensorView::reshaped(std::initializer_list<int64_t> new_shape) const {
  MB_CHECK(contiguous());
  TensorView v = make_view(data, dtype, new_shape, device);
  MB_CHECK(v.num_elements() == num_elements());
  return v;
}

}  // namespace markbase::tensor
