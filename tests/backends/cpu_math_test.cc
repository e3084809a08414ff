// exp, tanh and gelu_tanh of the CPU kernels: against long double within their stated bounds, and
// level against level by bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backends/cpu/kernels/vector_kernels.h"
#include "cpu_vector_support.h"

namespace markbase::test {
namespace {

using backends::cpu::vector_kernels;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

// Floats of both signs, of every exponent, stepping through the bits; and the edges.
std::vector<float> probes() {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < 0x7f800000u; bits += 4001) {
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
    x.push_back(-x.back());
  }
  for (int i = -200'000; i <= 200'000; ++i) x.push_back(static_cast<float>(i) * 0x1.11p-11F);
  for (const float edge :
       {0.0F, -0.0F, kInf, -kInf, kNan, kDenormal, -kDenormal, 88.7228F, 88.7229F, -87.3365F,
        -103.97F, -103.98F, -104.5F, 0.625F, -0.625F, 3.4e38F}) {
    x.push_back(edge);
  }
  return x;
}

using Function = void (*)(const float*, float*, int64_t);

std::vector<float> apply(Function function, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  function(x.data(), y.data(), static_cast<int64_t>(x.size()));
  return y;
}

// Distance from the exact value in units of the last place of a float near it (subnormals
// included).
double ulps(float got, long double exact) {
  const int exponent =
      std::max(-126, exact == 0.0L ? -126 : std::ilogb(static_cast<double>(std::fabs(exact))));
  return static_cast<double>(std::fabs(got - exact) / std::ldexp(1.0L, exponent - 23));
}

TEST(CpuVectorMath, ExpIsWithinOneUlp) {
  const std::vector<float> x = probes();
  const std::vector<float> y = apply(generic().exp, x);
  double worst = 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      EXPECT_TRUE(std::isnan(y[i]));
      continue;
    }
    const long double exact = std::exp(static_cast<long double>(x[i]));
    if (exact >= 0x1.ffffffp127L) {
      EXPECT_EQ(y[i], kInf) << x[i];
    } else if (x[i] < -105.0F) {
      EXPECT_EQ(y[i], 0.0F) << x[i];
    } else {
      worst = std::max(worst, ulps(y[i], exact));
      ASSERT_LE(ulps(y[i], exact), 1.0) << x[i];
    }
  }
  EXPECT_GT(worst, 0.4);  // the probes do reach the rounding
  EXPECT_EQ(apply(generic().exp, {0.0F, -0.0F, -kInf, kInf}),
            (std::vector<float>{1.0F, 1.0F, 0.0F, kInf}));
}

TEST(CpuVectorMath, TanhIsWithinItsRelativeBound) {
  const std::vector<float> x = probes();
  const std::vector<float> y = apply(generic().tanh, x);
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      EXPECT_TRUE(std::isnan(y[i]));
      continue;
    }
    const long double exact = std::tanh(static_cast<long double>(x[i]));
    const double bound = 2e-7 * static_cast<double>(std::fabs(exact));
    ASSERT_LE(std::fabs(static_cast<double>(y[i] - exact)), bound) << x[i];
    ASSERT_EQ(std::signbit(y[i]), std::signbit(x[i])) << x[i];
  }
}

