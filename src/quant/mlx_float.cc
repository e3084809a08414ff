#include "quant/mlx_float.h"

#include <bit>
#include <limits>

#include "base/half.h"

namespace markbase::quant {
namespace {

constexpr int kNoNumber = 255;

// 2^(e - 128): the values 0 and 1 are float32 subnormals.
float half_power(uint32_t e) {
  if (e == kNoNumber) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

}  // namespace

std::optional<MlxFloatMode> mlx_float_mode(Format format) {
  switch (format) {
    case Format::kMlxMXFP4:
      return MlxFloatMode{4, 32};
    case Format::kMlxNVFP4:
      return MlxFloatMode{4, 16};
    case Format::kMlxMXFP8:
      return MlxFloatMode{8, 32};
    default:
      return std::nullopt;
  }
}

void load_half_scales(Format format, const uint8_t* bytes, std::span<float> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] =
        format == Format::kMlxNVFP4 ? 0.5F * base::e4m3_to_float(bytes[i]) : half_power(bytes[i]);
  }
}

void decode_mxfp8(const uint8_t* codes, const uint8_t* scales, std::span<float> out) {
  constexpr size_t kGroup = 32;
  for (size_t i = 0; i < out.size(); ++i) {
    const float scale = 2.0F * half_power(scales[i / kGroup]);
    out[i] = base::e4m3_to_float(codes[i]) * scale;
  }
}

}  // namespace markbase::quant
