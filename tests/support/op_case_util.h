// What the op cases share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "base/check.h"
#include "support/op_case.h"
#include "support/random.h"
#include "support/subject.h"
#include "support/weight_data.h"

namespace markbase::testing {

// Rows [begin, begin + n) of a matrix.
template <class T>
std::span<const T> rows_of(const std::vector<T>& values, int64_t width, int64_t begin, int64_t n) {
  return std::span(values).subspan(static_cast<size_t>(begin * width),
                                   static_cast<size_t>(n * width));
}

// The first `width` columns of a matrix: its rows then stand apart.
inline tensor::TensorView narrowed(tensor::TensorView view, int64_t width) {
  MB_CHECK(view.rank == 2 && width <= view.dim(1));
  view.shape[1] = width;
  return view;
}

// Rows with `padding` more columns (of noise) behind each.
inline std::vector<float> padded_rows(std::span<const float> values, int64_t width,
                                      int64_t padding) {
  std::vector<float> out;
  for (size_t i = 0; i < values.size(); ++i) {
    out.push_back(values[i]);
    if ((i + 1) % static_cast<size_t>(width) != 0) continue;
    out.insert(out.end(), static_cast<size_t>(padding), 12345.0F);
  }
  return out;
}

// The matrix [rows, sum of widths] that has row i of every part one after the other.
inline std::vector<float> joined_rows(std::initializer_list<std::span<const float>> parts,
                                      int64_t rows) {
  std::vector<float> out;
  for (int64_t i = 0; i < rows; ++i) {
    for (const auto& part : parts) {
      const size_t width = part.size() / static_cast<size_t>(rows);
      const auto row = part.subspan(static_cast<size_t>(i) * width, width);
      out.insert(out.end(), row.begin(), row.end());
    }
  }
  return out;
}

// Packs or aborts.
inline std::unique_ptr<ops::PackedWeight> pack_weight(ops::Backend& backend,
                                                      const quant::WeightView& weight) {
  auto packed = backend.pack(weight, "weight", [](int64_t, int64_t) {});
  MB_CHECK_MSG(packed.ok(), packed.ok() ? "" : packed.error().message.c_str());
  return std::move(packed).value();
}

// 0.5 z (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3)))
double exact_gelu_tanh(double z);

// One norm of a row, and the relative error that float32 arithmetic may add to each of its outputs:
// the sum of squares in 16 lanes and a tree, halved by the root, and the steps around it.
std::vector<double> exact_rms_norm(std::span<const double> x, std::span<const float> weight,
                                   double eps);
inline double rms_norm_relative_error(int64_t width) {
  const double sum_steps = static_cast<double>(width) / 16.0 + 8.0;
  return (sum_steps / 2.0 + 6.0) * kHalfUlp;
}

inline std::vector<double> widened(std::span<const float> values) {
  return {values.begin(), values.end()};
}

}  // namespace markbase::testing
