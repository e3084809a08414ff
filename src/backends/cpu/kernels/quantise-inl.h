// One row of x to 16-bit integers with one scale a segment, for every unit that has AVX2.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backends/cpu/kernels/linear_kernels.h"

namespace markbase::backends::cpu {
namespace {

// Largest |x| of n values as float bits: order of bits is order of magnitudes, and anything from
// 0x7f800000 on is not finite.
inline int32_t largest_magnitude_bits(const float* x, int64_t n) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  __m256i best = _mm256_setzero_si256();
  for (int64_t k = 0; k < n; k += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + k));
    best = _mm256_max_epi32(best, _mm256_and_si256(bits, mask));
  }
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(best), _mm256_extracti128_si256(best, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
  return _mm_cvtsi128_si32(half);
}

inline int32_t lane_sum(__m256i v) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
  return _mm_cvtsi128_si32(half);
}

// hi and lo of 16 values into the tile of their row: x16 = 256 * hi + lo, both int8.
inline void store_tile_bytes(__m256i x16, int8_t* hi_row, int8_t* lo_row) {
  const __m256i hi = _mm256_srai_epi16(_mm256_add_epi16(x16, _mm256_set1_epi16(128)), 8);
  const __m256i lo = _mm256_sub_epi16(x16, _mm256_slli_epi16(hi, 8));
  const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(hi, lo), 0xd8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(hi_row), _mm256_castsi256_si128(bytes));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(lo_row), _mm256_extracti128_si256(bytes, 1));
}

// 16 values; returns their sum.
inline int32_t quantise_16(const float* x, __m256 a, __m256 limit, int16_t* codes, int8_t* hi_row,
                           int8_t* lo_row) {
  const __m256 low = _mm256_sub_ps(_mm256_setzero_ps(), limit);
  __m256 q0 = _mm256_div_ps(_mm256_loadu_ps(x), a);
  __m256 q1 = _mm256_div_ps(_mm256_loadu_ps(x + 8), a);
  q0 = _mm256_min_ps(_mm256_max_ps(q0, low), limit);
  q1 = _mm256_min_ps(_mm256_max_ps(q1, low), limit);
  const __m256i i0 = _mm256_cvtps_epi32(q0);
  const __m256i i1 = _mm256_cvtps_epi32(q1);
  const __m256i x16 = _mm256_permute4x64_epi64(_mm256_packs_epi32(i0, i1), 0xd8);
  if (hi_row != nullptr) store_tile_bytes(x16, hi_row, lo_row);
  const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1,
                                         4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm256_shuffle_epi8(x16, order));
  return lane_sum(_mm256_add_epi32(i0, i1));
}

inline void zero_16(int16_t* codes, int8_t* hi_row, int8_t* lo_row) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), _mm256_setzero_si256());
  if (hi_row != nullptr) store_tile_bytes(_mm256_setzero_si256(), hi_row, lo_row);
}

// The sums of 32, 64 and 128 from those of 16; a last group that is not whole belongs to no weight.
inline void combine_sums(const ActivationLayout& layout, uint8_t* row, int8_t* tile_group,
                         int64_t tile_row) {
  for (int level = 0; level < kGroupLevels; ++level) {
    const int64_t groups = layout.cols >> (4 + level);
    int32_t* sums = reinterpret_cast<int32_t*>(row + layout.sums[level]);
    float* sums_f = reinterpret_cast<float*>(row + layout.sums_f[level]);
    if (level > 0) {
      const int32_t* halves = reinterpret_cast<const int32_t*>(row + layout.sums[level - 1]);
      for (int64_t g = 0; g < groups; ++g) sums[g] = halves[2 * g] + halves[2 * g + 1];
    }
    for (int64_t g = 0; g < groups; ++g) sums_f[g] = static_cast<float>(sums[g]);
    if (tile_group == nullptr) continue;
    float* tile_sums = reinterpret_cast<float*>(tile_group + layout.tile_sums[level]) + tile_row;
    for (int64_t g = 0; g < groups; ++g) tile_sums[g * kTileGroup] = sums_f[g];
  }
}

void quantise_row(const QuantiseArgs& args) {
  const Activations& out = *args.out;
  const ActivationLayout& layout = out.layout;
  uint8_t* row = out.rows + args.token * layout.row_bytes;
  int16_t* codes = reinterpret_cast<int16_t*>(row);
  float* scales = reinterpret_cast<float*>(row + layout.scales);
  int32_t* sums = reinterpret_cast<int32_t*>(row + layout.sums[0]);
  int8_t* tile_group = nullptr;
  const int64_t tile_row = args.token % kTileGroup;
  if (out.tiles != nullptr) {
    tile_group = out.tiles + args.token / kTileGroup * layout.tile_group_bytes;
  }
  const float limit = static_cast<float>(args.limit);
  for (int64_t begin = 0; begin < layout.cols; begin += kSegment) {
    const int64_t length = least(kSegment, layout.cols - begin);
    const int32_t bits = largest_magnitude_bits(args.x + begin, length);
    float largest;
    __builtin_memcpy(&largest, &bits, 4);
    const bool finite = bits < 0x7f800000;
    const float a = finite ? largest / limit : __builtin_nanf("");
    scales[begin / kSegment] = a;
    if (tile_group != nullptr) {
      float* tile_scales = reinterpret_cast<float*>(tile_group + layout.tile_scales);
      tile_scales[begin / kSegment * kTileGroup + tile_row] = a;
    }
    const bool all_zero = !finite || a == 0.0f;
    for (int64_t k = begin; k < begin + length; k += 16) {
      int8_t* hi_row = nullptr;
      if (tile_group != nullptr) {
        hi_row = tile_group + k / kTileDepth * (2 * kTileGroup * kTileDepth) +
                 tile_row * kTileDepth + k % kTileDepth;
      }
      int8_t* lo_row = hi_row == nullptr ? nullptr : hi_row + kTileGroup * kTileDepth;
      if (all_zero) {
        zero_16(codes + k, hi_row, lo_row);
        sums[k / 16] = 0;
      } else {
        sums[k / 16] = quantise_16(args.x + k, _mm256_set1_ps(a), _mm256_set1_ps(limit), codes + k,
                                   hi_row, lo_row);
      }
    }
  }
  combine_sums(layout, row, tile_group, tile_row);
}

}  // namespace
}  // namespace markbase::backends::cpu
