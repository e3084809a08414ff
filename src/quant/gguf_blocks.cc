// GGUF blocks of 32 values with one half-precision scale, and perhaps a minimum, in front.
#include "quant/block_codec.h"

namespace markbase::quant {
namespace {

constexpr int kBlock = 32;
constexpr int kHalfBlock = kBlock / 2;

// {half d; u8 qs[16]}: w = d * (q - 8); low nibbles are values 0..15, high nibbles 16..31.
struct Q4_0 {
  static constexpr int64_t kElements = kBlock, kBytes = 18, kGroup = kBlock;
  static constexpr GroupedLayout kLayout = {4, kBlock, 8, Codebook::kNone, ScaleKind::kF16, false};
  static void codes(const uint8_t* block, uint8_t* codes) {
    split_nibbles<kHalfBlock>(block + 2, codes, codes + kHalfBlock);
  }
  static void scales(const uint8_t* block, float* scale, float*) { *scale = load_half(block); }
};

// {half d; half m; u8 qs[16]}: w = d * q + m.
struct Q4_1 {
  static constexpr int64_t kElements = kBlock, kBytes = 20, kGroup = kBlock;
  static constexpr GroupedLayout kLayout = {4, kBlock, 0, Codebook::kNone, ScaleKind::kF16, true};
  static void codes(const uint8_t* block, uint8_t* codes) {
    split_nibbles<kHalfBlock>(block + 4, codes, codes + kHalfBlock);
  }
  static void scales(const uint8_t* block, float* scale, float* offset) {
    *scale = load_half(block);
    *offset = load_half(block + 2);
  }
};

// Bit i of the 32 in `high` becomes bit 4 of codes[i].
void add_fifth_bits(const uint8_t* high, uint8_t* codes) {
  for (int byte = 0; byte < 4; ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      codes[8 * byte + bit] |= static_cast<uint8_t>(((high[byte] >> bit) & 1) << 4);
    }
  }
}

// {half d; u32 qh; u8 qs[16]}: w = d * (q - 16).
struct Q5_0 {
  static constexpr int64_t kElements = kBlock, kBytes = 22, kGroup = kBlock;
  static constexpr GroupedLayout kLayout = {5, kBlock, 16, Codebook::kNone, ScaleKind::kF16, false};
  static void codes(const uint8_t* block, uint8_t* codes) {
    split_nibbles<kHalfBlock>(block + 6, codes, codes + kHalfBlock);
    add_fifth_bits(block + 2, codes);
  }
  static void scales(const uint8_t* block, float* scale, float*) { *scale = load_half(block); }
};

// {half d; half m; u32 qh; u8 qs[16]}: w = d * q + m.
struct Q5_1 {
  static constexpr int64_t kElements = kBlock, kBytes = 24, kGroup = kBlock;
  static constexpr GroupedLayout kLayout = {5, kBlock, 0, Codebook::kNone, ScaleKind::kF16, true};
  static void codes(const uint8_t* block, uint8_t* codes) {
    split_nibbles<kHalfBlock>(block + 8, codes, codes + kHalfBlock);
    add_fifth_bits(block + 4, codes);
  }
  static void scales(const uint8_t* block, float* scale, float* offset) {
    *scale = load_half(block);
    *offset = load_half(block + 2);
  }
};

// {half d; i8 qs[32]}: w = d * q. The code is q + 128, which flips the sign bit of the byte.
struct Q8_0 {
  static constexpr int64_t kElements = kBlock, kBytes = 34, kGroup = kBlock;
  static constexpr GroupedLayout kLayout = {8,    kBlock, 128, Codebook::kNone, ScaleKind::kF16,
                                            false};
  static void codes(const uint8_t* __restrict block, uint8_t* __restrict codes) {
    for (int i = 0; i < kBlock; ++i) codes[i] = block[2 + i] ^ 0x80;
  }
  static void scales(const uint8_t* block, float* scale, float*) { *scale = load_half(block); }
};

template <class T>
constexpr BlockCodec kCodecOf = {
    {T::kElements, T::kBytes}, T::kLayout, codes_of_run<T>, scales_of_run<T>, nullptr};

}  // namespace

const BlockCodec* simple_block_codec(Format format) {
  switch (format) {
    case Format::kQ4_0:
      return &kCodecOf<Q4_0>;
    case Format::kQ4_1:
      return &kCodecOf<Q4_1>;
    case Format::kQ5_0:
      return &kCodecOf<Q5_0>;
    case Format::kQ5_1:
      return &kCodecOf<Q5_1>;
    case Format::kQ8_0:
      return &kCodecOf<Q8_0>;
    default:
      return nullptr;
  }
}

}  // namespace markbase::quant
