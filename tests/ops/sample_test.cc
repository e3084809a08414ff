#include "ops/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "support/allocation_counter.h"
#include "support/random.h"

namespace markbase::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<Candidate> distribution(std::vector<float> logits, const SamplingParams& params,
                                    const std::vector<int32_t>& suppressed = {},
                                    const std::vector<uint32_t>& seen = {}) {
  std::vector<Candidate> candidates(logits.size());
  const int64_t n = sampling_distribution(logits, params, suppressed, seen, candidates);
  candidates.resize(static_cast<size_t>(n));
  return candidates;
}

int32_t sample(std::vector<float> logits, const SamplingParams& params, int32_t position = 0,
               const std::vector<int32_t>& suppressed = {}) {
  std::vector<Candidate> candidates(logits.size());
  std::vector<uint32_t> seen((logits.size() + 31) / 32);
  return sample_row(logits, params, position, suppressed, seen, candidates);
}

// log(p) as logits, so that the distribution is p.
std::vector<float> logs(std::initializer_list<double> probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

void expect_distribution(const std::vector<Candidate>& got,
                         std::initializer_list<std::pair<int32_t, double>> expected) {
  ASSERT_EQ(got.size(), expected.size());
  size_t i = 0;
  for (const auto& [id, probability] : expected) {
    EXPECT_EQ(got[i].id, id) << i;
    EXPECT_NEAR(got[i].value, probability, 1e-6) << i;
    ++i;
  }
}

const std::vector<float> kFive = logs({0.1, 0.4, 0.05, 0.3, 0.15});

TEST(Sampling, PlainSoftmax) {
  expect_distribution(distribution(kFive, {}),
                      {{1, 0.4}, {3, 0.3}, {4, 0.15}, {0, 0.1}, {2, 0.05}});
}

TEST(Sampling, TemperatureDividesLogits) {
  // At 0.5 the probabilities are squared: 0.16, 0.09, 0.0225, 0.01, 0.0025, sum 0.285.
  expect_distribution(distribution(kFive, {.temperature = 0.5F}), {{1, 0.16 / 0.285},
                                                                   {3, 0.09 / 0.285},
                                                                   {4, 0.0225 / 0.285},
                                                                   {0, 0.01 / 0.285},
                                                                   {2, 0.0025 / 0.285}});
}

TEST(Sampling, TopKKeepsTheHighest) {
  expect_distribution(distribution(kFive, {.top_k = 2}), {{1, 0.4 / 0.7}, {3, 0.3 / 0.7}});
  expect_distribution(distribution(kFive, {.top_k = 1}), {{1, 1.0}});
  EXPECT_EQ(distribution(kFive, {.top_k = 100}).size(), 5u);
  EXPECT_EQ(distribution(kFive, {.top_k = 0}).size(), 5u);
}

TEST(Sampling, TopKTiesGoToLowerIds) {
  expect_distribution(distribution({1, 2, 1, 2, 1, 1}, {.top_k = 3}),
                      {{1, 1.0 / (2.0 + std::exp(-1.0))},
                       {3, 1.0 / (2.0 + std::exp(-1.0))},
                       {0, std::exp(-1.0) / (2.0 + std::exp(-1.0))}});
}

TEST(Sampling, TopPKeepsWhatReachesTheMass) {
  // Kept until the mass before an id reaches p: 0, 0.4, 0.7, 0.85, 0.95.
  EXPECT_EQ(distribution(kFive, {.top_p = 0.3F}).size(), 1u);
  EXPECT_EQ(distribution(kFive, {.top_p = 0.6F}).size(), 2u);
  expect_distribution(distribution(kFive, {.top_p = 0.8F}),
                      {{1, 0.4 / 0.85}, {3, 0.3 / 0.85}, {4, 0.15 / 0.85}});
  EXPECT_EQ(distribution(kFive, {.top_p = 0.9F}).size(), 4u);
  EXPECT_EQ(distribution(kFive, {.top_p = 1.0F}).size(), 5u);
  EXPECT_EQ(distribution(kFive, {.top_p = 0.0F}).size(), 1u);
}

TEST(Sampling, TopPCountsOnlyWhatTopKLeft) {
  // Of 0.4, 0.3, 0.15 the first two hold 0.82 of the mass, the first 0.47.
  EXPECT_EQ(distribution(kFive, {.top_k = 3, .top_p = 0.83F}).size(), 3u);
  EXPECT_EQ(distribution(kFive, {.top_k = 3, .top_p = 0.81F}).size(), 2u);
}

TEST(Sampling, MinPIsRelativeToTheBest) {
  EXPECT_EQ(distribution(kFive, {.min_p = 0.2F}).size(), 4u);   // 0.08
  EXPECT_EQ(distribution(kFive, {.min_p = 0.26F}).size(), 3u);  // 0.104
  EXPECT_EQ(distribution(kFive, {.min_p = 1.0F}).size(), 1u);
  EXPECT_EQ(distribution(kFive, {.top_p = 0.6F, .min_p = 0.2F}).size(), 2u);
}

TEST(Sampling, PenaltyDividesPositiveAndMultipliesNegative) {
  const std::vector<uint32_t> seen = {0b1010};
  // 2 -> 1 and -1 -> -2.
  const double total = std::exp(1.0) + std::exp(1.0) + std::exp(-1.0) + std::exp(-2.0);
  expect_distribution(distribution({1, 2, -1, -1}, {.repetition_penalty = 2.0F}, {}, seen),
                      {{0, std::exp(1.0) / total},
                       {1, std::exp(1.0) / total},
                       {2, std::exp(-1.0) / total},
                       {3, std::exp(-2.0) / total}});
  // Bits beyond the vocabulary do no harm.
  EXPECT_EQ(distribution({1, 2}, {.repetition_penalty = 2.0F}, {}, {0xffffffff}).size(), 2u);
}

TEST(Sampling, GreedyTakesTheHighestAfterSuppressionAndPenalty) {
  const SamplingParams greedy{.temperature = 0.0F};
  EXPECT_EQ(sample({1, 5, 3, 5, 2}, greedy), 1);
  EXPECT_EQ(sample({1, 5, 3, 5, 2}, greedy, 0, {1}), 3);
  EXPECT_EQ(sample({1, 5, 3, 5, 2}, greedy, 0, {1, 3}), 2);
  expect_distribution(
      distribution({1, 5, 4}, {.temperature = 0.0F, .repetition_penalty = 2.0F}, {}, {0b010}),
      {{2, 1.0}});
  std::vector<float> wide(262144, -1.0F);
  wide[262143] = 0.5F;
  EXPECT_EQ(sample(wide, greedy), 262143);
  wide[131071] = 0.5F;
  EXPECT_EQ(sample(wide, greedy), 131071);
}

TEST(Sampling, NothingIsChosenFromBrokenRows) {
  for (const float temperature : {0.0F, 1.0F}) {
    for (const float broken : {kNaN, kInfinity}) {
      for (size_t at = 0; at < 40; ++at) {
        std::vector<float> logits(40, 1.0F);
        logits[at] = broken;
        EXPECT_EQ(sample(logits, {.temperature = temperature}), -1) << at;
        EXPECT_TRUE(distribution(logits, {.temperature = temperature}).empty());
      }
    }
    EXPECT_EQ(sample({-kInfinity, -kInfinity}, {.temperature = temperature}), -1);
    EXPECT_EQ(sample({1, 2}, {.temperature = temperature}, 0, {0, 1}), -1);
  }
}

TEST(Sampling, ExtremeTemperatures) {
  EXPECT_EQ(sample({1, 3, 2}, {.temperature = 1e-44F}), 1);
  EXPECT_EQ(sample({-1, -3, -2}, {.temperature = 1e-44F}), 0);
  const auto flat = distribution({1, 3, 2}, {.temperature = 1e30F});
  ASSERT_EQ(flat.size(), 3u);
  for (const Candidate& c : flat) EXPECT_NEAR(c.value, 1.0 / 3.0, 1e-6);
}

TEST(Sampling, IdsWithoutProbabilityAreNeverKept) {
  EXPECT_EQ(distribution({0, -kInfinity, -200, -1}, {}).size(), 2u);
  EXPECT_EQ(distribution({0, -kInfinity, -200, -1}, {.top_k = 4}).size(), 2u);
}

TEST(Sampling, TheChosenIdIsRemembered) {
  std::vector<float> logits(100, 0.0F);
  logits[70] = 9.0F;
  std::vector<Candidate> candidates(100);
  std::vector<uint32_t> seen = {1, 0, 0, 0};
  EXPECT_EQ(sample_row(logits, {.temperature = 0.0F}, 0, {}, seen, candidates), 70);
  EXPECT_EQ(seen, (std::vector<uint32_t>{1, 0, 1u << 6, 0}));
}

TEST(Sampling, TheDrawIsFixedBySeedAnswerAndPosition) {
  // u = (53 bits of philox) / 2^53; the first id by falling probability whose cumulative sum
  // exceeds it.
  const auto expected = [](uint64_t seed, uint32_t answer, uint32_t position) {
    const PhiloxBlock block = philox4x32(seed, answer, position);
    const uint64_t bits = (uint64_t{block.word[0]} << 21) | (block.word[1] >> 11);
    const double u = static_cast<double>(bits) * 0x1p-53;
    const std::pair<int32_t, double> ranked[] = {
        {1, 0.4}, {3, 0.3}, {4, 0.15}, {0, 0.1}, {2, 0.05}};
    double mass = 0.0;
    for (const auto& [id, probability] : ranked) {
      mass += probability;
      if (mass > u) return id;
    }
    return 2;
  };
  for (uint64_t seed : {0ull, 1ull, 0x123456789abcdefull}) {
    for (uint32_t answer = 0; answer < 3; ++answer) {
      for (int32_t position = 0; position < 200; ++position) {
        const SamplingParams params{.seed = seed, .answer_idx = answer};
        ASSERT_EQ(sample(kFive, params, position),
                  expected(seed, answer, static_cast<uint32_t>(position)));
      }
    }
  }
}

// Filters that remove nothing, or the whole ranking, must not change the draw.
TEST(Sampling, DrawsAgreeWithAndWithoutFilters) {
  const std::vector<float> logits = testing::random_floats(7, 5000, 4.0F);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const int32_t plain = sample(logits, {.seed = seed});
    EXPECT_EQ(sample(logits, {.top_k = 5000, .seed = seed}), plain);
    EXPECT_EQ(sample(logits, {.min_p = 1e-45F, .seed = seed}), plain);
  }
}

