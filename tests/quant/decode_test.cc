// Decoders against independent programs, against hand-made vectors, and against the parts that the
// packers read.
#include <cctype>
#include <cmath>

#include "base/half.h"
#include "quant_test_util.h"

namespace markbase::quant {
namespace {

std::string lower(std::string_view name) {
  std::string out;
  for (const char c : name) out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

void check_gguf_golden(Format format) {
  const std::string stem = "quant/" + lower(format_name(format));
  const auto blocks = read_golden(stem + ".bin");
  const auto expected = as_floats(read_golden(stem + ".f32"));
  ASSERT_FALSE(expected.empty()) << stem;
  constexpr int64_t kRows = 4;  // several rows, so that the way to a row is tested too
  const WeightView weight{.format = format,
                          .rows = kRows,
                          .cols = static_cast<int64_t>(expected.size()) / kRows,
                          .data = blocks};
  expect_same_floats(decode_all(weight), expected, stem);
}

TEST(GoldenQuant, GgufBlocksDecodeBitForBit) {
  for (const Format format : kBlockFormats) check_gguf_golden(format);
}

TEST(GoldenQuant, ShortFloatsDecodeBitForBit) {
  check_gguf_golden(Format::kF16);
  check_gguf_golden(Format::kBF16);
}

TEST(GoldenQuant, MlxAffineDecodesBitForBit) {
  for (const int bits : kAffineBits) {
    for (const int group : kAffineGroups) {
      const std::string stem =
          "quant/mlx_affine_b" + std::to_string(bits) + "_g" + std::to_string(group);
      const auto words = read_golden(stem + ".words.u32");
      const auto scales = read_golden(stem + ".scales.f32");
      const auto biases = read_golden(stem + ".biases.f32");
      const auto expected = as_floats(read_golden(stem + ".values.f32"));
      const WeightView weight{Format::kAffine,     3,      256,   words, bits, group,
                              tensor::DType::kF32, scales, biases};
      expect_same_floats(decode_all(weight), expected, stem);
    }
  }
}

struct FloatMode {
  Format format;
  int bits;
  int group;
};
constexpr FloatMode kFloatModes[] = {
    {Format::kMlxMXFP4, 4, 32}, {Format::kMlxMXFP8, 8, 32}, {Format::kMlxNVFP4, 4, 16}};

WeightView float_mode_view(const FloatMode& mode, int64_t rows, int64_t cols,
                           std::span<const std::byte> words, std::span<const std::byte> scales) {
  return {mode.format, rows, cols, words, mode.bits, mode.group, tensor::DType::kU8, scales, {}};
}

TEST(GoldenQuant, MlxFloatModesDecodeBitForBit) {
  for (const FloatMode& mode : kFloatModes) {
    const std::string stem = "quant/mlx_" + std::string(format_name(mode.format));
    const auto words = read_golden(stem + ".words.u32");
    const auto scales = read_golden(stem + ".scales.u8");
    const auto expected = as_floats(read_golden(stem + ".values.f32"));
    const WeightView weight = float_mode_view(mode, 4, 512, words, scales);
    const std::vector<float> values = decode_all(weight);
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i) {
      // Integer codes have one zero: the negative one of E2M1 is not kept apart from it.
      if (mode.bits == 4 && expected[i] == 0) {
        ASSERT_EQ(values[i], 0) << stem << " " << i;
      } else {
        expect_same_floats({&values[i], 1}, {&expected[i], 1}, stem);
      }
    }
    // Codes and scales apart give the same values, whatever the packer makes of them.
    const auto layout = grouped_layout(weight);
    ASSERT_EQ(layout.has_value(), mode.bits == 4) << stem;
    if (!layout) continue;
    std::vector<uint8_t> codes(512);
    std::vector<float> group_scales(512 / static_cast<size_t>(mode.group));
    const auto table = codebook_values(layout->codebook);
    for (int64_t row = 0; row < 4; ++row) {
      unpack_codes(weight, row, codes);
      unpack_scales(weight, row, group_scales, {});
      for (size_t k = 0; k < 512; ++k) {
        const float value =
            group_scales[k / static_cast<size_t>(mode.group)] * static_cast<float>(table[codes[k]]);
        ASSERT_EQ(value, expected[static_cast<size_t>(row) * 512 + k]) << stem << " " << k;
      }
    }
  }
}

TEST(Decode, ScaleBytesThatAreNoNumbersGiveNone) {
  for (const FloatMode& mode : kFloatModes) {
    const std::vector<std::byte> words(static_cast<size_t>(32 * mode.bits / 8), std::byte{0x22});
    const auto no_number = std::byte{mode.group == 16 ? uint8_t{0x7f} : uint8_t{0xff}};
    const std::vector<std::byte> scales(static_cast<size_t>(32 / mode.group), no_number);
    std::vector<float> row(32);
    decode_row(float_mode_view(mode, 1, 32, words, scales), 0, row);
    EXPECT_TRUE(std::isnan(row[0])) << format_name(mode.format);
  }
}

TEST(RowSlice, IsTheSameRows) {
  const AffineWeight affine = random_affine(3, 64, tensor::DType::kBF16, 6, 128);
  const auto blocks = random_blocks(Format::kQ4_K, 5, 6 * 2);
  const WeightView k_quants = {Format::kQ4_K, 6, 512, blocks};
  for (const WeightView& whole : {affine.view, k_quants}) {
    const std::vector<float> all = decode_all(whole);
    const WeightView slice = row_slice(whole, 2, 3);
    EXPECT_EQ(slice.rows, 3);
    const auto cols = static_cast<size_t>(whole.cols);
    const std::vector<float> expected(all.begin() + static_cast<std::ptrdiff_t>(2 * cols),
                                      all.begin() + static_cast<std::ptrdiff_t>(5 * cols));
    expect_same_floats(decode_all(slice), expected, "slice");
  }
}

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> bytes;
  for (const int v : values) bytes.push_back(static_cast<std::byte>(v));
  return bytes;
}

// The first codes of an affine row whose words start with `head`, the rest zero.
std::vector<uint8_t> affine_codes(int bits, std::initializer_list<int> head) {
  auto words = bytes_of(head);
  words.resize(static_cast<size_t>(32 * bits / 8));
  const std::vector<float> one(1);
  const WeightView weight{
      Format::kAffine,  1, 32, words, bits, 32, tensor::DType::kF32, as_byte_span(one),
      as_byte_span(one)};
  EXPECT_TRUE(validate(weight, "vector").ok());
  std::vector<uint8_t> codes(32);
  unpack_codes(weight, 0, codes);
  return codes;
}

TEST(AffineCodes, PackedVectors) {
  const std::vector<uint8_t> counting = {0, 1, 2, 3, 4, 5, 6, 7};
  const auto first = [](std::vector<uint8_t> codes, size_t n) {
    for (size_t i = n; i < codes.size(); ++i) EXPECT_EQ(codes[i], 0);
    codes.resize(n);
    return codes;
  };
  EXPECT_EQ(first(affine_codes(3, {0x88, 0xc6, 0xfa}), 8), counting);
  EXPECT_EQ(first(affine_codes(5, {0x20, 0x88, 0x41, 0x8a, 0x39}), 8), counting);
  EXPECT_EQ(first(affine_codes(6, {0x40, 0x20, 0x0c}), 4), (std::vector<uint8_t>{0, 1, 2, 3}));
  EXPECT_EQ(first(affine_codes(4, {0x10, 0x32, 0x54, 0x76}), 8), counting);
  EXPECT_EQ(first(affine_codes(2, {0xe4}), 4), (std::vector<uint8_t>{0, 1, 2, 3}));
  EXPECT_EQ(first(affine_codes(8, {0, 255, 7}), 3), (std::vector<uint8_t>{0, 255, 7}));
}

TEST(AffineCodes, AreTheBitStream) {
  for (const int bits : kAffineBits) {
    const AffineWeight weight = random_affine(bits, 32, tensor::DType::kBF16, 3, 32 * 11);
    std::vector<uint8_t> codes(static_cast<size_t>(weight.view.cols));
    for (int64_t row = 0; row < 3; ++row) {
      unpack_codes(weight.view, row, codes);
      const std::byte* packed = weight.words.data() + row * row_bytes(weight.view);
      for (size_t i = 0; i < codes.size(); ++i) {
        int code = 0;
        for (int b = 0; b < bits; ++b) {
          const size_t at = i * static_cast<size_t>(bits) + static_cast<size_t>(b);
          code |= ((std::to_integer<int>(packed[at / 8]) >> (at % 8)) & 1) << b;
        }
        ASSERT_EQ(codes[i], code) << bits << " bits, row " << row << ", element " << i;
      }
    }
  }
}

TEST(PlainFloats, Decode) {
  const std::vector<float> values = {0.0f, -0.0f, 1.5f, -3e38f, 1e-45f, 42.0f};
  expect_same_floats(
      decode_all({.format = Format::kF32, .rows = 2, .cols = 3, .data = as_byte_span(values)}),
      values, "F32");
  std::vector<uint8_t> codes(256);
  std::vector<float> expected(256);
  for (int i = 0; i < 256; ++i) {
    codes[static_cast<size_t>(i)] = static_cast<uint8_t>(i);
    expected[static_cast<size_t>(i)] = base::e4m3_to_float(static_cast<uint8_t>(i));
  }
  expect_same_floats(
      decode_all({.format = Format::kF8E4M3, .rows = 1, .cols = 256, .data = as_byte_span(codes)}),
      expected, "F8_E4M3");
}

// The value of every element out of codes, scales and offsets, as a packer would compute it.
std::vector<float> values_of_parts(const WeightView& weight, int64_t row) {
  const GroupedLayout layout = *grouped_layout(weight);
  const auto cols = static_cast<size_t>(weight.cols);
  const size_t groups = cols / static_cast<size_t>(layout.group_size);
  std::vector<uint8_t> codes(cols);
  std::vector<float> scales(groups), offsets(layout.has_offset ? groups : 0), values(cols);
  unpack_codes(weight, row, codes);
  unpack_scales(weight, row, scales, offsets);
  for (size_t i = 0; i < cols; ++i) {
    EXPECT_LT(codes[i], 1 << layout.bits);
    const size_t g = i / static_cast<size_t>(layout.group_size);
    const int value = layout.codebook == Codebook::kNone
                          ? codes[i] - layout.zero_point
                          : codebook_values(layout.codebook)[codes[i]];
    values[i] = scales[g] * static_cast<float>(value);
    if (layout.has_offset) values[i] += offsets[g];
  }
  return values;
}

void check_parts(const WeightView& weight, const std::string& what) {
  ASSERT_TRUE(validate(weight, what).ok()) << validate(weight, what).error().message;
  std::vector<float> decoded(static_cast<size_t>(weight.cols));
  for (int64_t row = 0; row < weight.rows; ++row) {
    decode_row(weight, row, decoded);
    expect_same_floats(decoded, values_of_parts(weight, row), what);
  }
}

TEST(Parts, GiveTheDecodedValueOfEveryBlockFormat) {
  for (const Format format : kBlockFormats) {
    const BlockShape shape = block_shape(format);
    for (const int64_t blocks_a_row : {1, 3, 8, 9, 17}) {  // whole and broken pieces of 256
      const auto bytes = random_blocks(format, 7, 5 * blocks_a_row);
      check_parts(
          {.format = format, .rows = 5, .cols = blocks_a_row * shape.elements, .data = bytes},
          std::string(format_name(format)));
    }
  }
}

TEST(Parts, GiveTheDecodedValueOfEveryAffineWeight) {
  using tensor::DType;
  for (const int bits : kAffineBits) {
    for (const int group : kAffineGroups) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const int64_t groups : {1, 2, 5, 9}) {
          check_parts(random_affine(bits, group, dtype, 3, groups * group).view,
                      "affine " + std::to_string(bits) + " bits, group " + std::to_string(group));
        }
      }
    }
  }
}

