#include "quant/weight_view.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "quant/block_codec.h"
#include "quant/mlx_affine.h"
#include "quant/mlx_float.h"

namespace markbase::quant {
namespace {

// Rows are taken apart in pieces of this many elements, a multiple of every block and group.
constexpr int64_t kPiece = 256;
constexpr int64_t kSmallestGroup = 16;

constexpr std::array<int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};
// 2 * {0, 0.5, 1, 1.5, 2, 3, 4, 6}, then the same with the sign bit.
constexpr std::array<int8_t, 16> kE2M1DoubledValues = {0, 1,  2,  3,  4,  6,  8,  12,
                                                       0, -1, -2, -3, -4, -6, -8, -12};

const BlockCodec* find_codec(Format format) {
  if (const BlockCodec* codec = k_block_codec(format)) return codec;
  if (const BlockCodec* codec = simple_block_codec(format)) return codec;
  return table_block_codec(format);
}

const BlockCodec& block_codec(Format format) {
  const BlockCodec* codec = find_codec(format);
  MB_CHECK_MSG(codec != nullptr, "the format has no blocks");
  return *codec;
}

tensor::DType float_dtype(Format format) {
  switch (format) {
    case Format::kF32:
      return tensor::DType::kF32;
    case Format::kF16:
      return tensor::DType::kF16;
    case Format::kBF16:
      return tensor::DType::kBF16;
    case Format::kF8E4M3:
      return tensor::DType::kF8E4M3;
    default:
      break;
  }
  MB_CHECK_MSG(false, "not a plain float format");
  return tensor::DType::kF32;
}

const uint8_t* row_data(const WeightView& weight, int64_t row) {
  MB_DCHECK(row >= 0 && row < weight.rows);
  return reinterpret_cast<const uint8_t*>(weight.data.data()) + row * row_bytes(weight);
}

int64_t data_bytes(const WeightView& weight, int64_t elements) {
  if (weight.format == Format::kAffine) return elements / 8 * weight.bits;
  if (const auto mode = mlx_float_mode(weight.format)) return elements / 8 * mode->bits;
  const BlockShape shape = block_shape(weight.format);
  return elements / shape.elements * shape.bytes;
}

// Codes of the count elements of a row that start at begin, a multiple of kPiece.
void piece_codes(const WeightView& weight, const BlockCodec* codec, const uint8_t* packed,
                 int64_t count, uint8_t* codes) {
  if (codec != nullptr) return codec->codes(packed, count / codec->shape.elements, codes);
  const auto mode = mlx_float_mode(weight.format);
  unpack_bit_stream(mode ? mode->bits : weight.bits, packed, {codes, static_cast<size_t>(count)});
}

// Scales that stand apart from the codes, and affine offsets.
void separate_scales(const WeightView& weight, int64_t first_group, std::span<float> scales,
                     std::span<float> offsets) {
  const auto* scale_bytes = reinterpret_cast<const uint8_t*>(weight.scales.data());
  if (weight.format != Format::kAffine) {
    return load_half_scales(weight.format, scale_bytes + first_group, scales);
  }
  const int64_t at = first_group * static_cast<int64_t>(tensor::dtype_bytes(weight.scale_dtype));
  const auto* bias_bytes = reinterpret_cast<const uint8_t*>(weight.biases.data());
  load_floats(weight.scale_dtype, scale_bytes + at, scales);
  load_floats(weight.scale_dtype, bias_bytes + at, offsets);
}

// out = scale * (code - zero_point) (+ offset), or scale * table[code], group after group. Two
// floats are multiplied and then added: the build forbids contraction into one rounding.
void apply_groups(const GroupedLayout& layout, const uint8_t* codes, const float* scales,
                  const float* offsets, int64_t count, float* out) {
  const int64_t size = layout.group_size;
  for (int64_t g = 0; g < count / size; ++g, codes += size, out += size) {
    const float scale = scales[g];
    if (layout.codebook != Codebook::kNone) {
      const auto values = codebook_values(layout.codebook);
      for (int64_t i = 0; i < size; ++i) out[i] = scale * static_cast<float>(values[codes[i] & 15]);
    } else if (layout.has_offset) {
      const float offset = offsets[g];
      for (int64_t i = 0; i < size; ++i) out[i] = scale * static_cast<float>(codes[i]) + offset;
    } else {
      const int zero = layout.zero_point;
      for (int64_t i = 0; i < size; ++i) out[i] = scale * static_cast<float>(codes[i] - zero);
    }
  }
}

void decode_grouped_row(const WeightView& weight, const GroupedLayout& layout, int64_t row,
                        std::span<float> out) {
  const BlockCodec* codec = find_codec(weight.format);
  const uint8_t* packed = row_data(weight, row);
  const int64_t row_group = row * (weight.cols / layout.group_size);
  std::array<uint8_t, kPiece> codes;
  std::array<float, kPiece / kSmallestGroup> scales;
  std::array<float, kPiece / kSmallestGroup> offsets;
  for (int64_t begin = 0; begin < weight.cols; begin += kPiece) {
    const int64_t count = std::min(kPiece, weight.cols - begin);
    const uint8_t* piece = packed + data_bytes(weight, begin);
    piece_codes(weight, codec, piece, count, codes.data());
    if (codec != nullptr) {
      codec->scales(piece, count / codec->shape.elements, scales.data(), offsets.data());
    } else {
      const size_t groups = static_cast<size_t>(count / layout.group_size);
      separate_scales(weight, row_group + begin / layout.group_size,
                      std::span(scales).first(groups), std::span(offsets).first(groups));
    }
    apply_groups(layout, codes.data(), scales.data(), offsets.data(), count, out.data() + begin);
  }
}

}  // namespace

