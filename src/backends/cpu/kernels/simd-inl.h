// Sixteen float lanes, the same on every level: float[16], two __m256 or one __m512.
//
// Included by kernel sources that are compiled for one instruction set. Every operation is one IEEE
// operation to a lane (fma rounds once), so a kernel written over these gives the same bits on
// every level. No libm and nothing from std:: here: the linker may hand a copy compiled for wide
// instructions to everyone. min(a, b) = a < b ? a : b and max(a, b) = a > b ? a : b, so b is the
// answer when one of them is NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#if defined(__GNUC__) && !defined(__clang__)
// The intrinsics' own headers start "undefined" vectors from themselves (gcc.gnu.org/bugzilla
// 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#endif

#define MB_INLINE [[gnu::always_inline]] inline

namespace {
namespace simd {

constexpr int kLanes = 16;

MB_INLINE uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }
MB_INLINE float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

#if defined(__AVX512F__)

struct F {
  __m512 v;
};
struct I {
  __m512i v;
};
MB_INLINE __mmask16 first_lanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1u); }
MB_INLINE F set1(float x) { return {_mm512_set1_ps(x)}; }
MB_INLINE F load(const float* p) { return {_mm512_loadu_ps(p)}; }
MB_INLINE void store(float* p, F a) { _mm512_storeu_ps(p, a.v); }
MB_INLINE F load_n(const float* p, int64_t n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
MB_INLINE void store_n(float* p, F a, int64_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
MB_INLINE F add(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
MB_INLINE F sub(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
MB_INLINE F mul(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
MB_INLINE F div(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
MB_INLINE F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
MB_INLINE F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
MB_INLINE F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
MB_INLINE I as_int(F a) { return {_mm512_castps_si512(a.v)}; }
MB_INLINE F as_float(I a) { return {_mm512_castsi512_ps(a.v)}; }
MB_INLINE I set1_int(uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
MB_INLINE I add(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
MB_INLINE I sub(I a, I b) { return {_mm512_sub_epi32(a.v, b.v)}; }
MB_INLINE I and_bits(I a, I b) { return {_mm512_and_si512(a.v, b.v)}; }
MB_INLINE I or_bits(I a, I b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int kCount>
MB_INLINE I shift_left(I a) {
  return {_mm512_slli_epi32(a.v, kCount)};
}
template <int kCount>
MB_INLINE I shift_right_signed(I a) {
  return {_mm512_srai_epi32(a.v, kCount)};
}
// a < b ? x : y
MB_INLINE F select_less(F a, F b, F x, F y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
MB_INLINE bool all_less(F a, F b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ) == 0xffff; }
// Lanes [first, last] of a, `fill` elsewhere; any integers.
MB_INLINE F keep_lanes(F a, int first, int last, F fill) {
  const uint32_t low = first <= 0 ? 0xffffu : first > 15 ? 0u : 0xffffu << first;
  const uint32_t high = last >= 15 ? 0xffffu : last < 0 ? 0u : (2u << last) - 1u;
  return {_mm512_mask_blend_ps(static_cast<__mmask16>(low & high), fill.v, a.v)};
}
MB_INLINE F load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
MB_INLINE F load_bf16(const uint16_t* p) {
  const __m256i raw = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(raw), 16))};
}
MB_INLINE F load_i8(const int8_t* p) {
  return {_mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
}
MB_INLINE void store_f16(uint16_t* p, F a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
MB_INLINE __m256 low_half(F a) { return _mm512_castps512_ps256(a.v); }
MB_INLINE __m256 high_half(F a) { return _mm512_extractf32x8_ps(a.v, 1); }

#elif defined(__AVX2__)

struct F {
  __m256 lo, hi;
};
struct I {
  __m256i lo, hi;
};
MB_INLINE F set1(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}
MB_INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
MB_INLINE void store(float* p, F a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
MB_INLINE F add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
MB_INLINE F sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
MB_INLINE F mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
MB_INLINE F div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
MB_INLINE F fma(F a, F b, F c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
MB_INLINE F min(F a, F b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
MB_INLINE F max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
MB_INLINE I as_int(F a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
MB_INLINE F as_float(I a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }
MB_INLINE I set1_int(uint32_t x) {
  const __m256i v = _mm256_set1_epi32(static_cast<int>(x));
  return {v, v};
}
MB_INLINE I add(I a, I b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
MB_INLINE I sub(I a, I b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
MB_INLINE I and_bits(I a, I b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
MB_INLINE I or_bits(I a, I b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
template <int kCount>
MB_INLINE I shift_left(I a) {
  return {_mm256_slli_epi32(a.lo, kCount), _mm256_slli_epi32(a.hi, kCount)};
}
template <int kCount>
MB_INLINE I shift_right_signed(I a) {
  return {_mm256_srai_epi32(a.lo, kCount), _mm256_srai_epi32(a.hi, kCount)};
}
MB_INLINE F select_less(F a, F b, F x, F y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
MB_INLINE bool all_less(F a, F b) {
  return _mm256_movemask_ps(_mm256_and_ps(_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ),
                                          _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))) == 0xff;
}
MB_INLINE __m256 lanes_between(__m256i lane, int first, int last) {
  const __m256i outside = _mm256_or_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32(first), lane),
                                          _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(last)));
  return _mm256_castsi256_ps(outside);
}
MB_INLINE F keep_lanes(F a, int first, int last, F fill) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i upper = _mm256_add_epi32(lane, _mm256_set1_epi32(8));
  return {_mm256_blendv_ps(a.lo, fill.lo, lanes_between(lane, first, last)),
          _mm256_blendv_ps(a.hi, fill.hi, lanes_between(upper, first, last))};
}
MB_INLINE F load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
MB_INLINE __m256 widen_bf16(const uint16_t* p) {
  const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
}
MB_INLINE F load_bf16(const uint16_t* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }
MB_INLINE __m256 widen_i8(const int8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
MB_INLINE F load_i8(const int8_t* p) { return {widen_i8(p), widen_i8(p + 8)}; }
MB_INLINE void store_f16(uint16_t* p, F a) {
  constexpr int kRounding = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, kRounding));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, kRounding));
}
MB_INLINE __m256 low_half(F a) { return a.lo; }
MB_INLINE __m256 high_half(F a) { return a.hi; }

#else  // portable

struct F {
  float v[kLanes];
};
struct I {
  uint32_t v[kLanes];
};
#define MB_EACH_LANE(type, expression)                            \
  do {                                                            \
    type result_;                                                 \
    for (int i = 0; i < kLanes; ++i) result_.v[i] = (expression); \
    return result_;                                               \
  } while (false)
MB_INLINE F set1(float x) { MB_EACH_LANE(F, x); }
MB_INLINE F load(const float* p) { MB_EACH_LANE(F, p[i]); }
MB_INLINE void store(float* p, F a) {
  for (int i = 0; i < kLanes; ++i) p[i] = a.v[i];
}
MB_INLINE F add(F a, F b) { MB_EACH_LANE(F, a.v[i] + b.v[i]); }
MB_INLINE F sub(F a, F b) { MB_EACH_LANE(F, a.v[i] - b.v[i]); }
MB_INLINE F mul(F a, F b) { MB_EACH_LANE(F, a.v[i] * b.v[i]); }
MB_INLINE F div(F a, F b) { MB_EACH_LANE(F, a.v[i] / b.v[i]); }
// Without fused instructions: in double the product is exact, and the sum rounded twice is the sum
// rounded once unless the first rounding ended halfway between two floats, or the result is
// subnormal. Those go, all sixteen together, to the C library's slow fmaf.
typedef double Double2 __attribute__((vector_size(16)));
typedef int32_t Int4 __attribute__((vector_size(16)));
typedef int64_t Long2 __attribute__((vector_size(16)));
MB_INLINE F fma(F a, F b, F c) {
  F result;
  Int4 doubtful = {0, 0, 0, 0};
#pragma GCC unroll 8
  for (int i = 0; i < kLanes; i += 2) {
    const Double2 x = {a.v[i], a.v[i + 1]};
    const Double2 y = {b.v[i], b.v[i + 1]};
    const Double2 z = {c.v[i], c.v[i + 1]};
    const Double2 sum = x * y + z;
    // Of each double (low word, high word): the bits that a float drops, and exponent and mantissa.
    const Int4 words =
        reinterpret_cast<Int4>(sum) & Int4{0x1fffffff, 0x7fffffff, 0x1fffffff, 0x7fffffff};
    doubtful |= words == Int4{0x10000000, -1, 0x10000000, -1};
    doubtful |= (words > Int4{0x7fffffff, 0, 0x7fffffff, 0}) &  // not zero, and
                (words < Int4{0, 0x38100000, 0, 0x38100000});   // below 2^-126
    result.v[i] = static_cast<float>(sum[0]);
    result.v[i + 1] = static_cast<float>(sum[1]);
  }
  const Long2 any = reinterpret_cast<Long2>(doubtful);
  if (__builtin_expect((any[0] | any[1]) != 0, 0)) {
    for (int i = 0; i < kLanes; ++i) result.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  }
  return result;
}
MB_INLINE F min(F a, F b) { MB_EACH_LANE(F, a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
MB_INLINE F max(F a, F b) { MB_EACH_LANE(F, a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
MB_INLINE I as_int(F a) { MB_EACH_LANE(I, bits_of(a.v[i])); }
MB_INLINE F as_float(I a) { MB_EACH_LANE(F, float_of(a.v[i])); }
MB_INLINE I set1_int(uint32_t x) { MB_EACH_LANE(I, x); }
MB_INLINE I add(I a, I b) { MB_EACH_LANE(I, a.v[i] + b.v[i]); }
MB_INLINE I sub(I a, I b) { MB_EACH_LANE(I, a.v[i] - b.v[i]); }
MB_INLINE I and_bits(I a, I b) { MB_EACH_LANE(I, a.v[i] & b.v[i]); }
MB_INLINE I or_bits(I a, I b) { MB_EACH_LANE(I, a.v[i] | b.v[i]); }
template <int kCount>
MB_INLINE I shift_left(I a) {
  MB_EACH_LANE(I, a.v[i] << kCount);
}
template <int kCount>
MB_INLINE I shift_right_signed(I a) {
  MB_EACH_LANE(I, static_cast<uint32_t>(static_cast<int32_t>(a.v[i]) >> kCount));
}
MB_INLINE F select_less(F a, F b, F x, F y) { MB_EACH_LANE(F, a.v[i] < b.v[i] ? x.v[i] : y.v[i]); }
MB_INLINE bool all_less(F a, F b) {
  bool all = true;
  for (int i = 0; i < kLanes; ++i) all = all && a.v[i] < b.v[i];
  return all;
}
MB_INLINE F keep_lanes(F a, int first, int last, F fill) {
  MB_EACH_LANE(F, i >= first && i <= last ? a.v[i] : fill.v[i]);
}
MB_INLINE float half_to_float(uint32_t half) {
  // The exponent is moved by a product with 2^112, which also normalises subnormals.
  const float magnitude = float_of((half & 0x7fffu) << 13) * 0x1p112f;
  const uint32_t special = (half & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return float_of(bits_of(magnitude) | special | ((half & 0x8000u) << 16));
}
MB_INLINE F load_f16(const uint16_t* p) { MB_EACH_LANE(F, half_to_float(p[i])); }
MB_INLINE F load_bf16(const uint16_t* p) { MB_EACH_LANE(F, float_of(uint32_t{p[i]} << 16)); }
MB_INLINE F load_i8(const int8_t* p) { MB_EACH_LANE(F, static_cast<float>(p[i])); }
MB_INLINE uint16_t float_to_half(float value) {
  const uint32_t sign = (bits_of(value) >> 16) & 0x8000u;
  const uint32_t magnitude = bits_of(value) & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // subnormal: 0.5 puts its grid at the last bit of the sum
    half = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  }
  return static_cast<uint16_t>(sign | half);
}
MB_INLINE void store_f16(uint16_t* p, F a) {
  for (int i = 0; i < kLanes; ++i) p[i] = float_to_half(a.v[i]);
}
#undef MB_EACH_LANE

#endif

#if !defined(__AVX512F__)
MB_INLINE F load_n(const float* p, int64_t n) {
  float buffer[kLanes];
  for (int i = 0; i < kLanes; ++i) buffer[i] = i < n ? p[i] : 0.0f;
  return load(buffer);
}
MB_INLINE void store_n(float* p, F a, int64_t n) {
  float buffer[kLanes];
  store(buffer, a);
  for (int64_t i = 0; i < n; ++i) p[i] = buffer[i];
}
#endif

MB_INLINE F abs(F a) { return as_float(and_bits(as_int(a), set1_int(0x7fffffffu))); }
// The magnitude of a non-negative `a` with the sign of b.
MB_INLINE F with_sign(F a, F b) {
  return as_float(or_bits(as_int(a), and_bits(as_int(b), set1_int(0x80000000u))));
}

// The one tree of a sum over lanes: i + (i + 8), then + 4, + 2, + 1.
#if defined(__AVX2__)
MB_INLINE float reduce_add(F a) {
  const __m256 eight = _mm256_add_ps(low_half(a), high_half(a));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
MB_INLINE float reduce_max(F a) {
  const __m256 eight = _mm256_max_ps(low_half(a), high_half(a));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
#else
MB_INLINE float reduce_add(F a) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) a.v[i] = a.v[i] + a.v[i + step];
  }
  return a.v[0];
}
MB_INLINE float reduce_max(F a) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) a.v[i] = a.v[i] > a.v[i + step] ? a.v[i] : a.v[i + step];
  }
  return a.v[0];
}
#endif

}  // namespace simd
}  // namespace
