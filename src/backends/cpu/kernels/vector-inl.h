// Norms, elementwise ops, rope and the rounding into the cache, over sixteen lanes.
#pragma once

#include "backends/cpu/kernels/math-inl.h"
#include "backends/cpu/kernels/simd-inl.h"
#include "backends/cpu/kernels/vector_kernels.h"

namespace {
namespace vec {

using simd::F;
using simd::kLanes;

// y[i] = op(i-th vector of the inputs): `op(index, load)` with load(p) the sixteen (or last few)
// floats at p + index.
template <class Op>
MB_INLINE void for_each_vector(int64_t n, float* y, const Op& op) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    simd::store(y + i, op([i](const float* p) { return simd::load(p + i); }));
  }
  if (i < n) {
    simd::store_n(y + i, op([i, n](const float* p) { return simd::load_n(p + i, n - i); }), n - i);
  }
}

// Sums of squares: element i belongs to lane i % 16 of chain (i / 16) % 4, so that no chain is long
// enough to lose digits or to wait for its own last addition; then (0 + 1) + (2 + 3) and the tree.
struct SquareSum {
  F chain[4];
};
MB_INLINE SquareSum empty_square_sum() {
  const F zero = simd::set1(0.0f);
  return {{zero, zero, zero, zero}};
}
MB_INLINE float total(const SquareSum& s) {
  return simd::reduce_add(
      simd::add(simd::add(s.chain[0], s.chain[1]), simd::add(s.chain[2], s.chain[3])));
}

// Goes over the row in vectors: `take(offset, count)` returns the vector to be squared. A missing
// tail counts as zeros, which change no sum.
template <class Take>
MB_INLINE float sum_of_squares(int64_t n, const Take& take) {
  SquareSum s = empty_square_sum();
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int c = 0; c < 4; ++c) {
      const F x = take(i + c * kLanes, kLanes);
      s.chain[c] = simd::fma(x, x, s.chain[c]);
    }
  }
  for (int c = 0; i < n; ++c, i += kLanes) {
    const F x = take(i, n - i < kLanes ? n - i : kLanes);
    s.chain[c] = simd::fma(x, x, s.chain[c]);
  }
  return total(s);
}

MB_INLINE F load_any(const float* p, int64_t count) {
  return count == kLanes ? simd::load(p) : simd::load_n(p, count);
}
MB_INLINE void store_any(float* p, F x, int64_t count) {
  if (count == kLanes) {
    simd::store(p, x);
  } else {
    simd::store_n(p, x, count);
  }
}

MB_INLINE float inverse_rms(float square_sum, int64_t n, float eps) {
  return 1.0f / __builtin_sqrtf(square_sum / static_cast<float>(n) + eps);
}

MB_INLINE F normed(F x, F inverse, const float* weight, int64_t offset, int64_t count) {
  const F y = simd::mul(x, inverse);
  return weight == nullptr ? y : simd::mul(y, load_any(weight + offset, count));
}

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* y) {
  const float squares =
      sum_of_squares(n, [x](int64_t i, int64_t count) { return load_any(x + i, count); });
  const F inverse = simd::set1(inverse_rms(squares, n, eps));
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t count = n - i < kLanes ? n - i : kLanes;
    store_any(y + i, normed(load_any(x + i, count), inverse, weight, i, count), count);
  }
}

void add_rms_norm(const float* x, const float* post_weight, float* residual, float scale,
                  const float* next_weight, float eps, int64_t n, float* y) {
  const float squares =
      sum_of_squares(n, [x](int64_t i, int64_t count) { return load_any(x + i, count); });
  const F inverse = simd::set1(inverse_rms(squares, n, eps));
  const F factor = simd::set1(scale);
  const float updated = sum_of_squares(n, [&](int64_t i, int64_t count) {
    const F sum = simd::add(normed(load_any(x + i, count), inverse, post_weight, i, count),
                            load_any(residual + i, count));
    const F scaled = simd::mul(sum, factor);
    store_any(residual + i, scaled, count);
    return scaled;
  });
  if (y == nullptr) return;
  const F next_inverse = simd::set1(inverse_rms(updated, n, eps));
  for (int64_t i = 0; i < n; i += kLanes) {
    const int64_t count = n - i < kLanes ? n - i : kLanes;
    store_any(y + i, normed(load_any(residual + i, count), next_inverse, next_weight, i, count),
              count);
  }
}

void add(const float* x, float* y, int64_t n) {
  for_each_vector(n, y, [&](const auto& at) { return simd::add(at(x), at(y)); });
}

void add_scaled(const float* x, float factor, float* y, int64_t n) {
  const F f = simd::set1(factor);
  for_each_vector(n, y, [&](const auto& at) { return simd::fma(f, at(x), at(y)); });
}

void gelu_mul(const float* gate, const float* up, float* y, int64_t n) {
  for_each_vector(n, y,
                  [&](const auto& at) { return simd::mul(math::gelu_tanh(at(gate)), at(up)); });
}

void soft_cap(float* x, float cap, int64_t n) {
  const F limit = simd::set1(cap);
  for_each_vector(
      n, x, [&](const auto& at) { return simd::mul(limit, math::tanh(simd::div(at(x), limit))); });
}

void scale(float* x, float factor, int64_t n) {
  const F f = simd::set1(factor);
  for_each_vector(n, x, [&](const auto& at) { return simd::mul(at(x), f); });
}

void rope(float* x, const float* table_row, int64_t head_dim, int64_t pairs) {
  const int64_t half = head_dim / 2;
  for (int64_t i = 0; i < pairs; i += kLanes) {
    const int64_t count = pairs - i < kLanes ? pairs - i : kLanes;
    const F a = load_any(x + i, count);
    const F b = load_any(x + half + i, count);
    const F cosine = load_any(table_row + i, count);
    const F sine = load_any(table_row + pairs + i, count);
    const F minus_b_sine = simd::mul(simd::sub(simd::set1(0.0f), b), sine);
    store_any(x + i, simd::fma(a, cosine, minus_b_sine), count);
    store_any(x + half + i, simd::fma(b, cosine, simd::mul(a, sine)), count);
  }
}

void exp_all(const float* x, float* y, int64_t n) {
  for_each_vector(n, y, [&](const auto& at) { return math::exp(at(x)); });
}
void tanh_all(const float* x, float* y, int64_t n) {
  for_each_vector(n, y, [&](const auto& at) { return math::tanh(at(x)); });
}
void gelu_tanh_all(const float* x, float* y, int64_t n) {
  for_each_vector(n, y, [&](const auto& at) { return math::gelu_tanh(at(x)); });
}

}  // namespace vec
}  // namespace
