#include "runtime/tools/bench_arrivals.h"

#include <gtest/gtest.h>

#include <numeric>

namespace markbase::runtime {
namespace {

TEST(Percentile, IsTheLeastThatSoManyDoNotExceed) {
  std::vector<double> hundred(100);
  std::iota(hundred.rbegin(), hundred.rend(), 1.0);
  EXPECT_EQ(percentile(hundred, 50), 50);
  EXPECT_EQ(percentile(hundred, 55), 55);
  EXPECT_EQ(percentile(hundred, 95), 95);
  EXPECT_EQ(percentile(hundred, 99), 99);
  EXPECT_EQ(percentile(hundred, 100), 100);
  EXPECT_EQ(percentile(hundred, 0.1), 1);
  EXPECT_EQ(percentile({7}, 50), 7);
  EXPECT_EQ(percentile({7}, 99), 7);
  // The table of the nearest-rank method in textbooks.
  const std::vector<double> five = {35, 20, 15, 50, 40};
  EXPECT_EQ(percentile(five, 5), 15);
  EXPECT_EQ(percentile(five, 30), 20);
  EXPECT_EQ(percentile(five, 40), 20);
  EXPECT_EQ(percentile(five, 50), 35);
  EXPECT_EQ(percentile(five, 100), 50);
}

}  // namespace
}  // namespace markbase::runtime
