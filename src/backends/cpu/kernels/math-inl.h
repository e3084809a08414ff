// exp, tanh and gelu_tanh over sixteen lanes: one set of polynomials for all levels.
//
// The coefficients are minimax fits (Remez, relative error) made for these intervals; the error
// bounds below are those of the fit plus the rounding of the steps, and tests hold them against the
// C library in double.
#pragma once

#include "backends/cpu/kernels/simd-inl.h"

namespace {
namespace math {

using simd::F;
using simd::I;

// e^x within 1 ulp (0 below -104, subnormal results included, infinity above 88.73; NaN stays NaN).
// x = n ln2 + r, |r| <= ln2 / 2: e^r = 1 + r + r^2 P(r), P of degree 4 (fit 3.1e-9), times 2^n in
// two factors so that neither overflows before the product does and a subnormal result is rounded
// once.
MB_INLINE F exp(F x) {
  using namespace simd;
  constexpr float kRoundToInteger = 0x1.8p23f;  // a sum near it has no fraction bits left
  // NaN passes: it is the second operand of both.
  x = max(set1(-104.5f), x);
  x = min(set1(89.5f), x);
  const F shifted = fma(x, set1(1.44269504089f), set1(kRoundToInteger));
  const F n = sub(shifted, set1(kRoundToInteger));
  F r = fma(n, set1(-0x1.62e430p-1f), x);     // ln2 rounded to float,
  r = fma(n, set1(1.90465429995776e-9f), r);  // and what the rounding added
  F p = set1(0.00138145401768f);
  p = fma(p, r, set1(0.00836874510894f));
  p = fma(p, r, set1(0.0416683907835f));
  p = fma(p, r, set1(0.16666520399f));
  p = fma(p, r, set1(0.499999934321f));
  const F q = fma(mul(r, r), p, r);
  const I exponent = simd::sub(as_int(shifted), set1_int(0x4b400000u));
  const I half = shift_right_signed<1>(exponent);
  const I rest = simd::sub(exponent, half);
  const F factor_a = as_float(shift_left<23>(simd::add(half, set1_int(127))));
  const F factor_b = as_float(shift_left<23>(simd::add(rest, set1_int(127))));
  return mul(mul(add(set1(1.0f), q), factor_a), factor_b);
}

// Relative error below 2e-7, subnormals and signed zeros exact. Below 0.625: x + x^3 Q(x^2), Q of
// degree 4 (fit 4.2e-9); above: 1 - 2 / (e^2|x| + 1).
MB_INLINE F tanh(F x) {
  using namespace simd;
  const F magnitude = abs(x);
  const F z = mul(x, x);
  F p = set1(-0.00571478156894f);
  p = fma(p, z, set1(0.0206486548347f));
  p = fma(p, z, set1(-0.0537429369646f));
  p = fma(p, z, set1(0.133314849761f));
  p = fma(p, z, set1(-0.333332837097f));
  const F small = fma(mul(magnitude, z), p, magnitude);
  const F grown = math::exp(add(magnitude, magnitude));
  const F large = sub(set1(1.0f), div(set1(2.0f), add(grown, set1(1.0f))));
  return with_sign(select_less(magnitude, set1(0.625f), small, large), x);
}

// 0.5 z (1 + tanh(u)) with u = sqrt(2/pi) (z + 0.044715 z^3) is z / (1 + e^-2u): no cancellation,
// so the relative error stays near that of the exponential where the textbook form has none left (z
// below -3).
MB_INLINE F gelu_tanh(F z) {
  using namespace simd;
  constexpr float kLinear = -1.59576912161f;   // -2 sqrt(2/pi)
  constexpr float kCubic = -0.0713548162726f;  // that times 0.044715
  const F minus_two_u = mul(z, fma(mul(z, z), set1(kCubic), set1(kLinear)));
  return div(z, add(set1(1.0f), math::exp(minus_two_u)));
}

}  // namespace math
}  // namespace
