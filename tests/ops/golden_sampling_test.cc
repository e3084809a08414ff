// Against the logits processors of transformers, and Philox against an independent generator.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "base/json.h"
#include "ops/sample.h"
#include "support/golden.h"

namespace markbase::ops {
namespace {

using base::Json;

const Json& golden(Json& storage) {
  auto parsed =
      base::parse_json(testing::read_file(testing::golden_path("sampling.json")), "sampling.json");
  if (!parsed.ok()) ADD_FAILURE() << parsed.error().message;
  storage = std::move(parsed).value();
  return storage;
}

std::vector<Candidate> distribution_of(const Json& test_case) {
  auto logits = test_case["logits"].get<std::vector<float>>();
  const auto suppressed = test_case["suppress"].get<std::vector<int32_t>>();
  std::vector<uint32_t> seen((logits.size() + 31) / 32);
  for (const size_t id : test_case["seen"].get<std::vector<size_t>>()) {
    seen[id / 32] |= 1u << (id % 32);
  }
  const SamplingParams params{.temperature = test_case["temperature"].get<float>(),
                              .top_k = test_case["top_k"].get<int32_t>(),
                              .top_p = test_case["top_p"].get<float>(),
                              .min_p = test_case["min_p"].get<float>(),
                              .repetition_penalty = test_case["repetition_penalty"].get<float>()};
  std::vector<Candidate> candidates(logits.size());
  const int64_t n = sampling_distribution(logits, params, suppressed, seen, candidates);
  candidates.resize(static_cast<size_t>(n));
  return candidates;
}

// Our weights are float32 and end in its subnormals, those of the golden go further down.
constexpr double kTiny = 1e-40;

void expect_probability(double got, double expected, const std::string& what) {
  EXPECT_NEAR(got, expected, expected * 1e-6 + 1e-44) << what;
}

// What was kept, highest first.
std::vector<double> kept_of(const std::vector<double>& probs) {
  std::vector<double> kept;
  std::ranges::copy_if(probs, std::back_inserter(kept), [](double p) { return p > kTiny; });
  std::ranges::sort(kept, std::greater<>());
  return kept;
}

// Whether the k-th and the next score are equal before any mass filter.
bool ties_at_top_k(const Json& test_case) {
  const auto k = test_case["top_k"].get<size_t>();
  auto scores = test_case["logits"].get<std::vector<float>>();
  if (k == 0 || k >= scores.size() || test_case["temperature"].get<double>() == 0.0) return false;
  const auto penalty = test_case["repetition_penalty"].get<float>();
  std::vector<bool> seen(scores.size());
  for (const size_t id : test_case["seen"].get<std::vector<size_t>>()) seen[id] = true;
  for (size_t id = 0; id < scores.size(); ++id) {
    if (seen[id]) scores[id] = scores[id] < 0 ? scores[id] * penalty : scores[id] / penalty;
  }
  for (const size_t id : test_case["suppress"].get<std::vector<size_t>>()) scores[id] = -1e30F;
  std::ranges::sort(scores, std::greater<>());
  return scores[k - 1] == scores[k];
}

TEST(GoldenSampling, DistributionsMatchTransformers) {
  Json storage;
  int num_exact = 0;
  for (const Json& test_case : golden(storage)["cases"]) {
    const auto name = test_case["name"].get<std::string>();
    auto got = distribution_of(test_case);
    std::erase_if(got, [](const Candidate& c) { return double{c.value} <= kTiny; });
    const auto probs = test_case["probs"].get<std::vector<double>>();
    std::vector<double> kept = kept_of(probs);
    // Where scores tie with the k-th, transformers keeps them all and we keep k. With a top-p
    // behind it the mass differs too, so that the kept sets cannot be derived from one another.
    const bool top_k_tie = ties_at_top_k(test_case);
    if (top_k_tie && test_case["top_p"].get<double>() < 1.0) continue;
    if (top_k_tie) {
      kept.resize(std::min(kept.size(), test_case["top_k"].get<size_t>()));
      double total = 0.0;
      for (const double p : kept) total += p;
      for (double& p : kept) p /= total;
    }
    ASSERT_EQ(got.size(), kept.size()) << name;
    for (size_t i = 0; i < got.size(); ++i) {
      expect_probability(got[i].value, kept[i], name + " rank " + std::to_string(i));
    }
    if (top_k_tie || test_case.contains("tie_at_cut")) continue;
    ++num_exact;
    for (const Candidate& c : got) {
      expect_probability(c.value, probs[static_cast<size_t>(c.id)],
                         name + " id " + std::to_string(c.id));
    }
  }
  EXPECT_GT(num_exact, 50);
}

TEST(GoldenSampling, PhiloxMatches) {
  Json storage;
  int num_blocks = 0;
  for (const Json& block : golden(storage)["philox4x32_10"]) {
    const auto key = block["key"].get<std::vector<uint64_t>>();
    const auto counter = block["counter"].get<std::vector<uint64_t>>();
    const auto words = block["words"].get<std::vector<uint32_t>>();
    const PhiloxBlock got = philox4x32(key[0] | key[1] << 32, counter[0] | counter[1] << 32,
                                       counter[2] | counter[3] << 32);
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(got.word[i], words[i]);
    ++num_blocks;
  }
  EXPECT_GT(num_blocks, 2);
}

}  // namespace
}  // namespace markbase::ops
