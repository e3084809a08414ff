// Codes and scales of a packed segment, over the vector words of linear_vec*-inl.h.
#pragma once

#include "backends/cpu/kernels/linear_kernels.h"

namespace markbase::backends::cpu {
namespace {

// Bytes of the first plane for 32 k.
template <CodeKind K>
constexpr int kPlaneStride = K == CodeKind::k8                          ? 512
                             : (K == CodeKind::k2 || K == CodeKind::k3) ? 128
                                                                        : 256;
// ... and of the second, for the kinds that have one.
template <CodeKind K>
constexpr int kHighStride = K == CodeKind::k3 || K == CodeKind::k5 ? 64
                            : K == CodeKind::k6                    ? 128
                                                                   : 0;

// Codes of 4 k of kLanes rows: byte 4r + i is k = 4s + i of lane r, s = 0..7 inside a unit of 32 k.
// low and high point at the unit in the two planes, at the rows wanted. One s at a time, because a
// whole unit does not fit the registers; s is a constant after unrolling.
template <CodeKind K>
inline __attribute__((always_inline)) IVec unit_codes(const uint8_t* low, const uint8_t* high,
                                                      IVec table, int s) {
  if constexpr (K == CodeKind::k8) return load_i(low + 64 * s);
  IVec codes;
  if constexpr (K == CodeKind::k2 || K == CodeKind::k3) {
    codes = and_i(shift16(load_i(low + 64 * (s / 4)), 2 * (s % 4)), set1_i8(0x03));
  } else {
    codes = and_i(shift16(load_i(low + 64 * (s / 2)), 4 * (s % 2)), set1_i8(0x0f));
    if constexpr (K == CodeKind::kTable4) codes = look_up(table, codes);
  }
  if constexpr (K == CodeKind::k3 || K == CodeKind::k5) {
    constexpr int kTop = K == CodeKind::k3 ? 2 : 4;
    codes = or_i(codes, and_i(shift16(load_i(high), s - kTop), set1_i8(1 << kTop)));
  }
  if constexpr (K == CodeKind::k6) {
    codes =
        or_i(codes, and_i(shift16(load_i(high + 64 * (s / 4)), 2 * (s % 4) - 4), set1_i8(0x30)));
  }
  return codes;
}

// The even and odd bytes as 16-bit numbers: pairs (k0, k2) and (k1, k3) of each lane.
inline IVec even_codes(IVec bytes) { return and_i(bytes, set1_i16(0x00ff)); }
inline IVec odd_codes(IVec bytes) { return shift16(bytes, 8); }

// Scales of one segment as floats [groups][16], and the offsets likewise.
struct SegmentScales {
  float* scales;
  float* offsets;
};

template <FVec (*kLoad)(const uint8_t*), int kBytes>
inline void widen_scales(const uint8_t* from, int64_t groups, float* to) {
  for (int64_t i = 0; i < groups * kBlockRows; i += kLanes)
    store_f(to + i, kLoad(from + i * kBytes));
}

// scale = d * sub, or offset = -(dmin * submin) with the sign put on dmin: the same bits.
template <FVec (*kLoad)(const uint8_t*), bool kNegative>
inline void widen_sub_scales(const uint8_t* sub, const uint8_t* d, int64_t groups, float* to) {
  for (int v = 0; v < kVecs; ++v) {
    const FVec half = load_half(d + 2 * v * kLanes);
    const FVec factor = kNegative ? negate(half) : half;
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t at = g * kBlockRows + v * kLanes;
      store_f(to + at, mul_f(factor, kLoad(sub + at)));
    }
  }
}

inline FVec load_float_scale(const uint8_t* p) { return load_f(reinterpret_cast<const float*>(p)); }

// Half of an E4M3 value: the table holds doubled ones.
inline FVec load_half_e4m3(const uint8_t* p) { return mul_f(load_e4m3(p), set1_f(0.5f)); }

inline void segment_scales(const GroupedFormat& f, const uint8_t* from, int64_t groups,
                           const SegmentScales& to) {
  const int64_t entries = groups * kBlockRows;
  switch (f.scales) {
    case ScaleCode::kF16:
      widen_scales<load_half, 2>(from, groups, to.scales);
      if (f.has_offset) widen_scales<load_half, 2>(from + 2 * entries, groups, to.offsets);
      return;
    case ScaleCode::kBF16:
      widen_scales<load_bf16, 2>(from, groups, to.scales);
      if (f.has_offset) widen_scales<load_bf16, 2>(from + 2 * entries, groups, to.offsets);
      return;
    case ScaleCode::kF32:
      widen_scales<load_float_scale, 4>(from, groups, to.scales);
      if (f.has_offset) widen_scales<load_float_scale, 4>(from + 4 * entries, groups, to.offsets);
      return;
    case ScaleCode::kE8M0:
      widen_scales<load_e8m0, 1>(from, groups, to.scales);
      return;
    case ScaleCode::kE4M3:
      widen_scales<load_half_e4m3, 1>(from, groups, to.scales);
      return;
    case ScaleCode::kSubSigned:
      widen_sub_scales<load_i8, false>(from, from + entries, groups, to.scales);
      return;
    case ScaleCode::kSubUnsigned: {
      const uint8_t* d = from + 2 * entries;
      widen_sub_scales<load_u8, false>(from, d, groups, to.scales);
      widen_sub_scales<load_u8, true>(from + entries, d + 2 * kBlockRows, groups, to.offsets);
      return;
    }
  }
}

}  // namespace
}  // namespace markbase::backends::cpu