TEST(CpuVectorMath, GeluIsWithinItsBoundOfTheDefinition) {
  const std::vector<float> x = probes();
  const std::vector<float> y = apply(generic().gelu_tanh, x);
  const long double root = std::sqrt(2.0L / 3.14159265358979323846L);
  for (size_t i = 0; i < x.size(); ++i) {
    const long double z = x[i];
    if (std::isnan(x[i]) || x[i] == -kInf) continue;
    if (x[i] == kInf) {
      EXPECT_EQ(y[i], kInf);
      continue;
    }
    // 1 + tanh(u) = 2 / (1 + e^-2u), which long double can evaluate far into the tail.
    const long double minus_2u = -2.0L * root * (z + 0.044715L * z * z * z);
    const long double exact = z / (1.0L + std::exp(minus_2u));
    // Rounding of the argument is amplified by its size while the tail lasts; the other steps are
    // half units.
    const long double argument = minus_2u > 0 ? std::min(minus_2u, 110.0L) : 0.0L;
    const long double bound = std::fabs(exact) * kEpsilon * (6.0L + 5.0L * argument);
    ASSERT_LE(std::fabs(y[i] - exact), bound + 3e-37L) << x[i];
    if (std::fabs(z) < 4.0L) {
      const long double textbook = 0.5L * z * (1.0L + std::tanh(-minus_2u / 2.0L));
      ASSERT_LE(std::fabs(y[i] - textbook), bound + 1e-18L) << x[i];
    }
  }
}

TEST(CpuVectorMath, EveryLevelGivesTheSameBits) {
  const std::vector<float> x = probes();
  const std::vector<float> exp = apply(generic().exp, x);
  const std::vector<float> tanh = apply(generic().tanh, x);
  const std::vector<float> gelu = apply(generic().gelu_tanh, x);
  for (const CpuIsa isa : levels_here()) {
    SCOPED_TRACE(backends::cpu_isa_name(isa));
    const VectorKernels& kernels = vector_kernels(isa);
    EXPECT_TRUE(same_bits(apply(kernels.exp, x), exp));
    EXPECT_TRUE(same_bits(apply(kernels.tanh, x), tanh));
    EXPECT_TRUE(same_bits(apply(kernels.gelu_tanh, x), gelu));
  }
}

// Rope's second half with all sines 1 is fma(b, cosine, a): here on operands whose sums fall
// halfway between floats, are subnormal or cancel, where a product or sum rounded twice would show.
TEST(CpuVectorMath, FusedProductRoundsOnceOnEveryLevel) {
  constexpr int64_t kHalf = 1 << 16;
  Noise noise(41);
  const auto any_float = [&noise](uint32_t lowest_exponent, uint32_t num_exponents, uint32_t mask) {
    const auto random = static_cast<uint64_t>((noise.uniform() + 1.0) * 0x1p51);
    const auto mantissa = static_cast<uint32_t>(random) & 0x807fffffu & mask;
    const auto exponent = lowest_exponent + static_cast<uint32_t>(random >> 32) % num_exponents;
    return std::bit_cast<float>(mantissa | (exponent << 23));
  };
  for (int kind = 0; kind < 5; ++kind) {
    std::vector<float> x(2 * kHalf);
    std::vector<float> table(2 * kHalf, 1.0F);
    for (int64_t i = 0; i < kHalf; ++i) {
      const auto k = static_cast<size_t>(i);
      float& a = x[k];
      float& b = x[k + kHalf];
      float& cosine = table[k];
      const uint32_t mask = kind == 1 ? 0xfffff000u : kind == 2 ? 0xffff0000u : 0xffffffffu;
      b = any_float(kind == 3 ? 60 : 120, 10, mask);
      cosine = any_float(kind == 3 ? 40 : 120, 28, mask);
      a = kind == 4 ? -b * cosine : any_float(kind == 3 ? 0 : 110, 30, mask);
    }
    for (const CpuIsa isa : levels_here()) {
      std::vector<float> y = x;
      vector_kernels(isa).rope(y.data(), table.data(), 2 * kHalf, kHalf);
      for (size_t i = 0; i < kHalf; ++i) {
        const float exact = std::fma(x[i + kHalf], table[i], x[i]);
        ASSERT_EQ(std::bit_cast<uint32_t>(y[i + kHalf]), std::bit_cast<uint32_t>(exact))
            << backends::cpu_isa_name(isa) << " kind " << kind << ": " << x[i + kHalf] << " * "
            << table[i] << " + " << x[i];
      }
    }
  }
}

}  // namespace
}  // namespace markbase::test
