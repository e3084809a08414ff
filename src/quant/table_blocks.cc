// GGUF blocks whose 4-bit codes index a table: w = scale * table[code].
#include <bit>

#include "quant/block_codec.h"

namespace markbase::quant {
namespace {

// {half d; u8 qs[16]}.
struct Iq4Nl {
  static constexpr int64_t kElements = 32, kBytes = 18, kGroup = 32;
  static constexpr GroupedLayout kLayout = {4, 32, 0, Codebook::kIq4, ScaleKind::kF16, false};
  static void codes(const uint8_t* block, uint8_t* codes) {
    split_nibbles<16>(block + 2, codes, codes + 16);
  }
  static void scales(const uint8_t* block, float* scale, float*) { *scale = load_half(block); }
};

// {u8 e; u8 qs[16]}: the table holds doubled E2M1 values, so the scale is half of 2^(e - 127).
// 2^-128 and 2^-127 are float32 subnormals; e = 255 continues the rule to 2^127.
struct Mxfp4 {
  static constexpr int64_t kElements = 32, kBytes = 17, kGroup = 32;
  static constexpr GroupedLayout kLayout = {4,    32, 0, Codebook::kE2M1Doubled, ScaleKind::kE8M0,
                                            false};
  static void codes(const uint8_t* block, uint8_t* codes) {
    split_nibbles<16>(block + 1, codes, codes + 16);
  }
  static void scales(const uint8_t* block, float* scale, float*) {
    const uint32_t e = block[0];
    *scale = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  }
};

// {half d; u16 high; u8 low[4]; u8 qs[128]}: eight groups of 32 with a six-bit scale each, centred
// at 32.
struct Iq4Xs {
  static constexpr int64_t kElements = 256, kBytes = 136, kGroup = 32;
  static constexpr GroupedLayout kLayout = {4, 32, 0, Codebook::kIq4, ScaleKind::kSub, false};
  static void codes(const uint8_t* block, uint8_t* codes) {
    for (int g = 0; g < 8; ++g) {
      split_nibbles<16>(block + 8 + 16 * g, codes + 32 * g, codes + 32 * g + 16);
    }
  }
  static int sub(const uint8_t* block, int g) {
    const int low = (block[4 + g / 2] >> (4 * (g % 2))) & 15;
    const int high = (load_u16(block + 2) >> (2 * g)) & 3;
    return (low | (high << 4)) - 32;
  }
  static void scales(const uint8_t* block, float* scales, float*) {
    const float d = load_half(block);
    for (int g = 0; g < 8; ++g) scales[g] = d * static_cast<float>(sub(block, g));
  }
  static void sub_scales(const uint8_t* blocks, int64_t count, const SubScalePointers& out) {
    for (int64_t i = 0; i < count; ++i) {
      const uint8_t* block = blocks + i * kBytes;
      out.d[i] = load_u16(block);
      for (int g = 0; g < 8; ++g) out.sub[8 * i + g] = static_cast<uint8_t>(sub(block, g));
    }
  }
};

template <class T>
constexpr BlockCodec kCodecOf = {
    {T::kElements, T::kBytes}, T::kLayout, codes_of_run<T>, scales_of_run<T>, nullptr};
constexpr BlockCodec kIq4XsCodec = {{Iq4Xs::kElements, Iq4Xs::kBytes},
                                    Iq4Xs::kLayout,
                                    codes_of_run<Iq4Xs>,
                                    scales_of_run<Iq4Xs>,
                                    Iq4Xs::sub_scales};

}  // namespace

const BlockCodec* table_block_codec(Format format) {
  switch (format) {
    case Format::kIQ4_NL:
      return &kCodecOf<Iq4Nl>;
    case Format::kMXFP4:
      return &kCodecOf<Mxfp4>;
    case Format::kIQ4_XS:
      return &kIq4XsCodec;
    default:
      return nullptr;
  }
}

}  // namespace markbase::quant
