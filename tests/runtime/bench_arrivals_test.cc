#include "runtime/tools/bench_arrivals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "support/golden.h"

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

// Times of arrival that no clock holds would all be the same.
TEST(BenchArrivals, RatesThatNoClockHoldsAreRefused) {
  EngineOptions engine;
  engine.backend = BackendKind::kCpu;
  engine.num_threads = 1;
  const auto message_of = [&](double per_s, int64_t requests) -> std::string {
    tools::BenchOptions options;
    options.prefill_tokens = {8};
    options.decode_tokens = 1;
    options.batches = {1};
    options.repetitions = 1;
    options.arrivals = {.requests = requests, .per_s = per_s, .seed = 1};
    const auto document =
        bench_arrivals(testing::golden_path("tiny_gemma3_gguf/tiny.gguf"), engine, options);
    if (document.ok()) return "taken";
    EXPECT_EQ(document.error().code, ErrorCode::kUsage);
    return document.error().message;
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double rate : {1e-300, 5e-324, 1e-9, 1e10, 1e300, kInfinity, -1.0, std::nan("")}) {
    EXPECT_NE(message_of(rate, 4).find("bench: --rate: expected"), std::string::npos) << rate;
  }
  EXPECT_NE(message_of(1e-5, 2000).find("--rate"), std::string::npos);
  for (const double rate : {0.0, 1e3, 1e9}) EXPECT_EQ(message_of(rate, 4), "taken") << rate;
}

}  // namespace
}  // namespace markbase::runtime
