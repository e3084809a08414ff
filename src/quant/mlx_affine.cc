#include "quant/mlx_affine.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace markbase::quant {
namespace {

constexpr uint64_t low_bits(int count) { return count >= 64 ? ~0ull : (1ull << count) - 1; }

// Eight codes of kBits each, in the low 8 * kBits bits, to eight bytes of one word: the halves move
// apart to lanes of 32 bits, the quarters to 16, the eighths to 8.
template <int kBits>
uint64_t spread(uint64_t word) {
  if constexpr (kBits == 8) return word;
  constexpr uint64_t kHalf = low_bits(4 * kBits);
  constexpr uint64_t kQuarters = low_bits(2 * kBits) * 0x0000000100000001ull;
  constexpr uint64_t kEighths = low_bits(kBits) * 0x0001000100010001ull;
  word = (word & kHalf) | ((word >> (4 * kBits)) << 32);
  word = (word & kQuarters) | (((word >> (2 * kBits)) & kQuarters) << 16);
  return (word & kEighths) | (((word >> kBits) & kEighths) << 8);
}

template <int kBits>
void unpack(const uint8_t* packed, std::span<uint8_t> codes) {
  for (size_t i = 0; i < codes.size(); i += 8, packed += kBits) {
    uint64_t word = 0;
    std::memcpy(&word, packed, kBits);  // eight codes are kBits bytes
    word = spread<kBits>(word);
    std::memcpy(codes.data() + i, &word, 8);
  }
}

std::array<float, 256> e4m3_values() {
  std::array<float, 256> values;
  for (int code = 0; code < 256; ++code) {
    values[static_cast<size_t>(code)] = base::e4m3_to_float(static_cast<uint8_t>(code));
  }
  return values;
}

}  // namespace

void unpack_bit_stream(int bits, const uint8_t* packed, std::span<uint8_t> codes) {
  MB_DCHECK(codes.size() % 8 == 0);
  switch (bits) {
    case 2:
      return unpack<2>(packed, codes);
    case 3:
      return unpack<3>(packed, codes);
    case 4:
      return unpack<4>(packed, codes);
    case 5:
      return unpack<5>(packed, codes);
    case 6:
      return unpack<6>(packed, codes);
    case 8:
      return unpack<8>(packed, codes);
    default:
      MB_CHECK_MSG(false, "bits of a packed row");
  }
}

void pack_bit_stream(int bits, std::span<const uint8_t> codes, uint8_t* packed) {
  MB_DCHECK(codes.size() % 8 == 0);
  for (size_t i = 0; i < codes.size(); i += 8, packed += bits) {
    uint64_t word = 0;
    for (int j = 0; j < 8; ++j) word |= uint64_t{codes[i + j]} << (j * bits);
    std::memcpy(packed, &word, static_cast<size_t>(bits));
  }
}

void load_floats(tensor::DType dtype, const uint8_t* bytes, std::span<float> out) {
  switch (dtype) {
    case tensor::DType::kF32:
      std::memcpy(out.data(), bytes, out.size_bytes());
      return;
    case tensor::DType::kF16:
      for (size_t i = 0; i < out.size(); ++i) {
        uint16_t half;
        std::memcpy(&half, bytes + 2 * i, 2);
        out[i] = base::fp16_to_float(half);
      }
      return;
    case tensor::DType::kBF16:
      for (size_t i = 0; i < out.size(); ++i) {
        uint16_t bits;
        std::memcpy(&bits, bytes + 2 * i, 2);
        out[i] = base::bf16_to_float(bits);
      }
      return;
    case tensor::DType::kF8E4M3: {
      static const std::array<float, 256> kValues = e4m3_values();
      for (size_t i = 0; i < out.size(); ++i) out[i] = kValues[bytes[i]];
      return;
    }
    default:
      MB_CHECK_MSG(false, "float type of a weight");
  }
}

}  // namespace markbase::quant