TEST(Parts, SubScalesGiveTheScales) {
  for (const Format format : kBlockFormats) {
    const auto bytes = random_blocks(format, 11, 3 * 8);
    const WeightView weight{
        .format = format, .rows = 3, .cols = 8 * block_shape(format).elements, .data = bytes};
    const GroupedLayout layout = *grouped_layout(weight);
    if (layout.scale_kind != ScaleKind::kSub) continue;
    const size_t groups = static_cast<size_t>(weight.cols / layout.group_size);
    std::vector<uint16_t> d(8), dmin(8);
    std::vector<uint8_t> sub(groups), submin(groups);
    std::vector<float> scales(groups), offsets(groups), from_sub(groups), from_submin(groups);
    for (int64_t row = 0; row < 3; ++row) {
      unpack_sub_scales(weight, row, {d, dmin, sub, submin});
      unpack_scales(weight, row, scales, offsets);
      for (size_t g = 0; g < groups; ++g) {
        const size_t block = g * 8 / groups;
        const int value = sub_is_signed(format) ? static_cast<int8_t>(sub[g]) : sub[g];
        from_sub[g] = base::fp16_to_float(d[block]) * static_cast<float>(value);
        from_submin[g] = -(base::fp16_to_float(dmin[block]) * static_cast<float>(submin[g]));
      }
      expect_same_floats(scales, from_sub, "scales");
      if (layout.has_offset) expect_same_floats(offsets, from_submin, "offsets");
    }
  }
}

