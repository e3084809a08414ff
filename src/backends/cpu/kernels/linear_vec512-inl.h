// The vector words of linear-inl.h for 512-bit registers: 16 rows are one register.
// Included by one unit per instruction set, inside which everything is private.
#pragma once

// GCC's own AVX-512 headers leave operands undefined on purpose and are warned about.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <cstdint>

namespace markbase::backends::cpu {
namespace {

using IVec = __m512i;
using FVec = __m512;
constexpr int kLanes = 16;
constexpr int kVecs = 1;
constexpr int kVecBytes = 64;
constexpr int kTile = 12;
// Row blocks whose panels are multiplied together.
#if defined(__AVX512VNNI__)
constexpr int kPanelBlocks = 2;
constexpr int kFusedTokens = 2;
#else
constexpr int kPanelBlocks = 1;
constexpr int kFusedTokens = 4;
#endif
// Sums that one row of x is spread over, so that the latency of the product does not chain them.
#if defined(__AVX512VNNI__)
constexpr int kMostChains = 4;
#else
constexpr int kMostChains = 1;
#endif

inline IVec load_i(const void* p) { return _mm512_load_si512(p); }
inline void store_i(void* p, IVec v) { _mm512_store_si512(p, v); }
inline IVec zero_i() { return _mm512_setzero_si512(); }
inline IVec set1_i32(int32_t v) { return _mm512_set1_epi32(v); }
inline IVec set1_i16(int v) { return _mm512_set1_epi16(static_cast<int16_t>(v)); }
inline IVec set1_i8(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
inline IVec and_i(IVec a, IVec b) { return _mm512_and_si512(a, b); }
inline IVec or_i(IVec a, IVec b) { return _mm512_or_si512(a, b); }
inline IVec sub16(IVec a, IVec b) { return _mm512_sub_epi16(a, b); }
// The shift counts are constants after unrolling; negative means left.
inline IVec shift16(IVec v, int right) {
  return right >= 0 ? _mm512_srli_epi16(v, static_cast<unsigned>(right))
                    : _mm512_slli_epi16(v, static_cast<unsigned>(-right));
}
inline IVec broadcast16(const uint8_t* p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline IVec look_up(IVec table, IVec codes) { return _mm512_shuffle_epi8(table, codes); }
// acc += w0 * x0 + w1 * x1 in every lane of 16 rows, 16-bit factors, with x0 and x1 at `x`.
inline __attribute__((always_inline)) void dot_step(IVec (&acc)[kVecs], const IVec (&w)[kVecs],
                                                    const uint8_t* x) {
  int32_t pair;
  __builtin_memcpy(&pair, x, 4);
#if defined(__AVX512VNNI__)
  acc[0] = _mm512_dpwssd_epi32(acc[0], w[0], _mm512_set1_epi32(pair));
#else
  acc[0] = _mm512_add_epi32(acc[0], _mm512_madd_epi16(w[0], _mm512_set1_epi32(pair)));
#endif
}
inline IVec add_i32(IVec a, IVec b) { return _mm512_add_epi32(a, b); }
inline FVec to_float(IVec v) { return _mm512_cvtepi32_ps(v); }

inline FVec load_f(const float* p) { return _mm512_load_ps(p); }
inline void store_f(float* p, FVec v) { _mm512_store_ps(p, v); }
inline void store_unaligned(float* p, FVec v) { _mm512_storeu_ps(p, v); }
inline FVec zero_f() { return _mm512_setzero_ps(); }
inline FVec set1_f(float v) { return _mm512_set1_ps(v); }
inline FVec add_f(FVec a, FVec b) { return _mm512_add_ps(a, b); }
inline FVec mul_f(FVec a, FVec b) { return _mm512_mul_ps(a, b); }
inline FVec negate(FVec a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
inline FVec fma_f(FVec a, FVec b, FVec c) { return _mm512_fmadd_ps(a, b, c); }

// kLanes short numbers to floats.
inline __m256i load_16_shorts(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline __m128i load_16_bytes(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline FVec load_half(const uint8_t* p) { return _mm512_cvtph_ps(load_16_shorts(p)); }
inline FVec load_bf16(const uint8_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_16_shorts(p)), 16));
}
inline FVec load_i8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_16_bytes(p)));
}
inline FVec load_u8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_16_bytes(p)));
}
// 2^(code - 128); the codes 0 and 1 are float32 subnormals.
inline FVec load_e8m0(const uint8_t* p) {
  const __m512i code = _mm512_cvtepu8_epi32(load_16_bytes(p));
  const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(code, set1_i32(1)), 23);
  const __m512i small = _mm512_sllv_epi32(set1_i32(0x00200000), code);
  const __mmask16 is_normal = _mm512_cmpgt_epi32_mask(code, set1_i32(1));
  return _mm512_castsi512_ps(_mm512_mask_blend_epi32(is_normal, small, normal));
}
// Sign, four bits of exponent and three of mantissa put where half has them, then 2^8 for the
// difference of the biases; NaN was refused at packing.
inline FVec load_e4m3(const uint8_t* p) {
  const __m256i code = _mm256_cvtepu8_epi16(load_16_bytes(p));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x80)), 8);
  const __m256i rest = _mm256_slli_epi16(_mm256_and_si256(code, _mm256_set1_epi16(0x7f)), 7);
  return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(sign, rest)), _mm512_set1_ps(256.0f));
}

}  // namespace
}  // namespace markbase::backends::cpu
