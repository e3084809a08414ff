// Encoders of the super-block types that writers need.
#include <algorithm>
#include <array>
#include <cmath>

#include "quant/encode_util.h"

namespace markbase::quant {
namespace {

constexpr int kSuper = 256;

// value as it will be read back from half precision.
float as_half(float value) { return base::fp16_to_float(base::float_to_fp16(value)); }

// rint(value / unit) within [low, high].
int units(float value, float unit, int low, int high) {
  return clamp_code(std::rint(value * inverse(unit)), low, high);
}

// Four (scale, minimum) pairs in their own bytes, the other four in nibbles and the spare high
// bits.
void store_six_bit_pairs(const uint8_t* sub, const uint8_t* submin, uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    out[j] = static_cast<uint8_t>(sub[j] | ((sub[j + 4] >> 4) << 6));
    out[j + 4] = static_cast<uint8_t>(submin[j] | ((submin[j + 4] >> 4) << 6));
    out[j + 8] = static_cast<uint8_t>((sub[j + 4] & 15) | ((submin[j + 4] & 15) << 4));
  }
}

}  // namespace

bool encode_q4_k(std::span<const float, 256> values, uint8_t* block) {
  constexpr int kGroup = 32, kGroups = kSuper / kGroup, kMaxCode = 15, kMaxSub = 63;
  std::array<float, kGroups> scale, minimum;
  for (int g = 0; g < kGroups; ++g) {
    const auto group = values.subspan(g * kGroup, kGroup);
    const auto [low, high] = std::minmax_element(group.begin(), group.end());
    minimum[g] = std::max(0.0f, -*low);
    scale[g] = std::max(0.0f, (*high + minimum[g]) / kMaxCode);
  }
  const float d = *std::max_element(scale.begin(), scale.end()) / kMaxSub;
  const float dmin = *std::max_element(minimum.begin(), minimum.end()) / kMaxSub;
  std::array<uint8_t, kGroups> sub, submin;
  std::array<uint8_t, kSuper> codes;
  for (int g = 0; g < kGroups; ++g) {
    sub[g] = static_cast<uint8_t>(units(scale[g], as_half(d), 0, kMaxSub));
    submin[g] = static_cast<uint8_t>(units(minimum[g], as_half(dmin), 0, kMaxSub));
    const float step = as_half(d) * static_cast<float>(sub[g]);
    const float base = as_half(dmin) * static_cast<float>(submin[g]);
    for (int i = g * kGroup; i < (g + 1) * kGroup; ++i) {
      codes[i] = static_cast<uint8_t>(units(values[i] + base, step, 0, kMaxCode));
    }
  }
  store_six_bit_pairs(sub.data(), submin.data(), block + 4);
  for (int c = 0; c < 4; ++c) {
    for (int i = 0; i < 32; ++i) {
      block[16 + 32 * c + i] =
          static_cast<uint8_t>(codes[64 * c + i] | (codes[64 * c + 32 + i] << 4));
    }
  }
  const bool d_fits = store_half(d, block);
  return store_half(dmin, block + 2) && d_fits;
}

bool encode_q6_k(std::span<const float, 256> values, uint8_t* block) {
  constexpr int kGroup = 16, kGroups = kSuper / kGroup, kZero = 32;
  std::array<float, kGroups> scale;
  for (int g = 0; g < kGroups; ++g) scale[g] = extreme(values.subspan(g * kGroup, kGroup)) / -kZero;
  const float d = extreme(scale) / -128;
  std::array<uint8_t, kSuper> codes;
  for (int g = 0; g < kGroups; ++g) {
    const int sub = units(scale[g], as_half(d), -128, 127);
    block[192 + g] = static_cast<uint8_t>(static_cast<int8_t>(sub));
    const float step = as_half(d) * static_cast<float>(sub);
    for (int i = g * kGroup; i < (g + 1) * kGroup; ++i) {
      codes[i] = static_cast<uint8_t>(units(values[i], step, -kZero, kZero - 1) + kZero);
    }
  }
  for (int half = 0; half < 2; ++half) {
    const uint8_t* from = codes.data() + 128 * half;
    for (int i = 0; i < 64; ++i) {
      block[64 * half + i] = static_cast<uint8_t>((from[i] & 15) | ((from[i + 64] & 15) << 4));
    }
    for (int i = 0; i < 32; ++i) {
      int high = 0;
      for (int quarter = 0; quarter < 4; ++quarter) {
        high |= (from[32 * quarter + i] >> 4) << (2 * quarter);
      }
      block[128 + 32 * half + i] = static_cast<uint8_t>(high);
    }
  }
  return store_half(d, block + 208);
}

}  // namespace markbase::quant