std::string_view format_name(Format format) {
  switch (format) {
    case Format::kF32:
      return "F32";
    case Format::kF16:
      return "F16";
    case Format::kBF16:
      return "BF16";
    case Format::kF8E4M3:
      return "F8_E4M3";
    case Format::kQ4_0:
      return "Q4_0";
    case Format::kQ4_1:
      return "Q4_1";
    case Format::kQ5_0:
      return "Q5_0";
    case Format::kQ5_1:
      return "Q5_1";
    case Format::kQ8_0:
      return "Q8_0";
    case Format::kQ2_K:
      return "Q2_K";
    case Format::kQ3_K:
      return "Q3_K";
    case Format::kQ4_K:
      return "Q4_K";
    case Format::kQ5_K:
      return "Q5_K";
    case Format::kQ6_K:
      return "Q6_K";
    case Format::kIQ4_NL:
      return "IQ4_NL";
    case Format::kIQ4_XS:
      return "IQ4_XS";
    case Format::kMXFP4:
      return "MXFP4";
    case Format::kAffine:
      return "affine";
    case Format::kMlxMXFP4:
      return "mxfp4";
    case Format::kMlxMXFP8:
      return "mxfp8";
    case Format::kMlxNVFP4:
      return "nvfp4";
  }
  return "?";
}

bool is_mlx(Format format) {
  return format == Format::kAffine || mlx_float_mode(format).has_value();
}

BlockShape block_shape(Format format) {
  if (const BlockCodec* codec = find_codec(format)) return codec->shape;
  return {1, static_cast<int64_t>(tensor::dtype_bytes(float_dtype(format)))};
}

int64_t row_bytes(const WeightView& weight) { return data_bytes(weight, weight.cols); }

WeightView row_slice(const WeightView& weight, int64_t begin, int64_t count) {
  MB_CHECK(begin >= 0 && count >= 0 && begin <= weight.rows && count <= weight.rows - begin);
  const auto rows_of = [&](std::span<const std::byte> all) {
    const size_t row = all.size() / static_cast<size_t>(weight.rows);
    return all.subspan(static_cast<size_t>(begin) * row, static_cast<size_t>(count) * row);
  };
  WeightView slice = weight;
  slice.rows = count;
  slice.data = rows_of(weight.data);
  slice.scales = rows_of(weight.scales);
  slice.biases = rows_of(weight.biases);
  return slice;
}

