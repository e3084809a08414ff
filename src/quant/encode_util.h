// Small parts that the encoders share. Private to this room.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "base/half.h"

namespace markbase::quant {

// The value of largest magnitude, with its sign; the first of equals.
inline float extreme(std::span<const float> values) {
  float best = 0;
  for (const float v : values) {
    if (std::fabs(v) > std::fabs(best)) best = v;
  }
  return best;
}

// 1 / d, or 0 where d is 0 or so small that the quotient is infinite: all codes are then the zero
// point.
inline float inverse(float d) {
  const float quotient = d == 0 ? 0.0f : 1.0f / d;
  return std::isfinite(quotient) ? quotient : 0.0f;
}

inline int clamp_code(float value, int low, int high) {
  if (!(value > static_cast<float>(low))) return low;
  return value < static_cast<float>(high) ? static_cast<int>(value) : high;
}

// Writes value as half; false where it does not fit.
inline bool store_half(float value, uint8_t* bytes) {
  const uint16_t half = base::float_to_fp16(value);
  bytes[0] = static_cast<uint8_t>(half & 0xff);
  bytes[1] = static_cast<uint8_t>(half >> 8);
  return (half & 0x7c00) != 0x7c00;
}

// One block each; false where a scale does not fit in half precision. In encode_k.cc.
bool encode_q4_k(std::span<const float, 256> values, uint8_t* block);
bool encode_q6_k(std::span<const float, 256> values, uint8_t* block);

}  // namespace markbase::quant
