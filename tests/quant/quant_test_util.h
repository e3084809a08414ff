// Helpers of the quant tests: whole files, views over vectors, and all formats in a list.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "quant/encode.h"
#include "quant/weight_view.h"

namespace markbase::quant {

inline std::vector<std::byte> read_golden(const std::string& name) {
  std::ifstream file(std::string(MARKBASE_GOLDEN_DIR) + "/" + name, std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::byte> bytes(text.size());
  if (!text.empty()) std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

inline std::vector<float> as_floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

template <class T>
std::span<const std::byte> as_byte_span(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

inline constexpr std::array kBlockFormats = {
    Format::kQ4_0,   Format::kQ4_1,   Format::kQ5_0, Format::kQ5_1, Format::kQ8_0,
    Format::kQ2_K,   Format::kQ3_K,   Format::kQ4_K, Format::kQ5_K, Format::kQ6_K,
    Format::kIQ4_NL, Format::kIQ4_XS, Format::kMXFP4};
inline constexpr std::array kAffineBits = {2, 3, 4, 5, 6, 8};
inline constexpr std::array kAffineGroups = {32, 64, 128};

// Equal bits, or both NaN.
inline void expect_same_floats(std::span<const float> got, std::span<const float> expected,
                               const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
    ASSERT_TRUE(got[i] != got[i] && expected[i] != expected[i])
        << what << " element " << i << ": got " << got[i] << ", expected " << expected[i];
  }
}

inline std::vector<float> decode_all(const WeightView& weight) {
  const Result<void> valid = validate(weight, "test");
  EXPECT_TRUE(valid.ok()) << valid.error().message;
  std::vector<float> values(static_cast<size_t>(weight.rows * weight.cols));
  if (!valid.ok()) return values;
  for (int64_t row = 0; row < weight.rows; ++row) {
    const auto at = static_cast<size_t>(row * weight.cols);
    decode_row(weight, row, std::span(values).subspan(at, static_cast<size_t>(weight.cols)));
  }
  return values;
}

// An affine weight that owns its bytes: random codes, scales and biases of either sign.
struct AffineWeight {
  std::vector<std::byte> words, scales, biases;
  WeightView view;
};

inline AffineWeight random_affine(int bits, int group, tensor::DType dtype, int64_t rows,
                                  int64_t cols) {
  const auto seed = static_cast<uint64_t>(bits * 1000 + group);
  const Format format = dtype == tensor::DType::kF32   ? Format::kF32
                        : dtype == tensor::DType::kF16 ? Format::kF16
                                                       : Format::kBF16;
  AffineWeight weight;
  weight.words = random_blocks(Format::kF8E4M3, seed, rows * cols * bits / 8);
  // Those bytes have no high bits in their exponent fields; mix two draws to have every bit.
  const auto more = random_blocks(Format::kQ8_0, seed + 1, rows * cols / 32 * bits / 8 + 64);
  for (size_t i = 0; i < weight.words.size(); ++i) {
    weight.words[i] ^= more[34 * (i / 32) + 2 + i % 32];
  }
  weight.scales = random_blocks(format, seed + 2, rows * cols / group);
  weight.biases = random_blocks(format, seed + 3, rows * cols / group);
  weight.view = {Format::kAffine, rows,  cols,          weight.words, bits,
                 group,           dtype, weight.scales, weight.biases};
  return weight;
}

}  // namespace markbase::quant
