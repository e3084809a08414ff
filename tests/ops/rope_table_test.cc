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
  constexpr int64_t kEnd = 40000;
  std::vector<float> table(static_cast<size_t>(kEnd) * 10);
  fill_rope_table(inv_freq, 0, kEnd, table.data());
  for (int64_t p = 0; p < kEnd; p += 37) {
    for (size_t k = 0; k < inv_freq.size(); ++k) {
      const volatile float angle = static_cast<float>(p) * inv_freq[k];
      const auto at = static_cast<size_t>(p) * 10 + k;
      ASSERT_EQ(table[at], static_cast<float>(std::cos(double{angle}))) << p << " " << k;
      ASSERT_EQ(table[at + 5], static_cast<float>(std::sin(double{angle}))) << p << " " << k;
    }
  }
}

TEST(RopeTable, KnownAngles) {
  const std::vector<float> inv_freq = {1.57079632679F, 0.0F};
  std::vector<float> table(5 * 4, -7.0F);
  fill_rope_table(inv_freq, 0, 5, table.data());
  EXPECT_NEAR(table[4], 0.0F, 1e-6F);      // cos(pi / 2)
  EXPECT_NEAR(table[4 + 2], 1.0F, 1e-6F);  // sin(pi / 2)
  EXPECT_NEAR(table[8], -1.0F, 1e-6F);     // cos(pi)
  EXPECT_EQ(table[0], 1.0F);
  EXPECT_EQ(table[2], 0.0F);
  for (size_t p = 0; p < 5; ++p) {
    EXPECT_EQ(table[4 * p + 1], 1.0F);
    EXPECT_EQ(table[4 * p + 3], 0.0F);
  }
}

TEST(RopeTable, FillsOnlyTheRowsAsked) {
  const std::vector<float> inv_freq = {0.5F, 0.25F};
  std::vector<float> whole(8 * 4);
  fill_rope_table(inv_freq, 0, 8, whole.data());
  std::vector<float> part(8 * 4, -7.0F);
  fill_rope_table(inv_freq, 3, 5, part.data());
  for (size_t i = 0; i < part.size(); ++i) {
    EXPECT_EQ(part[i], i >= 12 && i < 20 ? whole[i] : -7.0F) << i;
  }
}

}  // namespace
}  // namespace markbase::ops