void decode_row(const WeightView& weight, int64_t row, std::span<float> out) {
  MB_CHECK(row >= 0 && row < weight.rows && out.size() == static_cast<size_t>(weight.cols));
  if (const auto layout = grouped_layout(weight)) {
    return decode_grouped_row(weight, *layout, row, out);
  }
  if (weight.format == Format::kMlxMXFP8) {
    const int64_t groups = weight.cols / mlx_float_mode(weight.format)->group_size;
    const auto* scales = reinterpret_cast<const uint8_t*>(weight.scales.data()) + row * groups;
    return decode_mxfp8(row_data(weight, row), scales, out);
  }
  load_floats(float_dtype(weight.format), row_data(weight, row), out);
}

std::span<const int8_t, 16> codebook_values(Codebook codebook) {
  MB_CHECK_MSG(codebook != Codebook::kNone, "no table");
  return codebook == Codebook::kIq4 ? kIq4Values : kE2M1DoubledValues;
}

std::optional<GroupedLayout> grouped_layout(const WeightView& weight) {
  if (const BlockCodec* codec = find_codec(weight.format)) return codec->layout;
  constexpr auto kE2M1 = Codebook::kE2M1Doubled;
  if (weight.format == Format::kMlxMXFP4)
    return GroupedLayout{4, 32, 0, kE2M1, ScaleKind::kE8M0, false};
  if (weight.format == Format::kMlxNVFP4)
    return GroupedLayout{4, 16, 0, kE2M1, ScaleKind::kE4M3, false};
  if (weight.format != Format::kAffine) return std::nullopt;
  ScaleKind kind = ScaleKind::kF32;
  if (weight.scale_dtype == tensor::DType::kF16) kind = ScaleKind::kF16;
  if (weight.scale_dtype == tensor::DType::kBF16) kind = ScaleKind::kBF16;
  return GroupedLayout{weight.bits, weight.group_size, 0, Codebook::kNone, kind, true};
}

void unpack_codes(const WeightView& weight, int64_t row, std::span<uint8_t> codes) {
  MB_CHECK(row >= 0 && row < weight.rows && codes.size() == static_cast<size_t>(weight.cols));
  MB_CHECK_MSG(grouped_layout(weight).has_value(), "plain floats have no codes");
  piece_codes(weight, find_codec(weight.format), row_data(weight, row), weight.cols, codes.data());
}

void unpack_scales(const WeightView& weight, int64_t row, std::span<float> scales,
                   std::span<float> offsets) {
  const auto layout = grouped_layout(weight);
  MB_CHECK_MSG(layout.has_value(), "plain floats have no scales");
  const int64_t groups = weight.cols / layout->group_size;
  MB_CHECK(row >= 0 && row < weight.rows && scales.size() == static_cast<size_t>(groups));
  MB_CHECK(!layout->has_offset || offsets.size() == scales.size());
  if (is_mlx(weight.format)) return separate_scales(weight, row * groups, scales, offsets);
  const BlockCodec& codec = block_codec(weight.format);
  codec.scales(row_data(weight, row), weight.cols / codec.shape.elements, scales.data(),
               offsets.data());
}

void unpack_sub_scales(const WeightView& weight, int64_t row, const SubScales& out) {
  const BlockCodec& codec = block_codec(weight.format);
  MB_CHECK_MSG(codec.sub_scales != nullptr, "the format has no sub-scales");
  const auto blocks = static_cast<size_t>(weight.cols / codec.shape.elements);
  const auto groups = static_cast<size_t>(weight.cols / codec.layout.group_size);
  MB_CHECK(row >= 0 && row < weight.rows && out.d.size() == blocks && out.sub.size() == groups);
  if (codec.layout.has_offset) {
    MB_CHECK(out.dmin.size() == blocks && out.submin.size() == groups);
  }
  codec.sub_scales(row_data(weight, row), static_cast<int64_t>(blocks),
                   {out.d.data(), out.dmin.data(), out.sub.data(), out.submin.data()});
}

bool sub_is_signed(Format format) {
  return format == Format::kQ3_K || format == Format::kQ6_K || format == Format::kIQ4_XS;
}

}  // namespace markbase::quant
