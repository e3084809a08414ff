// Encoders: the bytes that independent programs write, the bound of each block, and refused values.
#include <cmath>
#include <limits>
#include <random>

#include "base/half.h"
#include "quant_test_util.h"

namespace markbase::quant {
namespace {

constexpr int64_t kRows = 8, kCols = 256;

std::vector<std::byte> encode_all(Format format, std::span<const float> values, int64_t cols) {
  const BlockShape shape = block_shape(format);
  const auto row_size = static_cast<size_t>(cols / shape.elements * shape.bytes);
  const size_t rows = values.size() / static_cast<size_t>(cols);
  std::vector<std::byte> out(rows * row_size);
  for (size_t row = 0; row < rows; ++row) {
    const auto from = values.subspan(row * static_cast<size_t>(cols), static_cast<size_t>(cols));
    const auto result = encode_row(format, from, std::span(out).subspan(row * row_size, row_size));
    EXPECT_TRUE(result.ok()) << result.error().message;
  }
  return out;
}

TEST(GoldenEncode, BlocksAreTheBytesOfTheReference) {
  const auto rows = as_floats(read_golden("quant_encode/rows.f32"));
  ASSERT_EQ(rows.size(), static_cast<size_t>(kRows * kCols));
  const std::pair<Format, const char*> kFiles[] = {{Format::kF16, "f16"},   {Format::kBF16, "bf16"},
                                                   {Format::kQ4_0, "q4_0"}, {Format::kQ4_1, "q4_1"},
                                                   {Format::kQ5_0, "q5_0"}, {Format::kQ5_1, "q5_1"},
                                                   {Format::kQ8_0, "q8_0"}};
  for (const auto& [format, file] : kFiles) {
    const auto expected = read_golden(std::string("quant_encode/") + file + ".bin");
    EXPECT_EQ(encode_all(format, rows, kCols), expected) << file;
  }
}

void check_affine_golden(int bits, int group, tensor::DType dtype, const std::string& label) {
  const std::string stem = "quant_encode/mlx_affine_b" + std::to_string(bits) + "_g" +
                           std::to_string(group) + "_" + label;
  const auto rows = as_floats(read_golden("quant_encode/rows.f32"));
  const auto row_words = static_cast<size_t>(kCols * bits / 8);
  const size_t row_scales = static_cast<size_t>(kCols / group) * tensor::dtype_bytes(dtype);
  std::vector<std::byte> words(kRows * row_words), scales(kRows * row_scales),
      biases(kRows * row_scales);
  for (size_t row = 0; row < static_cast<size_t>(kRows); ++row) {
    const auto result =
        encode_affine_row(bits, group, dtype, std::span(rows).subspan(row * kCols, kCols),
                          std::span(words).subspan(row * row_words, row_words),
                          std::span(scales).subspan(row * row_scales, row_scales),
                          std::span(biases).subspan(row * row_scales, row_scales));
    ASSERT_TRUE(result.ok()) << result.error().message;
  }
  EXPECT_EQ(words, read_golden(stem + ".words.u32")) << stem;
  EXPECT_EQ(scales, read_golden(stem + ".scales.bin")) << stem;
  EXPECT_EQ(biases, read_golden(stem + ".biases.bin")) << stem;
}

TEST(GoldenEncode, AffineRowsAreTheBytesOfTheReference) {
  constexpr std::pair<int, int> kCases[] = {{2, 32}, {3, 64},  {4, 32}, {4, 64},
                                            {5, 64}, {6, 128}, {8, 64}};
  for (const auto& [bits, group] : kCases) {
    check_affine_golden(bits, group, tensor::DType::kF32, "f32");
    check_affine_golden(bits, group, tensor::DType::kF16, "f16");
    check_affine_golden(bits, group, tensor::DType::kBF16, "bf16");
  }
}

std::vector<float> random_values(uint32_t seed, int64_t count) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    // A spread of 2^-6 to 2^3 between groups of 16, and a shift that changes sign.
    const float size = std::ldexp(1.0f, static_cast<int>(i / 16 * 7 % 10) - 6);
    const float shift = static_cast<float>(i / 64 % 3) - 1.0f;
    const float unit = static_cast<float>(random() % 20001) / 10000.0f - 1.0f;
    values[i] = size * (unit + shift);
  }
  return values;
}

struct Range {
  float low, high, magnitude;
};

