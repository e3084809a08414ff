#include <initializer_list>

#include "base/check.h"
#include "quant/encode.h"

namespace markbase::quant {
namespace {

// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

// Where the halves of a block stand.
std::initializer_list<int> half_offsets(Format format) {
  static constexpr std::initializer_list<int> kNone = {}, kFirst = {0}, kFirstTwo = {0, 2},
                                              kQ2K = {80, 82}, kQ3K = {108}, kQ6K = {208};
  switch (format) {
    case Format::kQ2_K:
      return kQ2K;
    case Format::kQ3_K:
      return kQ3K;
    case Format::kQ6_K:
      return kQ6K;
    case Format::kQ4_1:
    case Format::kQ5_1:
    case Format::kQ4_K:
    case Format::kQ5_K:
      return kFirstTwo;
    case Format::kF16:
    case Format::kQ4_0:
    case Format::kQ5_0:
    case Format::kQ8_0:
    case Format::kIQ4_NL:
    case Format::kIQ4_XS:
      return kFirst;
    default:
      return kNone;
  }
}

// Magnitude between 2^-10 and 2^-3, either sign: exponent field of a float with this bias.
uint64_t small_exponent(uint64_t random, int bias) {
  return static_cast<uint64_t>(bias - 10) + random % 7;
}

void put_u16(uint64_t value, std::byte* at) {
  at[0] = static_cast<std::byte>(value & 0xff);
  at[1] = static_cast<std::byte>((value >> 8) & 0xff);
}

// Makes the floats among a block's random bytes finite and of moderate size.
void tame(Format format, uint64_t random, std::byte* block) {
  const uint64_t low = random & 0xffff;
  const uint64_t pick = random >> 16;
  switch (format) {
    case Format::kF32:  // as BF16 in its high half
      return put_u16((low & 0x807f) | (small_exponent(pick, 127) << 7), block + 2);
    case Format::kBF16:
      return put_u16((low & 0x807f) | (small_exponent(pick, 127) << 7), block);
    case Format::kF8E4M3:  // exponents 0 to 7 only: at most 1.875, and no NaN
      block[0] = static_cast<std::byte>((low & 0x87) | ((pick % 8) << 3));
      return;
    case Format::kMXFP4:
      block[0] = static_cast<std::byte>(small_exponent(pick, 127));
      return;
    default:
      break;
  }
  uint64_t shift = 0;
  for (const int offset : half_offsets(format)) {
    const uint64_t bits = random >> shift;
    put_u16((bits & 0x83ff) | (small_exponent(bits >> 16, 15) << 10), block + offset);
    shift += 24;
  }
}

}  // namespace

std::vector<std::byte> random_blocks(Format format, uint64_t seed, int64_t count) {
  MB_CHECK(!is_mlx(format) && count >= 0);
  const int64_t block_bytes = block_shape(format).bytes;
  std::vector<std::byte> bytes(static_cast<size_t>(count * block_bytes));
  Random random(seed);
  for (int64_t b = 0; b < count; ++b) {
    std::byte* block = bytes.data() + b * block_bytes;
    uint64_t word = 0;
    for (int64_t i = 0; i < block_bytes; ++i, word >>= 8) {
      if (i % 8 == 0) word = random.next();
      block[i] = static_cast<std::byte>(word & 0xff);
    }
    tame(format, random.next(), block);
  }
  return bytes;
}

}  // namespace markbase::quant
