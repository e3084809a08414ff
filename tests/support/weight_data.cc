#include "support/weight_data.h"

#include <fmt/format.h>

#include "base/check.h"
#include "quant/encode.h"

namespace markbase::testing {
namespace {

using quant::Format;
using tensor::DType;

Format float_format(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return Format::kF16;
    case DType::kBF16:
      return Format::kBF16;
    default:
      return Format::kF32;
  }
}

}  // namespace

std::string WeightKind::name() const {
  if (format != Format::kAffine) return std::string(quant::format_name(format));
  return fmt::format("affine_b{}_g{}_{}", bits, group_size, tensor::dtype_name(scale_dtype));
}

int64_t WeightKind::col_unit() const {
  constexpr int64_t kFloatModeUnit = 32;
  if (format == Format::kAffine) return group_size;
  return quant::is_mlx(format) ? kFloatModeUnit : quant::block_shape(format).elements;
}

std::vector<WeightKind> all_weight_kinds() {
  std::vector<WeightKind> kinds;
  for (auto f = static_cast<int>(Format::kF32); f < static_cast<int>(Format::kAffine); ++f) {
    kinds.push_back({.format = static_cast<Format>(f)});
  }
  kinds.push_back({Format::kMlxMXFP4, 4, 32, DType::kU8});
  kinds.push_back({Format::kMlxMXFP8, 8, 32, DType::kU8});
  kinds.push_back({Format::kMlxNVFP4, 4, 16, DType::kU8});
  constexpr DType kScaleTypes[] = {DType::kBF16, DType::kF16, DType::kF32};
  int turn = 0;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      const DType dtype = kScaleTypes[turn++ % 3];
      kinds.push_back({Format::kAffine, bits, group, dtype});
    }
    ++turn;  // so that each group size meets each scale type
  }
  return kinds;
}

WeightData::WeightData(const WeightKind& kind, int64_t rows, int64_t cols, uint64_t seed) {
  MB_CHECK(cols % kind.col_unit() == 0);
  view_.format = kind.format;
  view_.rows = rows;
  view_.cols = cols;
  if (quant::is_mlx(kind.format)) {
    Random random(seed);
    data_.resize(static_cast<size_t>(rows * cols * kind.bits / 8));
    for (std::byte& b : data_) b = static_cast<std::byte>(random.next() >> 56);
    const int64_t groups = rows * cols / kind.group_size;
    if (kind.format == Format::kAffine) {
      scales_ = quant::random_blocks(float_format(kind.scale_dtype), seed + 1, groups);
      biases_ = quant::random_blocks(float_format(kind.scale_dtype), seed + 2, groups);
    } else if (kind.format == Format::kMlxNVFP4) {
      scales_ = quant::random_blocks(Format::kF8E4M3, seed + 1, groups);
    } else {
      // Powers of two between 2^-10 and 2^-3.
      for (int64_t g = 0; g < groups; ++g)
        scales_.push_back(static_cast<std::byte>(117 + random.next() % 8));
    }
    if (kind.format == Format::kMlxMXFP8)  // no NaN
      data_ = quant::random_blocks(Format::kF8E4M3, seed, rows * cols);
    view_.bits = kind.bits;
    view_.group_size = kind.group_size;
    view_.scale_dtype = kind.scale_dtype;
    view_.scales = scales_;
    view_.biases = biases_;
  } else {
    data_ = quant::random_blocks(kind.format, seed, rows * cols / kind.col_unit());
  }
  view_.data = data_;
}

}  // namespace markbase::testing