Range range_of(std::span<const float> group) {
  Range range{group[0], group[0], 0};
  for (const float v : group) {
    range.low = std::min(range.low, v);
    range.high = std::max(range.high, v);
    range.magnitude = std::max(range.magnitude, std::fabs(v));
  }
  return range;
}

// Half precision moves d (and m) by at most 2^-11 of themselves, so a value by 2^-11 of the largest
// that d times a code (and m) can be; one more 2^-20 covers the float32 arithmetic around it.
constexpr float kHalfRounding = 0x1p-11f + 0x1p-20f;

// The largest error that a group of these values may have.
float bound(Format format, const Range& group, const Range& block) {
  const float width = group.high - group.low;
  const float magnitude = group.magnitude;
  switch (format) {
    case Format::kQ4_0:
      return magnitude / 8 + magnitude * kHalfRounding;
    case Format::kQ5_0:
      return magnitude / 16 + magnitude * kHalfRounding;
    case Format::kQ4_1:
      return width / 30 + (width + magnitude) * kHalfRounding;
    case Format::kQ5_1:
      return width / 62 + (width + magnitude) * kHalfRounding;
    case Format::kQ8_0:
      return magnitude / 254 + magnitude * kHalfRounding;
    case Format::kQ4_K: {
      // Half a step; the step is off by half of 1/63 of the block's largest, which cuts the top by
      // 15 times that; the minimum is off by half of its own 63rd.
      const float step = (std::max(group.high, 0.0f) - std::min(group.low, 0.0f)) / 15;
      const float largest_step = (std::max(block.high, 0.0f) - std::min(block.low, 0.0f)) / 15;
      const float largest_minimum = std::max(0.0f, -block.low);
      const float grain = largest_step / 126;
      return step / 2 + 15.5f * grain + largest_minimum / 126 +
             (16 * largest_step + largest_minimum) * kHalfRounding;
    }
    case Format::kQ6_K: {
      // A step of 1/32 of the extreme: one step where the far side is cut at 31, and the
      // sub-scale's grain of half 1/128 of the block's largest step (a whole one where it is cut at
      // 127), 32 times.
      const float step = magnitude / 32;
      const float grain = block.magnitude / 32 / 128;
      return step + 32 * grain + 33 * grain * kHalfRounding + magnitude * 2 * kHalfRounding;
    }
    default:
      return 0;
  }
}

void check_bound(Format format) {
  constexpr int64_t kWidth = 1024;
  const auto values = random_values(5, 6 * kWidth);
  const auto bytes = encode_all(format, values, kWidth);
  const WeightView weight{.format = format, .rows = 6, .cols = kWidth, .data = bytes};
  const auto decoded = decode_all(weight);
  const auto group = static_cast<size_t>(grouped_layout(weight)->group_size);
  const auto block = static_cast<size_t>(block_shape(format).elements);
  float worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const Range of_group = range_of(std::span(values).subspan(i / group * group, group));
    const Range of_block = range_of(std::span(values).subspan(i / block * block, block));
    const float share = std::fabs(decoded[i] - values[i]) / bound(format, of_group, of_block);
    worst = std::max(worst, share);
    ASSERT_LE(share, 1.0f) << format_name(format) << " element " << i << ": " << values[i]
                           << " became " << decoded[i];
  }
  // A bound that nothing comes near would test nothing.
  EXPECT_GT(worst, 0.3f) << format_name(format);
}

TEST(Encode, StaysWithinTheBoundOfTheBlock) {
  for (const Format format : {Format::kQ4_0, Format::kQ4_1, Format::kQ5_0, Format::kQ5_1,
                              Format::kQ8_0, Format::kQ4_K, Format::kQ6_K}) {
    check_bound(format);
  }
}

TEST(Encode, AffineStaysWithinTheBoundOfTheGroup) {
  const auto values = random_values(9, 512);
  for (const int bits : kAffineBits) {
    for (const int group : kAffineGroups) {
      std::vector<std::byte> words(static_cast<size_t>(512 * bits / 8));
      std::vector<std::byte> scales(static_cast<size_t>(512 / group * 4)), biases(scales.size());
      ASSERT_TRUE(
          encode_affine_row(bits, group, tensor::DType::kF32, values, words, scales, biases).ok());
      const auto decoded = decode_all(
          {Format::kAffine, 1, 512, words, bits, group, tensor::DType::kF32, scales, biases});
      const float max_code = static_cast<float>((1 << bits) - 1);
      for (size_t i = 0; i < 512; ++i) {
        const auto size = static_cast<size_t>(group);
        const Range range = range_of(std::span(values).subspan(i / size * size, size));
        // The edge is moved onto the grid of zero, which widens a step by at most half of itself in
        // n steps; what is beyond the last code is cut by as much.
        const float step = (range.high - range.low) / max_code;
        ASSERT_LE(std::fabs(decoded[i] - values[i]), 1.51f * step + 1e-6f)
            << bits << " bits, group " << group << ", element " << i;
      }
    }
  }
}

