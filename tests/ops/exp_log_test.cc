// Against the C library, in long double.
#include "ops/exp_log.h"

#include <gtest/gtest.h>

#include <cmath>

namespace markbase::ops {
namespace {

TEST(ExpLog, ExpIsWithinItsBound) {
  for (int i = 0; i <= 104000; ++i) {
    const double x = -i * 0x1.05p-10;
    if (x < -104.0) break;
    const long double exact = std::exp(static_cast<long double>(x));
    ASSERT_LE(std::fabs((exp_of(x) - exact) / exact), 2e-14L) << x;
  }
  EXPECT_EQ(exp_of(0.0), 1.0);
}

TEST(ExpLog, LogIsWithinItsBound) {
  EXPECT_EQ(log_of(1.0), 0.0);
  // Close above 1, around the square root of 2 and of every power of 2, and to the largest.
  for (int exponent = 0; exponent < 1024; ++exponent) {
    for (int i = 0; i < 300; ++i) {
      const double m = i < 50 ? 1.0 + std::ldexp(1.0, -2 - i) : 1.0 + i / 300.0;
      const double x = std::ldexp(m, exponent);
      const long double exact = std::log(static_cast<long double>(x));
      ASSERT_LE(std::fabs(log_of(x) - exact), 1e-15L * std::max(1.0L, exact)) << x;
    }
  }
  // Of what is hardly above 1 the logarithm keeps its relative precision.
  EXPECT_NEAR(log_of(1.0 + 0x1p-40) / 0x1p-40, 1.0, 1e-12);
}

}  // namespace
}  // namespace markbase::ops