TEST(Sampling, FrequenciesFollowTheDistribution) {
  const std::vector<float> logits = testing::random_floats(8, 300, 1.5F);
  const SamplingParams params{.temperature = 0.8F, .top_k = 20, .top_p = 0.9F};
  const auto expected = distribution(logits, params);
  constexpr int kDraws = 20000;
  std::vector<int> counts(300);
  for (int i = 0; i < kDraws; ++i) {
    SamplingParams draw = params;
    draw.seed = 9;
    ++counts[static_cast<size_t>(sample(logits, draw, i))];
  }
  double chi_square = 0.0;
  int num_drawn = 0;
  for (const Candidate& c : expected) {
    const double mean = double{c.value} * kDraws;
    const int count = counts[static_cast<size_t>(c.id)];
    chi_square += (count - mean) * (count - mean) / mean;
    num_drawn += count;
  }
  EXPECT_EQ(num_drawn, kDraws);
  // Mean n - 1, deviation sqrt(2 (n - 1)): five deviations.
  const double n = static_cast<double>(expected.size());
  EXPECT_LT(chi_square, n - 1 + 5.0 * std::sqrt(2.0 * (n - 1)));
}

// A wide row against the same formulas in the plainest form, in double.
TEST(Sampling, WideRowsMatchPlainSoftmax) {
  const std::vector<float> logits = testing::random_floats(10, 50000, 8.0F);
  const auto got = distribution(logits, {});
  const float best = *std::max_element(logits.begin(), logits.end());
  double total = 0.0;
  for (const float l : logits) total += std::exp(double{l} - double{best});
  ASSERT_GT(got.size(), 40000u);
  for (size_t i = 0; i < got.size(); ++i) {
    const double logit = logits[static_cast<size_t>(got[i].id)];
    const double expected = std::exp(logit - double{best}) / total;
    ASSERT_NEAR(got[i].value, expected, expected * 2e-7 + 1e-44) << i;
    if (i == 0) continue;
    ASSERT_LE(logit, logits[static_cast<size_t>(got[i - 1].id)]);
  }
}

TEST(Sampling, AllocatesNothing) {
  if (!testing::AllocationCounter::available()) GTEST_SKIP();
  std::vector<float> logits = testing::random_floats(11, 262144, 3.0F);
  std::vector<Candidate> candidates(logits.size());
  std::vector<uint32_t> seen(8192);
  const testing::AllocationCounter counter;
  for (const SamplingParams& params :
       {SamplingParams{}, SamplingParams{.top_k = 64, .top_p = 0.95F},
        SamplingParams{.top_p = 0.9F, .repetition_penalty = 1.1F}}) {
    sample_row(logits, params, 1, {}, seen, candidates);
  }
  EXPECT_EQ(counter.count(), 0);
}

}  // namespace
}  // namespace markbase::ops
