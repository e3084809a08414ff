// Gemma 3 270M (Q4_K_M) against float32 transformers on the same weights: needs the model file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "markbase/engine.h"
#include "support/golden.h"

namespace markbase {
namespace {

using testing::golden_path;
using testing::read_npy;

// The golden of one text, and what a run differs from it.
struct Comparison {
  int64_t compared_top1 = 0;
  int64_t wrong_top1 = 0;
  double worst_logit = 0;  // of the 64 largest at the chosen rows
  double mean_kl = 0;      // at the chosen rows
  double mean_nll_difference = 0;
};

double log_sum(std::span<const float> row) {
  const double top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float v : row) sum += std::exp(static_cast<double>(v) - top);
  return top + std::log(sum);
}

// The divergence over the golden's 64 largest ids, what is left over as one event: at most the true
// one, and close to it where 64 ids hold nearly all the probability.
double divergence(std::span<const float> row, double row_sum, std::span<const int32_t> top_ids,
                  std::span<const float> top_logits, double golden_sum) {
  double kl = 0;
  double golden_rest = 1;
  double rest = 1;
  for (size_t i = 0; i < top_ids.size(); ++i) {
    const double log_p = static_cast<double>(top_logits[i]) - golden_sum;
    const double log_q = static_cast<double>(row[static_cast<size_t>(top_ids[i])]) - row_sum;
    kl += std::exp(log_p) * (log_p - log_q);
    golden_rest -= std::exp(log_p);
    rest -= std::exp(log_q);
  }
  if (golden_rest > 1e-6 && rest > 1e-6) kl += golden_rest * std::log(golden_rest / rest);
  return kl;
}

Comparison compare(Engine& engine, const std::string& text) {
  const std::string base = golden_path("gemma3_270m/" + text + ".");
  const auto ids = read_npy<int32_t>(base + "ids.npy").values;
  const auto top1 = read_npy<int32_t>(base + "top1.npy").values;
  const auto margin = read_npy<float>(base + "margin.npy").values;
  const auto sums = read_npy<float>(base + "logsumexp.npy").values;
  const auto nll = read_npy<float>(base + "nll.npy").values;
  const auto rows = read_npy<int32_t>(base + "rows.npy").values;
  const auto top_ids = read_npy<int32_t>(base + "top_ids.npy").values;
  const auto top_logits = read_npy<float>(base + "top_logits.npy").values;
  constexpr size_t kTop = 64;
  Comparison out;
  size_t next_row = 0;
  const auto on_row = [&](int64_t position, std::span<const float> row) -> Result<void> {
    const auto at = static_cast<size_t>(position);
    const double sum = log_sum(row);
    if (margin[at] > 0.01F) {
      ++out.compared_top1;
      const auto best = std::max_element(row.begin(), row.end()) - row.begin();
      if (best != top1[at]) ++out.wrong_top1;
    }
    if (at + 1 < ids.size()) {
      const double own = sum - static_cast<double>(row[static_cast<size_t>(ids[at + 1])]);
      out.mean_nll_difference +=
          (own - static_cast<double>(nll[at])) / static_cast<double>(nll.size());
    }
    if (next_row >= rows.size() || rows[next_row] != position) return {};
    const std::span<const int32_t> golden_ids(top_ids.data() + next_row * kTop, kTop);
    const std::span<const float> golden(top_logits.data() + next_row * kTop, kTop);
    for (size_t i = 0; i < kTop; ++i) {
      const double got = row[static_cast<size_t>(golden_ids[i])];
      out.worst_logit = std::max(out.worst_logit, std::abs(got - static_cast<double>(golden[i])));
    }
    out.mean_kl += divergence(row, sum, golden_ids, golden, static_cast<double>(sums[at])) /
                   static_cast<double>(rows.size());
    ++next_row;
    return {};
  };
  const Result<void> done = engine.logits(ids, false, on_row);
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  EXPECT_EQ(next_row, rows.size());
  return out;
}

class Gemma3 : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* path = std::getenv("MARKBASE_TEST_MODEL");
    if (path == nullptr) GTEST_SKIP() << "MARKBASE_TEST_MODEL names no model file";
    model_ = path;
  }
  Engine load(BackendKind backend) {
    EngineOptions options;
    options.backend = backend;
    options.context_tokens = 4096;
    Result<Engine> engine = Engine::load(model_, options);
    if (!engine.ok()) ADD_FAILURE() << engine.error().message;
    return *std::move(engine);
  }
  std::string model_;
};

TEST_P(Gemma3, Cpu) {
  Engine engine = load(BackendKind::kCpu);
  const Comparison got = compare(engine, GetParam());
  RecordProperty("mean_kl", std::to_string(got.mean_kl));
  std::printf("%s: mean KL %.3g, worst logit %.3g, nll %+.3g, top-1 %ld of %ld differ\n",
              GetParam(), got.mean_kl, got.worst_logit, got.mean_nll_difference,
              static_cast<long>(got.wrong_top1), static_cast<long>(got.compared_top1));
  EXPECT_LE(got.mean_kl, 2e-6);
  EXPECT_EQ(got.wrong_top1, 0);
}

INSTANTIATE_TEST_SUITE_P(Golden, Gemma3, ::testing::Values("emma", "code", "languages"));

// Minutes of plain loops: the shortest text.
TEST(GoldenGemma3Reference, EveryShownLogit) {
  const char* path = std::getenv("MARKBASE_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "MARKBASE_TEST_MODEL names no model file";
  EngineOptions options;
  options.backend = BackendKind::kRef;
  options.context_tokens = 4096;
  Result<Engine> engine = Engine::load(path, options);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const Comparison got = compare(*engine, "code");
  EXPECT_LE(got.worst_logit, 1e-3);
  EXPECT_EQ(got.wrong_top1, 0);
}

}  // namespace
}  // namespace markbase
