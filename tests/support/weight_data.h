// Random weights of every format, owning their bytes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "quant/weight_view.h"
#include "support/random.h"

namespace markbase::testing {

// A kind of weight: a format, and for kAffine its parameters.
struct WeightKind {
  quant::Format format = quant::Format::kF32;
  int bits = 0;
  int group_size = 0;
  tensor::DType scale_dtype = tensor::DType::kF32;

  std::string name() const;
  // cols must be a multiple of this.
  int64_t col_unit() const;
};
// Every format; affine at all bits and groups with one scale type each.
std::vector<WeightKind> all_weight_kinds();

class WeightData {
 public:
  WeightData(const WeightKind& kind, int64_t rows, int64_t cols, uint64_t seed);
  WeightData(WeightData&&) = default;
  const quant::WeightView& view() const { return view_; }

 private:
  std::vector<std::byte> data_, scales_, biases_;
  quant::WeightView view_;
};

}  // namespace markbase::testing
