#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/rope.h"

namespace markbase::ops {
namespace {

// The angle is a float32 product, as the reference forms it; at far positions its rounding is
// larger than that of the sine, so the angle's own rounding must not be skipped.
TEST(RopeTable, HoldsCosineAndSineOfTheFloatAngle) {
  const std::vector<float> inv_freq = {1.0F, 0.31622776F, 0.1F, 1e-4F, 7e-7F};
  std::vector<float> row(10);
  for (int32_t p = 0; p < 300'000; p += 37) {
    fill_rope_row(inv_freq, p, row.data());
    for (size_t k = 0; k < inv_freq.size(); ++k) {
      const volatile float angle = static_cast<float>(p) * inv_freq[k];
      ASSERT_EQ(row[k], static_cast<float>(std::cos(double{angle}))) << p << " " << k;
      ASSERT_EQ(row[k + 5], static_cast<float>(std::sin(double{angle}))) << p << " " << k;
    }
  }
}

TEST(RopeTable, KnownAngles) {
  const std::vector<float> inv_freq = {1.57079632679F, 0.0F};
  const auto row = [&](int32_t position) {
    std::vector<float> out(6, -7.0F);
    fill_rope_row(inv_freq, position, out.data());
    EXPECT_EQ(out[4], -7.0F);  // nothing behind the row
    EXPECT_EQ(out[1], 1.0F);   // no frequency
    EXPECT_EQ(out[3], 0.0F);
    return out;
  };
  EXPECT_EQ(row(0)[0], 1.0F);
  EXPECT_EQ(row(0)[2], 0.0F);
  EXPECT_NEAR(row(1)[0], 0.0F, 1e-6F);   // cos(pi / 2)
  EXPECT_NEAR(row(1)[2], 1.0F, 1e-6F);   // sin(pi / 2)
  EXPECT_NEAR(row(2)[0], -1.0F, 1e-6F);  // cos(pi)
}

}  // namespace
}  // namespace markbase::ops
