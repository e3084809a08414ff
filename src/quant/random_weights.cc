#include "quant/random_weights.h"

#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"

namespace markbase::quant {
namespace {

// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() { return mixed(state_ += 0x9e3779b97f4a7c15ull); }

 private:
  uint64_t state_;
};

// In [-1, 1), from the low 16 bits.
float signed_unit(uint64_t bits) {
  return static_cast<float>(static_cast<int16_t>(static_cast<uint16_t>(bits))) * 0x1p-15F;
}

// scale times 0.75 to 1.25.
float varied(float scale, uint64_t bits) { return scale * (1.0F + 0.25F * signed_unit(bits)); }

// The same with either sign.
float varied_sign(float scale, uint64_t bits) {
  const float value = varied(scale, bits);
  return ((bits >> 16) & 1) != 0 ? -value : value;
}

// Standard deviation of the integers 0 .. n - 1, each as likely.
float uniform_deviation(int n) {
  return std::sqrt((static_cast<float>(n) * static_cast<float>(n) - 1.0F) / 12.0F);
}

void put_half(float value, uint8_t* at) {
  const uint16_t half = base::float_to_fp16(value);
  std::memcpy(at, &half, sizeof(half));
}

// Eight 6-bit scales, which are the 6-bit minima too, as Q4_K and Q5_K pack them into 12 bytes.
void put_equal_scales_and_minima(std::span<const uint8_t, 8> scales, uint8_t* at) {
  for (size_t i = 0; i < 4; ++i) {
    const auto high = static_cast<uint8_t>((scales[i + 4] >> 4) << 6);
    at[i] = static_cast<uint8_t>(scales[i] | high);
    at[i + 4] = at[i];
    const auto low = static_cast<uint8_t>(scales[i + 4] & 15);
    at[i + 8] = static_cast<uint8_t>(low | (low << 4));
  }
}

// Eight sub-scales in 32 .. 63.
constexpr float kMeanSub = 47.5F;

void tame_k_with_minima(Random& random, float spread, int codes, uint8_t* block) {
  const uint64_t bits = random.next();
  std::array<uint8_t, 8> subs;
  for (size_t i = 0; i < subs.size(); ++i) {
    subs[i] = static_cast<uint8_t>(32 + ((bits >> (6 * i)) & 31));
  }
  const float d = varied(spread / (uniform_deviation(codes) * kMeanSub), random.next());
  // y = d sub q - dmin sub: centred where dmin is d times the mean code.
  put_half(d, block);
  put_half(d * static_cast<float>(codes - 1) / 2.0F, block + 2);
  put_equal_scales_and_minima(subs, block + 4);
}

void tame_q6_k(Random& random, float spread, uint8_t* block) {
  constexpr int kScales = 192;
  constexpr float kMeanScale = 95.5F;
  for (int half = 0; half < 2; ++half) {
    const uint64_t bits = random.next();
    for (int i = 0; i < 8; ++i) {
      const auto byte = static_cast<int>((bits >> (8 * i)) & 127);
      const int magnitude = 64 + (byte & 63);
      block[kScales + 8 * half + i] = static_cast<uint8_t>(byte > 63 ? -magnitude : magnitude);
    }
  }
  put_half(varied(spread / (uniform_deviation(64) * kMeanScale), random.next()), block + 208);
}

// Rewrites the scales among a block's random bytes.
void tame(Format format, Random& random, float spread, uint8_t* block) {
  const auto simple = [&](int codes) {
    return varied_sign(spread / uniform_deviation(codes), random.next());
  };
  switch (format) {
    case Format::kQ4_0:
      return put_half(simple(16), block);
    case Format::kQ5_0:
      return put_half(simple(32), block);
    case Format::kQ8_0:  // int8 codes
      return put_half(simple(256), block);
    case Format::kQ4_1:
    case Format::kQ5_1: {
      const int codes = format == Format::kQ4_1 ? 16 : 32;
      const float d = simple(codes);
      put_half(d, block);
      return put_half(-d * static_cast<float>(codes - 1) / 2.0F, block + 2);
    }
    case Format::kQ4_K:
      return tame_k_with_minima(random, spread, 16, block);
    case Format::kQ5_K:
      return tame_k_with_minima(random, spread, 32, block);
    case Format::kQ6_K:
      return tame_q6_k(random, spread, block);
    default:
      MB_CHECK_MSG(false, "no random blocks of this format");
  }
}

void fill_bytes(Random& random, std::span<std::byte> out) {
  size_t i = 0;
  for (; i + 8 <= out.size(); i += 8) {
    const uint64_t word = random.next();
    std::memcpy(out.data() + i, &word, 8);
  }
  if (i == out.size()) return;
  const uint64_t word = random.next();
  std::memcpy(out.data() + i, &word, out.size() - i);
}

}  // namespace