TEST(Parts, LeaveOffsetsAloneWhereThereAreNone) {
  const auto bytes = random_blocks(Format::kQ6_K, 3, 1);
  const WeightView weight{.format = Format::kQ6_K, .rows = 1, .cols = 256, .data = bytes};
  std::vector<float> scales(16), offsets(16, 5.0f);
  unpack_scales(weight, 0, scales, offsets);
  EXPECT_EQ(offsets, std::vector<float>(16, 5.0f));
  unpack_scales(weight, 0, scales, {});
}

TEST(Layout, OfEachFormat) {
  struct Row {
    Format format;
    int bits, group, zero;
    ScaleKind kind;
    bool offset, signed_sub;
  };
  constexpr Row kRows[] = {
      {Format::kQ4_0, 4, 32, 8, ScaleKind::kF16, false, false},
      {Format::kQ4_1, 4, 32, 0, ScaleKind::kF16, true, false},
      {Format::kQ5_0, 5, 32, 16, ScaleKind::kF16, false, false},
      {Format::kQ5_1, 5, 32, 0, ScaleKind::kF16, true, false},
      {Format::kQ8_0, 8, 32, 128, ScaleKind::kF16, false, false},
      {Format::kQ2_K, 2, 16, 0, ScaleKind::kSub, true, false},
      {Format::kQ3_K, 3, 16, 4, ScaleKind::kSub, false, true},
      {Format::kQ4_K, 4, 32, 0, ScaleKind::kSub, true, false},
      {Format::kQ5_K, 5, 32, 0, ScaleKind::kSub, true, false},
      {Format::kQ6_K, 6, 16, 32, ScaleKind::kSub, false, true},
      {Format::kIQ4_NL, 4, 32, 0, ScaleKind::kF16, false, false},
      {Format::kIQ4_XS, 4, 32, 0, ScaleKind::kSub, false, true},
      {Format::kMXFP4, 4, 32, 0, ScaleKind::kE8M0, false, false},
  };
  for (const Row& row : kRows) {
    const GroupedLayout layout = *grouped_layout({.format = row.format});
    EXPECT_EQ(layout.bits, row.bits) << format_name(row.format);
    EXPECT_EQ(layout.group_size, row.group) << format_name(row.format);
    EXPECT_EQ(layout.zero_point, row.zero) << format_name(row.format);
    EXPECT_EQ(layout.scale_kind, row.kind) << format_name(row.format);
    EXPECT_EQ(layout.has_offset, row.offset) << format_name(row.format);
    EXPECT_EQ(sub_is_signed(row.format), row.signed_sub) << format_name(row.format);
  }
  EXPECT_FALSE(grouped_layout({.format = Format::kBF16}).has_value());
  EXPECT_EQ(codebook_values(Codebook::kIq4)[0], -127);
  EXPECT_EQ(codebook_values(Codebook::kE2M1Doubled)[15], -12);
}

}  // namespace
}  // namespace markbase::quant
