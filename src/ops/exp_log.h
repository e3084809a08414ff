// exp and log in double for results that must be the same everywhere: our own, because the
// libraries' differ in the last bit. Plain operations, each rounded once.
#pragma once

#include <bit>
#include <cstdint>

namespace markbase::ops {

inline constexpr double kLn2High = 0x1.62e42fefp-1;  // 33 bits: times an exponent it is exact
inline constexpr double kLn2Low = 0x1.473de6af278edp-34;

// exp(x) for -104 <= x <= 0 within 2e-14 relative.
inline double exp_of(double x) {
  constexpr double kLog2E = 1.4426950408889634;
  constexpr double kRound = 0x1.8p52;  // adding and taking it away rounds to an integer
  const double shifted = x * kLog2E + kRound;
  const double k = shifted - kRound;
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| <= ln(2) / 2
  // Taylor to r^11; the next term is below 7e-15.
  double p = 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  // The low bits of `shifted` are k; in the exponent's place they make 2^k.
  return p * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023u) << 52);
}

// log(x) for finite x >= 1 within 1e-15 of the result or of 1, whichever is larger.
inline double log_of(double x) {
  constexpr uint64_t kFraction = (uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<double>(static_cast<int64_t>(bits >> 52) - 1023);
  double m = std::bit_cast<double>((bits & kFraction) | (uint64_t{1023} << 52));  // in [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    exponent += 1.0;
  }
  // log m = 2 atanh(f); |f| <= 0.1716, so that the term after f^21 is below 1e-18.
  const double f = (m - 1.0) / (m + 1.0);
  const double z = f * f;
  double p = 1.0 / 21.0;
  for (int n = 19; n >= 1; n -= 2) p = p * z + 1.0 / n;
  return exponent * kLn2High + (2.0 * f * p + exponent * kLn2Low);
}

}  // namespace markbase::ops