uint64_t part_seed(uint64_t seed, std::string_view name, uint64_t idx) {
  uint64_t hash = 0xcbf29ce484222325ull;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return mixed(mixed(mixed(seed + 1) ^ hash) ^ (idx + 1));
}

void fill_random_floats(Format format, uint64_t seed, float center, float half_width,
                        std::span<std::byte> out) {
  const auto bytes = static_cast<size_t>(block_shape(format).bytes);
  MB_CHECK(format == Format::kF32 || format == Format::kF16 || format == Format::kBF16);
  MB_CHECK(out.size() % bytes == 0);
  Random random(seed);
  uint64_t bits = 0;
  for (size_t i = 0; i < out.size() / bytes; ++i, bits >>= 16) {
    if (i % 4 == 0) bits = random.next();
    const float value = center + half_width * signed_unit(bits);
    if (format == Format::kF32) {
      std::memcpy(out.data() + 4 * i, &value, 4);
      continue;
    }
    const uint16_t narrow =
        format == Format::kF16 ? base::float_to_fp16(value) : base::float_to_bf16(value);
    std::memcpy(out.data() + 2 * i, &narrow, 2);
  }
}

bool has_random_blocks(Format format) {
  switch (format) {
    case Format::kQ4_0:
    case Format::kQ4_1:
    case Format::kQ5_0:
    case Format::kQ5_1:
    case Format::kQ8_0:
    case Format::kQ4_K:
    case Format::kQ5_K:
    case Format::kQ6_K:
      return true;
    default:
      return false;
  }
}

void fill_random_blocks(Format format, uint64_t seed, float spread, std::span<std::byte> out) {
  MB_CHECK(has_random_blocks(format));
  const auto bytes = static_cast<size_t>(block_shape(format).bytes);
  MB_CHECK(out.size() % bytes == 0);
  Random random(seed);
  fill_bytes(random, out);
  for (size_t at = 0; at < out.size(); at += bytes) {
    tame(format, random, spread, reinterpret_cast<uint8_t*>(out.data() + at));
  }
}

void fill_random_codes(uint64_t seed, std::span<std::byte> out) {
  Random random(seed);
  fill_bytes(random, out);
}

void fill_random_affine_scales(int bits, uint64_t seed, float spread, std::span<std::byte> scales,
                               std::span<std::byte> biases) {
  MB_CHECK(bits >= 2 && bits <= 8 && scales.size() == biases.size() && scales.size() % 2 == 0);
  Random random(seed);
  const int codes = 1 << bits;
  const float usual = spread / uniform_deviation(codes);
  for (size_t at = 0; at < scales.size(); at += 2) {
    const uint16_t scale = base::float_to_bf16(varied_sign(usual, random.next()));
    const float middle = static_cast<float>(codes - 1) / 2.0F;
    const uint16_t bias = base::float_to_bf16(-base::bf16_to_float(scale) * middle);
    std::memcpy(scales.data() + at, &scale, 2);
    std::memcpy(biases.data() + at, &bias, 2);
  }
}

}  // namespace markbase::quant
