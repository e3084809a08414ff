// The vector words of linear-inl.h for 256-bit registers: 16 rows are two registers.
// Included by one unit per instruction set, inside which everything is private.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace markbase::backends::cpu {
namespace {

using IVec = __m256i;
using FVec = __m256;
constexpr int kLanes = 8;
constexpr int kVecs = 2;
constexpr int kVecBytes = 32;
// 6 rows of x: 12 sums, two words of weights and one of x fill the 16 registers.
constexpr int kTile = 6;
constexpr int kPanelBlocks = 1;
constexpr int kFusedTokens = 2;
// Sums that one row of x is spread over, so that the latency of the product does not chain them.
#if defined(__AVXVNNI__)
constexpr int kMostChains = 2;
#else
constexpr int kMostChains = 1;
#endif

inline IVec load_i(const void* p) { return _mm256_load_si256(static_cast<const __m256i*>(p)); }
inline void store_i(void* p, IVec v) { _mm256_store_si256(static_cast<__m256i*>(p), v); }
inline IVec zero_i() { return _mm256_setzero_si256(); }
inline IVec set1_i32(int32_t v) { return _mm256_set1_epi32(v); }
inline IVec set1_i16(int v) { return _mm256_set1_epi16(static_cast<int16_t>(v)); }
inline IVec set1_i8(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
inline IVec and_i(IVec a, IVec b) { return _mm256_and_si256(a, b); }
inline IVec or_i(IVec a, IVec b) { return _mm256_or_si256(a, b); }
inline IVec sub16(IVec a, IVec b) { return _mm256_sub_epi16(a, b); }
// The shift counts are constants after unrolling; negative means left.
inline IVec shift16(IVec v, int right) {
  return right >= 0 ? _mm256_srli_epi16(v, right) : _mm256_slli_epi16(v, -right);
}
inline IVec broadcast16(const uint8_t* p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline IVec look_up(IVec table, IVec codes) { return _mm256_shuffle_epi8(table, codes); }
// acc += w0 * x0 + w1 * x1 in every lane of 16 rows, 16-bit factors, with x0 and x1 at `x`. In
// assembly because the compiler otherwise computes all products of a tile first and spills the
// sums.
inline __attribute__((always_inline)) void dot_step(IVec (&acc)[kVecs], const IVec (&w)[kVecs],
                                                    const uint8_t* x) {
  const int32_t& pair = *reinterpret_cast<const int32_t*>(x);
  IVec factor;
#if defined(__AVXVNNI__)
  __asm__(
      "vpbroadcastd %[pair], %[factor]\n\t"
      "%{vex%} vpdpwssd %[factor], %[w0], %[acc0]\n\t"
      "%{vex%} vpdpwssd %[factor], %[w1], %[acc1]"
      : [acc0] "+x"(acc[0]), [acc1] "+x"(acc[1]), [factor] "=&x"(factor)
      : [w0] "x"(w[0]), [w1] "x"(w[1]), [pair] "m"(pair));
#else
  IVec product;
  __asm__(
      "vpbroadcastd %[pair], %[factor]\n\t"
      "vpmaddwd %[factor], %[w0], %[product]\n\t"
      "vpmaddwd %[factor], %[w1], %[factor]\n\t"
      "vpaddd %[product], %[acc0], %[acc0]\n\t"
      "vpaddd %[factor], %[acc1], %[acc1]"
      : [acc0] "+x"(acc[0]), [acc1] "+x"(acc[1]), [factor] "=&x"(factor), [product] "=&x"(product)
      : [w0] "x"(w[0]), [w1] "x"(w[1]), [pair] "m"(pair));
#endif
}
inline IVec add_i32(IVec a, IVec b) { return _mm256_add_epi32(a, b); }
inline FVec to_float(IVec v) { return _mm256_cvtepi32_ps(v); }

inline FVec load_f(const float* p) { return _mm256_load_ps(p); }
inline void store_f(float* p, FVec v) { _mm256_store_ps(p, v); }
inline void store_unaligned(float* p, FVec v) { _mm256_storeu_ps(p, v); }
inline FVec zero_f() { return _mm256_setzero_ps(); }
inline FVec set1_f(float v) { return _mm256_set1_ps(v); }
inline FVec add_f(FVec a, FVec b) { return _mm256_add_ps(a, b); }
inline FVec mul_f(FVec a, FVec b) { return _mm256_mul_ps(a, b); }
inline FVec negate(FVec a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
inline FVec fma_f(FVec a, FVec b, FVec c) { return _mm256_fmadd_ps(a, b, c); }

// kLanes short numbers to floats.
inline FVec load_half(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline FVec load_bf16(const uint8_t* p) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline __m128i load_8_bytes(const uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
inline FVec load_i8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_8_bytes(p)));
}
inline FVec load_u8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_8_bytes(p)));
}
// 2^(code - 128); the codes 0 and 1 are float32 subnormals.
inline FVec load_e8m0(const uint8_t* p) {
  const __m256i code = _mm256_cvtepu8_epi32(load_8_bytes(p));
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(code, set1_i32(1)), 23);
  const __m256i small = _mm256_sllv_epi32(set1_i32(0x00200000), code);
  const __m256i is_normal = _mm256_cmpgt_epi32(code, set1_i32(1));
  return _mm256_castsi256_ps(_mm256_blendv_epi8(small, normal, is_normal));
}
// Sign, four bits of exponent and three of mantissa put where half has them, then 2^8 for the
// difference of the biases; NaN was refused at packing.
inline FVec load_e4m3(const uint8_t* p) {
  const __m128i code = _mm_cvtepu8_epi16(load_8_bytes(p));
  const __m128i sign = _mm_slli_epi16(_mm_and_si128(code, _mm_set1_epi16(0x80)), 8);
  const __m128i rest = _mm_slli_epi16(_mm_and_si128(code, _mm_set1_epi16(0x7f)), 7);
  return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(sign, rest)), _mm256_set1_ps(256.0f));
}

}  // namespace
}  // namespace markbase::backends::cpu
