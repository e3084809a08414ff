// GGUF super-blocks of 256 values: groups of 16 or 32 with short integer scales under one half (two
// where there is a minimum). scale = d * sub and offset = -(dmin * submin); both products are exact
// in float32 (11 + at most 8 bits).
#include "quant/block_codec.h"

namespace markbase::quant {
namespace {

constexpr int kSuper = 256;

// The parts of one super-block's scales.
struct Parts {
  uint16_t d = 0;
  uint16_t dmin = 0;
  uint8_t sub[16] = {};
  uint8_t submin[16] = {};
};

// Codes of Q2_K, and the low bits of Q3_K: for each half of the block 32 bytes give four passes of
// 32 consecutive codes, two bits each, low bits first.
void two_bit_codes(const uint8_t* __restrict packed, uint8_t* __restrict codes) {
  for (int half = 0; half < 2; ++half) {
    for (int pass = 0; pass < 4; ++pass) {
      const uint8_t* from = packed + 32 * half;
      uint8_t* to = codes + 128 * half + 32 * pass;
      for (int i = 0; i < 32; ++i) to[i] = (from[i] >> (2 * pass)) & 3;
    }
  }
}

// {u8 scales[16]; u8 qs[64]; half d; half dmin}: w = d * (sc & 15) * q - dmin * (sc >> 4).
struct Q2_K {
  static constexpr int64_t kElements = kSuper, kBytes = 84, kGroup = 16;
  static constexpr GroupedLayout kLayout = {2, 16, 0, Codebook::kNone, ScaleKind::kSub, true};
  static void codes(const uint8_t* block, uint8_t* codes) { two_bit_codes(block + 16, codes); }
  static void parts(const uint8_t* block, Parts* parts) {
    split_nibbles<16>(block, parts->sub, parts->submin);
    parts->d = load_u16(block + 80);
    parts->dmin = load_u16(block + 82);
  }
};

// {u8 hmask[32]; u8 qs[64]; u8 scales[12]; half d}: w = d * (sc - 32) * (q - 4), where q has the
// two bits of qs and, above them, bit (pass over 32 values) of hmask.
struct Q3_K {
  static constexpr int64_t kElements = kSuper, kBytes = 110, kGroup = 16;
  static constexpr GroupedLayout kLayout = {3, 16, 4, Codebook::kNone, ScaleKind::kSub, false};
  static void codes(const uint8_t* __restrict block, uint8_t* __restrict codes) {
    two_bit_codes(block + 32, codes);
    for (int pass = 0; pass < 8; ++pass) {
      uint8_t* to = codes + 32 * pass;
      for (int i = 0; i < 32; ++i) to[i] |= static_cast<uint8_t>(((block[i] >> pass) & 1) << 2);
    }
  }
  static void parts(const uint8_t* block, Parts* parts) {
    const uint8_t* packed = block + 96;
    // Six bits each: the low four as nibbles of 8 bytes, the high two as four passes over 4 bytes.
    split_nibbles<8>(packed, parts->sub, parts->sub + 8);
    for (int k = 0; k < 16; ++k) {
      const int high = (packed[8 + k % 4] >> (2 * (k / 4))) & 3;
      parts->sub[k] = static_cast<uint8_t>((parts->sub[k] | (high << 4)) - 32);
    }
    parts->d = load_u16(block + 108);
  }
};

// Eight (scale, minimum) pairs of six bits in 12 bytes, shared by Q4_K and Q5_K. The first four
// pairs stand in the low six bits of bytes 0..3 and 4..7; the last four have their low nibbles in
// bytes 8..11 and their two high bits above the first four.
void six_bit_pairs(const uint8_t* packed, uint8_t* sub, uint8_t* submin) {
  for (int j = 0; j < 4; ++j) {
    sub[j] = packed[j] & 63;
    submin[j] = packed[j + 4] & 63;
    sub[j + 4] = static_cast<uint8_t>((packed[j + 8] & 15) | ((packed[j] >> 6) << 4));
    submin[j + 4] = static_cast<uint8_t>((packed[j + 8] >> 4) | ((packed[j + 4] >> 6) << 4));
  }
}

// {half d; half dmin; u8 s[12]; u8 qs[128]}: w = d * sc * q - dmin * m; 32 bytes hold the values
// 64c..64c+31 in their low nibbles and 64c+32..64c+63 in their high ones.
struct Q4_K {
  static constexpr int64_t kElements = kSuper, kBytes = 144, kGroup = 32;
  static constexpr GroupedLayout kLayout = {4, 32, 0, Codebook::kNone, ScaleKind::kSub, true};
  static void codes(const uint8_t* block, uint8_t* codes) {
    for (int c = 0; c < 4; ++c) {
      split_nibbles<32>(block + 16 + 32 * c, codes + 64 * c, codes + 64 * c + 32);
    }
  }
  static void parts(const uint8_t* block, Parts* parts) {
    parts->d = load_u16(block);
    parts->dmin = load_u16(block + 2);
    six_bit_pairs(block + 4, parts->sub, parts->submin);
  }
};

// {half d; half dmin; u8 s[12]; u8 qh[32]; u8 qs[128]}: as Q4_K, with bit (group) of qh on top.
struct Q5_K {
  static constexpr int64_t kElements = kSuper, kBytes = 176, kGroup = 32;
  static constexpr GroupedLayout kLayout = {5, 32, 0, Codebook::kNone, ScaleKind::kSub, true};
  static void codes(const uint8_t* __restrict block, uint8_t* __restrict codes) {
    const uint8_t* high = block + 16;
    for (int c = 0; c < 4; ++c) {
      split_nibbles<32>(block + 48 + 32 * c, codes + 64 * c, codes + 64 * c + 32);
    }
    for (int group = 0; group < 8; ++group) {
      uint8_t* to = codes + 32 * group;
      for (int i = 0; i < 32; ++i) to[i] |= static_cast<uint8_t>(((high[i] >> group) & 1) << 4);
    }
  }
  static void parts(const uint8_t* block, Parts* parts) { Q4_K::parts(block, parts); }
};

// {u8 ql[128]; u8 qh[64]; i8 scales[16]; half d}: w = d * scale * (q - 32). Per half of the block
// 64 bytes of ql give the low four bits of 128 values, 32 bytes of qh the two bits above.
struct Q6_K {
  static constexpr int64_t kElements = kSuper, kBytes = 210, kGroup = 16;
  static constexpr GroupedLayout kLayout = {6, 16, 32, Codebook::kNone, ScaleKind::kSub, false};
  static void codes(const uint8_t* __restrict block, uint8_t* __restrict codes) {
    for (int half = 0; half < 2; ++half) {
      const uint8_t* low = block + 64 * half;
      const uint8_t* high = block + 128 + 32 * half;
      uint8_t* to = codes + 128 * half;
      split_nibbles<64>(low, to, to + 64);
      for (int quarter = 0; quarter < 4; ++quarter) {
        uint8_t* values = to + 32 * quarter;
        for (int i = 0; i < 32; ++i) {
          values[i] |= static_cast<uint8_t>(((high[i] >> (2 * quarter)) & 3) << 4);
        }
      }
    }
  }
  static void parts(const uint8_t* block, Parts* parts) {
    for (int k = 0; k < 16; ++k) parts->sub[k] = block[192 + k];
    parts->d = load_u16(block + 208);
  }
};

constexpr bool signed_sub(const GroupedLayout& layout) { return !layout.has_offset; }

template <class T>
void k_scales_of_run(const uint8_t* blocks, int64_t count, float* scales, float* offsets) {
  constexpr int kGroups = kSuper / T::kGroup;
  for (int64_t i = 0; i < count; ++i) {
    Parts parts;
    T::parts(blocks + i * T::kBytes, &parts);
    const float d = base::fp16_to_float(parts.d);
    for (int g = 0; g < kGroups; ++g) {
      const int sub = signed_sub(T::kLayout) ? static_cast<int8_t>(parts.sub[g]) : parts.sub[g];
      scales[i * kGroups + g] = d * static_cast<float>(sub);
    }
    if constexpr (T::kLayout.has_offset) {
      const float dmin = base::fp16_to_float(parts.dmin);
      for (int g = 0; g < kGroups; ++g) {
        offsets[i * kGroups + g] = -(dmin * static_cast<float>(parts.submin[g]));
      }
    }
  }
}

template <class T>
void k_sub_scales_of_run(const uint8_t* blocks, int64_t count, const SubScalePointers& out) {
  constexpr int kGroups = kSuper / T::kGroup;
  for (int64_t i = 0; i < count; ++i) {
    Parts parts;
    T::parts(blocks + i * T::kBytes, &parts);
    out.d[i] = parts.d;
    for (int g = 0; g < kGroups; ++g) out.sub[i * kGroups + g] = parts.sub[g];
    if constexpr (T::kLayout.has_offset) {
      out.dmin[i] = parts.dmin;
      for (int g = 0; g < kGroups; ++g) out.submin[i * kGroups + g] = parts.submin[g];
    }
  }
}

template <class T>
constexpr BlockCodec kCodecOf = {{T::kElements, T::kBytes},
                                 T::kLayout,
                                 codes_of_run<T>,
                                 k_scales_of_run<T>,
                                 k_sub_scales_of_run<T>};

}  // namespace

const BlockCodec* k_block_codec(Format format) {
  switch (format) {
    case Format::kQ2_K:
      return &kCodecOf<Q2_K>;
    case Format::kQ3_K:
      return &kCodecOf<Q3_K>;
    case Format::kQ4_K:
      return &kCodecOf<Q4_K>;
    case Format::kQ5_K:
      return &kCodecOf<Q5_K>;
    case Format::kQ6_K:
      return &kCodecOf<Q6_K>;
    default:
      return nullptr;
  }
}

}  // namespace markbase::quant
