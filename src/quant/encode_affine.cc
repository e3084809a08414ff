#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/half.h"
#include "quant/encode.h"
#include "quant/encode_util.h"
#include "quant/mlx_affine.h"

namespace markbase::quant {
namespace {

constexpr int kMaxGroup = 128;

struct ScaleAndBias {
  float scale;
  float bias;
};

ScaleAndBias choose(std::span<const float> group, float max_code) {
  constexpr float kSmallestScale = 1e-7f;
  const auto [low, high] = std::minmax_element(group.begin(), group.end());
  const bool low_is_edge = std::fabs(*low) > std::fabs(*high);
  float scale = std::max((*high - *low) / max_code, kSmallestScale);
  if (!low_is_edge) scale = -scale;
  const float edge = low_is_edge ? *low : *high;
  const float edge_code = std::rint(edge / scale);
  if (edge_code == 0) return {scale, 0.0f};
  return {edge / edge_code, edge};  // the edge itself is met exactly
}

// Stores value as element index; false where it is infinite in that type.
bool store_float(tensor::DType dtype, float value, size_t index, std::byte* out) {
  if (dtype == tensor::DType::kF32) {
    std::memcpy(out + 4 * index, &value, 4);
    return std::isfinite(value);
  }
  const bool half = dtype == tensor::DType::kF16;
  const uint16_t bits = half ? base::float_to_fp16(value) : base::float_to_bf16(value);
  const uint16_t exponent = half ? 0x7c00 : 0x7f80;
  std::memcpy(out + 2 * index, &bits, 2);
  return (bits & exponent) != exponent;
}

}  // namespace

Result<void> encode_affine_row(int bits, int group_size, tensor::DType scale_dtype,
                               std::span<const float> row, std::span<std::byte> words,
                               std::span<std::byte> scales, std::span<std::byte> biases) {
  using tensor::DType;
  MB_CHECK(bits >= 2 && bits <= 8 && bits != 7 && group_size >= 32 && group_size <= kMaxGroup);
  MB_CHECK(scale_dtype == DType::kF32 || scale_dtype == DType::kF16 || scale_dtype == DType::kBF16);
  const auto size = static_cast<size_t>(group_size);
  const size_t groups = row.size() / size;
  MB_CHECK(groups * size == row.size() &&
           words.size() == row.size() / 8 * static_cast<size_t>(bits));
  MB_CHECK(scales.size() == groups * tensor::dtype_bytes(scale_dtype));
  MB_CHECK(biases.size() == scales.size());
  const int max_code = (1 << bits) - 1;
  auto* packed = reinterpret_cast<uint8_t*>(words.data());
  std::array<uint8_t, kMaxGroup> codes;
  for (size_t g = 0; g < groups; ++g) {
    const auto group = row.subspan(g * size, size);
    if (!std::all_of(group.begin(), group.end(), [](float v) { return std::isfinite(v); })) {
      return base::bad_input("columns from {}: expected finite values", g * size);
    }
    const ScaleAndBias chosen = choose(group, static_cast<float>(max_code));
    for (size_t i = 0; i < size; ++i) {
      const float code = std::rint((group[i] - chosen.bias) / chosen.scale);
      codes[i] = static_cast<uint8_t>(clamp_code(code, 0, max_code));
    }
    pack_bit_stream(bits, std::span(codes).first(size),
                    packed + g * size / 8 * static_cast<size_t>(bits));
    if (!store_float(scale_dtype, chosen.scale, g, scales.data()) ||
        !store_float(scale_dtype, chosen.bias, g, biases.data())) {
      return base::bad_input("columns from {}: values too large for scales of type {}", g * size,
                             tensor::dtype_name(scale_dtype));
    }
  }
  return {};
}

}  // namespace markbase::quant
