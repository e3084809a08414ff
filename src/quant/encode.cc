#include "quant/encode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/half.h"
#include "quant/encode_util.h"

namespace markbase::quant {
namespace {

constexpr int kBlock = 32;
using Codes = std::array<uint8_t, kBlock>;

// Low nibbles of values 0..15 and, above them, of 16..31.
void store_nibbles(const Codes& codes, uint8_t* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<uint8_t>((codes[i] & 15) | ((codes[i + 16] & 15) << 4));
  }
}

void store_fifth_bits(const Codes& codes, uint8_t* out) {
  for (int byte = 0; byte < 4; ++byte) {
    int bits = 0;
    for (int bit = 0; bit < 8; ++bit) bits |= (codes[8 * byte + bit] >> 4) << bit;
    out[byte] = static_cast<uint8_t>(bits);
  }
}

// Q4_0 (zero point 8) and Q5_0 (16): symmetric, the extreme value gets code 0.
bool encode_symmetric(const float* values, int zero_point, uint8_t* block) {
  const float d = extreme({values, kBlock}) / static_cast<float>(-zero_point);
  const float id = inverse(d);
  Codes codes;
  for (int i = 0; i < kBlock; ++i) {
    const float shifted = values[i] * id + (static_cast<float>(zero_point) + 0.5f);
    codes[i] = static_cast<uint8_t>(clamp_code(shifted, 0, 2 * zero_point - 1));
  }
  const bool five_bits = zero_point == 16;
  if (five_bits) store_fifth_bits(codes, block + 2);
  store_nibbles(codes, block + (five_bits ? 6 : 2));
  return store_half(d, block);
}

// Q4_1 (max_code 15) and Q5_1 (31): from the minimum upwards.
bool encode_with_minimum(const float* values, int max_code, uint8_t* block) {
  const auto [low, high] = std::minmax_element(values, values + kBlock);
  const float d = (*high - *low) / static_cast<float>(max_code);
  const float id = inverse(d);
  Codes codes;
  for (int i = 0; i < kBlock; ++i) {
    const float shifted = (values[i] - *low) * id + 0.5f;
    codes[i] = static_cast<uint8_t>(clamp_code(shifted, 0, max_code));
  }
  const bool five_bits = max_code == 31;
  if (five_bits) store_fifth_bits(codes, block + 4);
  store_nibbles(codes, block + (five_bits ? 8 : 4));
  const bool d_fits = store_half(d, block);
  return store_half(*low, block + 2) && d_fits;
}

bool encode_q8_0(const float* values, uint8_t* block) {
  const float d = std::fabs(extreme({values, kBlock})) / 127.0f;
  const float id = inverse(d);
  for (int i = 0; i < kBlock; ++i) {
    const int code = clamp_code(std::round(values[i] * id), -127, 127);
    block[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(code));
  }
  return store_half(d, block);
}

bool encode_bf16(float value, uint8_t* out) {
  const uint16_t bits = base::float_to_bf16(value);
  out[0] = static_cast<uint8_t>(bits & 0xff);
  out[1] = static_cast<uint8_t>(bits >> 8);
  return (bits & 0x7f80) != 0x7f80;
}

bool encode_f32(float value, uint8_t* out) {
  std::memcpy(out, &value, sizeof(value));
  return true;
}

// One block of the format; false where a stored float is too large for its type.
bool encode_block(Format format, const float* values, uint8_t* block) {
  switch (format) {
    case Format::kF32:
      return encode_f32(*values, block);
    case Format::kF16:
      return store_half(*values, block);
    case Format::kBF16:
      return encode_bf16(*values, block);
    case Format::kQ4_0:
      return encode_symmetric(values, 8, block);
    case Format::kQ4_1:
      return encode_with_minimum(values, 15, block);
    case Format::kQ5_0:
      return encode_symmetric(values, 16, block);
    case Format::kQ5_1:
      return encode_with_minimum(values, 31, block);
    case Format::kQ8_0:
      return encode_q8_0(values, block);
    case Format::kQ4_K:
      return encode_q4_k(std::span<const float, 256>(values, 256), block);
    case Format::kQ6_K:
      return encode_q6_k(std::span<const float, 256>(values, 256), block);
    default:
      break;
  }
  MB_CHECK_MSG(false, "no encoder for this format");
  return false;
}

}  // namespace

Result<void> encode_row(Format format, std::span<const float> row, std::span<std::byte> out) {
  const BlockShape shape = block_shape(format);
  const int64_t count = static_cast<int64_t>(row.size()) / shape.elements;
  MB_CHECK(count * shape.elements == static_cast<int64_t>(row.size()));
  MB_CHECK(count * shape.bytes == static_cast<int64_t>(out.size()));
  for (size_t i = 0; i < row.size(); ++i) {
    if (!std::isfinite(row[i])) {
      return base::bad_input("column {}: expected a finite value, got {}", i, row[i]);
    }
  }
  auto* bytes = reinterpret_cast<uint8_t*>(out.data());
  for (int64_t i = 0; i < count; ++i) {
    if (!encode_block(format, row.data() + i * shape.elements, bytes + i * shape.bytes)) {
      return base::bad_input("columns from {}: values too large for {}", i * shape.elements,
                             format_name(format));
    }
  }
  return {};
}

}  // namespace markbase::quant
