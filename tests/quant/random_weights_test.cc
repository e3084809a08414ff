#include "quant/random_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "quant/weight_view.h"

namespace markbase::quant {
namespace {

struct Moments {
  double mean = 0;
  double deviation = 0;
  float largest = 0;
};

Moments moments(const WeightView& view) {
  std::vector<float> row(static_cast<size_t>(view.cols));
  double sum = 0;
  double squares = 0;
  Moments out;
  for (int64_t r = 0; r < view.rows; ++r) {
    decode_row(view, r, row);
    for (const float v : row) {
      sum += v;
      squares += static_cast<double>(v) * v;
      out.largest = std::max(out.largest, std::isfinite(v) ? std::fabs(v) : INFINITY);
    }
  }
  const auto count = static_cast<double>(view.rows * view.cols);
  out.mean = sum / count;
  out.deviation = std::sqrt(squares / count - out.mean * out.mean);
  return out;
}

constexpr int64_t kRows = 64;
constexpr int64_t kCols = 1024;
constexpr float kSpread = 0.02F;

// 65,536 values: the mean is within four deviations of it, the deviation within the tenth that the
// quarter by which scales vary and their roundings leave.
void expect_spread(const Moments& got, std::string_view what) {
  EXPECT_NEAR(got.mean, 0, 4 * kSpread / 256) << what;
  EXPECT_NEAR(got.deviation, kSpread, kSpread / 10) << what;
  EXPECT_LT(got.largest, 6 * kSpread) << what;
}

class Blocks : public ::testing::TestWithParam<Format> {};

TEST_P(Blocks, HaveTheSpreadAndDependOnTheSeedAlone) {
  const BlockShape block = block_shape(GetParam());
  std::vector<std::byte> bytes(static_cast<size_t>(kRows * kCols / block.elements * block.bytes));
  std::vector<std::byte> again(bytes.size());
  fill_random_blocks(GetParam(), 5, kSpread, bytes);
  fill_random_blocks(GetParam(), 5, kSpread, again);
  EXPECT_EQ(bytes, again);
  fill_random_blocks(GetParam(), 6, kSpread, again);
  EXPECT_NE(bytes, again);
  const WeightView view{.format = GetParam(), .rows = kRows, .cols = kCols, .data = bytes};
  ASSERT_TRUE(validate(view, "weight").ok());
  expect_spread(moments(view), format_name(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(RandomWeights, Blocks,
                         ::testing::Values(Format::kQ4_0, Format::kQ4_1, Format::kQ5_0,
                                           Format::kQ5_1, Format::kQ8_0, Format::kQ4_K,
                                           Format::kQ5_K, Format::kQ6_K),
                         [](const auto& info) { return std::string(format_name(info.param)); });

TEST(RandomWeights, FloatsAreUniformAroundTheirCenter) {
  for (const Format format : {Format::kF32, Format::kF16, Format::kBF16}) {
    std::vector<std::byte> bytes(static_cast<size_t>(kRows * kCols * block_shape(format).bytes));
    fill_random_floats(format, 3, 0.0F, kSpread * std::sqrt(3.0F), bytes);
    const WeightView view{.format = format, .rows = kRows, .cols = kCols, .data = bytes};
    expect_spread(moments(view), format_name(format));
    fill_random_floats(format, 3, 2.0F, 0.5F, bytes);
    EXPECT_NEAR(moments(view).mean, 2.0, 0.01);
    EXPECT_LE(moments(view).largest, 2.5F);
  }
}

TEST(RandomWeights, AffineCodesHaveTheSpread) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    constexpr int kGroup = 64;
    std::vector<std::byte> words(static_cast<size_t>(kRows * kCols / 8 * bits));
    std::vector<std::byte> scales(static_cast<size_t>(kRows * kCols / kGroup * 2));
    std::vector<std::byte> biases(scales.size());
    fill_random_codes(1, words);
    fill_random_affine_scales(bits, 2, kSpread, scales, biases);
    const WeightView view{.format = Format::kAffine,
                          .rows = kRows,
                          .cols = kCols,
                          .data = words,
                          .bits = bits,
                          .group_size = kGroup,
                          .scale_dtype = tensor::DType::kBF16,
                          .scales = scales,
                          .biases = biases};
    ASSERT_TRUE(validate(view, "weight").ok());
    expect_spread(moments(view), std::to_string(bits));
  }
}

TEST(RandomWeights, PartsHaveSeedsOfTheirOwn) {
  EXPECT_NE(part_seed(0, "a", 0), part_seed(0, "a", 1));
  EXPECT_NE(part_seed(0, "a", 0), part_seed(0, "b", 0));
  EXPECT_NE(part_seed(0, "a", 0), part_seed(1, "a", 0));
  EXPECT_EQ(part_seed(7, "a", 3), part_seed(7, "a", 3));
}

}  // namespace
}  // namespace markbase::quant
