// A weight as its file holds it, and what its bits mean.
//
// Every integer format is groups of 16, 32, 64 or 128 codes along a row; a value is
//   w = scale * (code - zero_point) + offset        (code unsigned, zero_point one per format)
// with scale and offset exact in float32. IQ4_NL, IQ4_XS, MXFP4 and NVFP4 codes index a table of
// int8 values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "markbase/result.h"
#include "tensor/dtype.h"

namespace markbase::quant {

// clang-format off
enum class Format : uint8_t {
  kF32, kF16, kBF16, kF8E4M3,                      // plain floats
  kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0,               // GGUF blocks of 32
  kQ2_K, kQ3_K, kQ4_K, kQ5_K, kQ6_K,               // GGUF super-blocks of 256
  kIQ4_NL, kIQ4_XS, kMXFP4,                        // GGUF table formats
  kAffine,                                         // MLX: packed U32 words with scales and biases apart
  kMlxMXFP4, kMlxMXFP8, kMlxNVFP4,                 // MLX: short floats in U32 words, scale bytes apart
};
// clang-format on

// "Q4_K", "BF16", "affine", "mxfp4" (MLX's; "MXFP4" is GGUF's), ...
std::string_view format_name(Format format);

// A two-dimensional weight [rows, cols], row-major, looking into mapped bytes it does not own.
struct WeightView {
  Format format = Format::kF32;
  int64_t rows = 0;                      // outputs
  int64_t cols = 0;                      // inputs (K)
  std::span<const std::byte> data = {};  // blocks, floats, or packed words (kAffine)
  // MLX formats only:
  int bits = 0;                                     // 2, 3, 4, 5, 6 or 8
  int group_size = 0;                               // 32, 64 or 128; 16 for nvfp4
  tensor::DType scale_dtype = tensor::DType::kF32;  // F32, F16 or BF16, of scales and biases; or U8
  std::span<const std::byte> scales = {};           // [rows, cols / group_size]
  std::span<const std::byte> biases = {};           // [rows, cols / group_size], kAffine alone
};

// The bits and group of MLX's float modes and of affine weights stand apart from their words.
bool is_mlx(Format format);

// Elements and bytes of one block ({1, 2} for BF16). MLX formats have none and MB_CHECK.
struct BlockShape {
  int64_t elements;
  int64_t bytes;
};
BlockShape block_shape(Format format);

// Checks that shape, bits, group and all byte counts agree (overflow-safe). `name` goes into the
// message.
Result<void> validate(const WeightView& weight, std::string_view name);

// Bytes of one row in weight.data.
int64_t row_bytes(const WeightView& weight);

// Rows [begin, begin + count) of a valid weight, looking into the same bytes: one matrix out of a
// stack of equal ones.
WeightView row_slice(const WeightView& weight, int64_t begin, int64_t count);

// The float32 values of one row, out[cols], each the format's own formula with one rounding per
// written operation (GGUF K formats: (d*sc)*q - dmin*m; affine: scale*q + bias).
void decode_row(const WeightView& weight, int64_t row, std::span<float> out);

// How the scales of a format stand in its file, for packers that keep them short.
enum class ScaleKind : uint8_t {
  kF16,   // one half per group (and one for the offset)
  kBF16,  // one bfloat16 per group (and offset)
  kF32,   // one float per group (and offset)
  kE8M0,  // one power-of-two byte per group, scale = 2^(code - 128): table values are doubled E2M1
  kE4M3,  // one E4M3 byte per group, scale = half its value: table values are doubled E2M1
  kSub,   // scale = d * sub, d a half per 256 elements, sub int8 (Q3_K, Q6_K, IQ4_XS: sub already
          // centred) or uint8 (Q2_K, Q4_K, Q5_K, where offset = -(dmin * submin))
};

// Tables for 4-bit codes that stand for an int8 value.
enum class Codebook : uint8_t { kNone, kIq4, kE2M1Doubled };
// value of each of the 16 codes.
std::span<const int8_t, 16> codebook_values(Codebook codebook);

struct GroupedLayout {
  int bits;        // 2, 3, 4, 5, 6 or 8, of the stored unsigned code
  int group_size;  // 16, 32, 64 or 128
  int zero_point;  // subtracted from the code (0 for tables)
  Codebook codebook;
  ScaleKind scale_kind;
  bool has_offset;
};

// nullopt for the plain float formats and for mxfp8, whose codes are floats.
std::optional<GroupedLayout> grouped_layout(const WeightView& weight);

// Unsigned codes of one row in element order, codes[cols] (before zero point or table).
void unpack_codes(const WeightView& weight, int64_t row, std::span<uint8_t> codes);

// Exact float32 scale and offset of each group of one row: [cols / group_size] each. `offsets` is
// left alone where the layout has none. decode_row(...) == scale * value(code) (+ offset) with one
// rounding a step.
void unpack_scales(const WeightView& weight, int64_t row, std::span<float> scales,
                   std::span<float> offsets);

// kSub only: the parts. d and dmin: halves, one per 256 elements; sub and submin: one byte per
// group (sub as int8 bit pattern for Q3_K, Q6_K, IQ4_XS). dmin/submin are left alone where
// has_offset is false.
struct SubScales {
  std::span<uint16_t> d;
  std::span<uint16_t> dmin;
  std::span<uint8_t> sub;
  std::span<uint8_t> submin;
};
void unpack_sub_scales(const WeightView& weight, int64_t row, const SubScales& out);
// True where sub is signed (Q3_K, Q6_K, IQ4_XS).
bool sub_is_signed(Format format);

}  // namespace markbase::quant
