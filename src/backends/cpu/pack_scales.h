// Single scales and floats out of the packed layout of kernels/linear_kernels.h, exact in float32.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "backends/cpu/kernels/linear_kernels.h"
#include "base/half.h"

namespace markbase::backends::cpu {

inline uint16_t load_u16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, 2);
  return value;
}
inline float load_f32(const uint8_t* bytes) {
  float value;
  std::memcpy(&value, bytes, 4);
  return value;
}

// 2^(code - 128), as quant::ScaleKind::kE8M0 means it, and back.
inline float e8m0_scale(uint32_t code) {
  return std::bit_cast<float>(code < 2 ? 0x00200000u << code : (code - 1) << 23);
}
inline uint8_t e8m0_code(float scale) {
  const uint32_t bits = std::bit_cast<uint32_t>(scale);
  return static_cast<uint8_t>(bits < 0x00800000u ? bits >> 22 : (bits >> 23) + 1);
}

// The E4M3 code whose value is twice `half`: one of those that e4m3_to_float() gives, halved.
inline uint8_t doubled_e4m3_code(float half) {
  const uint32_t bits = std::bit_cast<uint32_t>(half);
  const uint32_t sign = bits >> 24 & 0x80;
  const float size = std::bit_cast<float>(bits & 0x7fffffffu);
  constexpr float kSmallestNormal = 0x1p-7f;  // half of 2^-6
  if (size < kSmallestNormal)
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(size * 1024));
  const uint32_t magnitude = std::bit_cast<uint32_t>(size);
  // Bias 127 and the halving to bias 7; the top three bits of the mantissa.
  return static_cast<uint8_t>(sign | ((magnitude >> 23) - 119) << 3 | (magnitude >> 20 & 7));
}

// Scale of group g, row r of a block. `scales` points behind the codes of a segment of `length`.
inline float packed_scale(const GroupedFormat& f, const uint8_t* scales, int64_t length, int64_t g,
                          int64_t r) {
  const int64_t at = g * kBlockRows + r;
  const int64_t entries = length / f.group_size * kBlockRows;
  switch (f.scales) {
    case ScaleCode::kF16:
      return base::fp16_to_float(load_u16(scales + 2 * at));
    case ScaleCode::kBF16:
      return base::bf16_to_float(load_u16(scales + 2 * at));
    case ScaleCode::kF32:
      return load_f32(scales + 4 * at);
    case ScaleCode::kE8M0:
      return e8m0_scale(scales[at]);
    case ScaleCode::kE4M3:
      return 0.5f * base::e4m3_to_float(scales[at]);
    case ScaleCode::kSubSigned:
    case ScaleCode::kSubUnsigned: {
      const uint8_t* d = scales + entries * (f.has_offset ? 2 : 1);
      const int sub =
          f.scales == ScaleCode::kSubSigned ? static_cast<int8_t>(scales[at]) : scales[at];
      return base::fp16_to_float(load_u16(d + 2 * r)) * static_cast<float>(sub);
    }
  }
  return 0.0f;
}

// Only where the format has offsets.
inline float packed_offset(const GroupedFormat& f, const uint8_t* scales, int64_t length, int64_t g,
                           int64_t r) {
  const int64_t at = g * kBlockRows + r;
  const int64_t entries = length / f.group_size * kBlockRows;
  switch (f.scales) {
    case ScaleCode::kF16:
    case ScaleCode::kBF16:
      return packed_scale(f, scales + 2 * entries, length, g, r);
    case ScaleCode::kF32:
      return packed_scale(f, scales + 4 * entries, length, g, r);
    default:
      break;
  }
  const uint8_t* dmin = scales + 2 * entries + 2 * kBlockRows;
  return -(base::fp16_to_float(load_u16(dmin + 2 * r)) * static_cast<float>(scales[entries + at]));
}

// Element i of a row block of plain floats.
inline float packed_float(FloatCode code, const uint8_t* block, int64_t i) {
  switch (code) {
    case FloatCode::kF32:
      return load_f32(block + 4 * i);
    case FloatCode::kF16:
      return base::fp16_to_float(load_u16(block + 2 * i));
    case FloatCode::kBF16:
      return base::bf16_to_float(load_u16(block + 2 * i));
    case FloatCode::kE4M3:
      return base::e4m3_to_float(block[i]);
    case FloatCode::kMxfp8: {
      const int64_t k = i / kBlockRows;
      const int64_t r = i % kBlockRows;
      const uint8_t* unit = block + float_bytes(code, k / kUnit * kUnit);
      const float half = e8m0_scale(unit[kUnit * kBlockRows + r]);
      return base::e4m3_to_float(unit[k % kUnit * kBlockRows + r]) * (half + half);
    }
  }
  return 0.0f;
}

}  // namespace markbase::backends::cpu