TEST(Encode, ZerosStayZeros) {
  const std::vector<float> zeros(256);
  for (const Format format :
       {Format::kF32, Format::kF16, Format::kBF16, Format::kQ4_0, Format::kQ4_1, Format::kQ5_0,
        Format::kQ5_1, Format::kQ8_0, Format::kQ4_K, Format::kQ6_K}) {
    const auto bytes = encode_all(format, zeros, 256);
    for (const float v : decode_all({.format = format, .rows = 1, .cols = 256, .data = bytes})) {
      ASSERT_EQ(v, 0.0f) << format_name(format);
    }
  }
}

TEST(Encode, TinyAndLargeValuesAreHarmless) {
  // Subnormal scales, and groups whose inverse scale would be infinite.
  for (const float size : {1e-45f, 1e-42f, 3e-39f, 1e-38f, 1e-30f, 6e-8f, 1e4f}) {
    std::vector<float> values(256);
    for (size_t i = 0; i < 256; ++i) values[i] = (i % 3 == 0 ? -size : size);
    for (const Format format : {Format::kQ4_0, Format::kQ4_1, Format::kQ5_0, Format::kQ5_1,
                                Format::kQ8_0, Format::kQ4_K, Format::kQ6_K}) {
      const auto bytes = encode_all(format, values, 256);
      for (const float v : decode_all({.format = format, .rows = 1, .cols = 256, .data = bytes})) {
        // Half's smallest step, 2^-24, times a code is all that may come in.
        ASSERT_LE(std::fabs(v), 1.1f * size + 32 * 128 * 0x1p-24f) << format_name(format);
      }
    }
  }
}

TEST(Encode, RefusesWhatAFormatCannotHold) {
  const float kInfinity = std::numeric_limits<float>::infinity();
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const Format format :
       {Format::kF32, Format::kF16, Format::kBF16, Format::kQ4_0, Format::kQ4_1, Format::kQ5_0,
        Format::kQ5_1, Format::kQ8_0, Format::kQ4_K, Format::kQ6_K}) {
    const BlockShape shape = block_shape(format);
    std::vector<std::byte> out(static_cast<size_t>(256 / shape.elements * shape.bytes));
    std::vector<float> row(256, 1.0f);
    for (const float bad : {kInfinity, -kInfinity, kNan}) {
      row[201] = bad;
      EXPECT_FALSE(encode_row(format, row, out).ok()) << format_name(format);
    }
    row[201] = 3e38f;
    row[202] = -3e38f;
    const auto result = encode_row(format, row, out);
    EXPECT_EQ(result.ok(), format == Format::kF32 || format == Format::kBF16)
        << format_name(format);
  }
  std::vector<float> row(64, 3e38f);
  std::vector<std::byte> words(32), scales(2), biases(2);
  EXPECT_FALSE(encode_affine_row(4, 64, tensor::DType::kF16, row, words, scales, biases).ok());
  row[3] = kNan;
  EXPECT_FALSE(encode_affine_row(4, 64, tensor::DType::kBF16, row, words, scales, biases).ok());
}

TEST(RandomBlocks, AreFiniteAndRepeat) {
  for (int f = 0; f < static_cast<int>(Format::kAffine); ++f) {
    const auto format = static_cast<Format>(f);
    const auto bytes = random_blocks(format, 99, 64);
    EXPECT_EQ(bytes, random_blocks(format, 99, 64));
    EXPECT_NE(bytes, random_blocks(format, 100, 64));
    const WeightView weight{
        .format = format, .rows = 1, .cols = 64 * block_shape(format).elements, .data = bytes};
    for (const float v : decode_all(weight)) {
      ASSERT_TRUE(std::isfinite(v) && std::fabs(v) < 1024) << format_name(format) << " " << v;
    }
  }
}

}  // namespace
}  // namespace markbase::quant
