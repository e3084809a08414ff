// Log probabilities of what a step draws: of the model's own distribution, whatever the draw does
// to it and whoever else is in the step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/generation.h"
#include "support/allocation_counter.h"
#include "support/random_decoder.h"

namespace markbase {
namespace {

using runtime::LoadedModel;
using runtime::ModelRunner;
using runtime::RunnerOptions;
using runtime::SampleOutputs;
using runtime::StepRow;
using testing::DecoderShape;
using testing::RandomDecoder;

EngineOptions options_for(BackendKind backend, int threads = 2) {
  EngineOptions options;
  options.backend = backend;
  options.num_threads = threads;
  return options;
}

RunnerOptions runner_for(int64_t sequences) {
  RunnerOptions runner;
  runner.context_tokens = 128;
  runner.prefill_chunk_tokens = 64;
  runner.max_sequences = sequences;
  return runner;
}

std::vector<int32_t> prompt(int64_t length, int64_t seed) {
  std::vector<int32_t> ids = {2};
  for (int64_t i = 1; i < length; ++i) {
    ids.push_back(static_cast<int32_t>((i * 37 + seed * 101 + 5) % RandomDecoder::kVocab));
  }
  return ids;
}

// What one row of a step gave.
struct Drawn {
  int32_t id = -1;
  TokenLogprobs logprobs;
  std::vector<float> logits;
};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

bool same(const Drawn& a, const Drawn& b) {
  const auto equal = [](const TokenLogprob& x, const TokenLogprob& y) {
    return x.id == y.id && same_bits({&x.logprob, 1}, {&y.logprob, 1});
  };
  return a.id == b.id && same_bits(a.logits, b.logits) &&
         equal(a.logprobs.chosen, b.logprobs.chosen) &&
         std::ranges::equal(a.logprobs.top, b.logprobs.top, equal);
}

// Prompts of different lengths in sequences of their own, whose last rows stand in one step.
class Batch {
 public:
  Batch(const RandomDecoder& decoder, const EngineOptions& options, std::vector<int> seeds,
        std::span<const int32_t> suppressed = {})
      : model_(decoder.load(options, runner_for(static_cast<int64_t>(seeds.size())))) {
    auto runner = ModelRunner::create(model_->config, model_->weights, *model_->backend.backend,
                                      model_->runner_options, suppressed, model_->mapped_weights);
    EXPECT_TRUE(runner.ok());
    runner_ = *std::move(runner);
    for (const int seed : seeds) {
      const std::vector<int32_t> ids = prompt(5 + 3 * seed, seed);
      const int sequence = runner_->open_sequence();
      runner_->set_seen(sequence, ids);
      std::vector<StepRow> rows;
      runtime::fill_rows(ids, 0, sequence, &rows);
      last_.push_back(rows.back());
      rows.pop_back();
      EXPECT_TRUE(runner_->run(rows).ok());
    }
  }

  // May be repeated: the same rows again.
  std::vector<Drawn> step(const std::vector<ops::SamplingParams>& params,
                          const std::vector<int32_t>& num_top) {
    const size_t count = last_.size();
    std::vector<int32_t> outputs;
    for (size_t i = 0; i < count; ++i) outputs.push_back(static_cast<int32_t>(i));
    std::vector<int32_t> ids(count);
    std::vector<TokenLogprobs> logprobs(count);
    std::vector<Drawn> drawn(count);
    const auto keep = [&](int64_t i, std::span<const float> row) -> Result<void> {
      drawn[static_cast<size_t>(i)].logits.assign(row.begin(), row.end());
      return {};
    };
    const runtime::OnRow on_row(keep);
    const auto done = runner_->run_and_sample(
        last_, outputs, params,
        SampleOutputs{.ids = ids, .num_top = num_top, .logprobs = logprobs, .on_logits = &on_row});
    EXPECT_TRUE(done.ok());
    for (size_t i = 0; i < count; ++i) {
      drawn[i].id = ids[i];
      drawn[i].logprobs = logprobs[i];
    }
    return drawn;
  }
  ModelRunner& runner() { return *runner_; }
  const std::vector<StepRow>& last() const { return last_; }

 private:
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<ModelRunner> runner_;
  std::vector<StepRow> last_;
};

ops::SamplingParams params_of(int seed) {
  return {.temperature = seed % 3 == 0 ? 0.0F : 1.7F,
          .top_k = seed % 2 == 0 ? 40 : 0,
          .repetition_penalty = 1.5F,
          .seed = static_cast<uint64_t>(seed)};
}
int32_t num_top_of(int seed) { return seed % 5 == 4 ? 20 : seed % 5; }

std::vector<Drawn> drawn(const RandomDecoder& decoder, const EngineOptions& options,
                         const std::vector<int>& seeds) {
  std::vector<ops::SamplingParams> params;
  std::vector<int32_t> num_top;
  for (const int seed : seeds) {
    params.push_back(params_of(seed));
    num_top.push_back(num_top_of(seed));
  }
  return Batch(decoder, options, seeds).step(params, num_top);
}

// The logprob of every id, in long double.
std::vector<long double> log_softmax(std::span<const float> logits) {
  const long double best = *std::max_element(logits.begin(), logits.end());
  long double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<long double>(x) - best);
  std::vector<long double> out;
  for (const float x : logits) out.push_back(static_cast<long double>(x) - best - std::log(sum));
  return out;
}

void expect_logprob(const TokenLogprob& got, const std::vector<long double>& expected) {
  ASSERT_GE(got.id, 0);
  const auto exact = static_cast<double>(expected[static_cast<size_t>(got.id)]);
  EXPECT_NEAR(got.logprob, exact, 0x1p-24 * std::abs(exact) + 1e-12) << got.id;
}

class Logprobs : public ::testing::TestWithParam<BackendKind> {
 protected:
  RandomDecoder decoder_{DecoderShape::kPerLayerInputs, quant::Format::kQ8_0};
  std::vector<int> seeds_ = {0, 1, 2, 3, 4};
};

TEST_P(Logprobs, AreThoseOfTheModelsOwnDistribution) {
  const auto options = options_for(GetParam());
  const std::vector<Drawn> rows = drawn(decoder_, options, seeds_);
  bool drew_another = false;  // so that the chosen one is not always the likeliest
  for (size_t i = 0; i < rows.size(); ++i) {
    const Drawn& row = rows[i];
    const auto expected = log_softmax(row.logits);
    EXPECT_EQ(row.logprobs.chosen.id, row.id);
    expect_logprob(row.logprobs.chosen, expected);
    ASSERT_EQ(row.logprobs.top.size(), static_cast<size_t>(num_top_of(seeds_[i])));
    std::vector<int32_t> order(row.logits.size());
    for (size_t id = 0; id < order.size(); ++id) order[id] = static_cast<int32_t>(id);
    std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
      return row.logits[static_cast<size_t>(a)] > row.logits[static_cast<size_t>(b)];
    });
    for (size_t k = 0; k < row.logprobs.top.size(); ++k) {
      EXPECT_EQ(row.logprobs.top[k].id, order[k]);
      expect_logprob(row.logprobs.top[k], expected);
    }
    drew_another = drew_another || row.id != order[0];
  }
  EXPECT_TRUE(drew_another);
}

// The draw's own changes to the logits are not seen: suppression, penalty, temperature.
TEST_P(Logprobs, DoNotDependOnHowIsDrawn) {
  const std::vector<int32_t> all_top(seeds_.size(), 20);
  std::vector<ops::SamplingParams> greedy(seeds_.size(), {.temperature = 0.0F});
  std::vector<ops::SamplingParams> hot;
  for (const int seed : seeds_) {
    hot.push_back({.temperature = 3.0F, .repetition_penalty = 2.0F, .seed = uint64_t(seed) + 9});
  }
  const auto plain = Batch(decoder_, options_for(GetParam()), seeds_).step(greedy, all_top);
  std::vector<int32_t> suppressed;
  for (const Drawn& row : plain) suppressed.push_back(row.id);
  Batch other(decoder_, options_for(GetParam()), seeds_, suppressed);
  const auto changed = other.step(hot, all_top);
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_NE(plain[i].id, changed[i].id);
    EXPECT_TRUE(same_bits(plain[i].logits, changed[i].logits));
    for (size_t k = 0; k < 20; ++k) {
      EXPECT_EQ(plain[i].logprobs.top[k].id, changed[i].logprobs.top[k].id);
      EXPECT_EQ(plain[i].logprobs.top[k].logprob, changed[i].logprobs.top[k].logprob);
    }
    EXPECT_EQ(plain[i].logprobs.chosen.logprob, plain[i].logprobs.top[0].logprob);
  }
}

TEST_P(Logprobs, ARowAloneGivesTheBitsOfTheBatch) {
  const auto together = drawn(decoder_, options_for(GetParam()), seeds_);
  for (size_t i = 0; i < seeds_.size(); ++i) {
    EXPECT_TRUE(same(drawn(decoder_, options_for(GetParam()), {seeds_[i]})[0], together[i])) << i;
  }
}

TEST_P(Logprobs, ThreadsAndInstructionSetsGiveTheSameBits) {
  const auto first = drawn(decoder_, options_for(GetParam(), 1), seeds_);
  const auto expect_same = [&](const EngineOptions& options, const std::string& what) {
    const auto got = drawn(decoder_, options, seeds_);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same(got[i], first[i])) << what << i;
  };
  for (const int threads : {2, 5}) expect_same(options_for(GetParam(), threads), "threads ");
  if (GetParam() == BackendKind::kRef) return;
  for (const runtime::CpuLevel& level : runtime::cpu_levels()) {
    if (!level.supported) continue;
    EngineOptions options = options_for(GetParam());
    options.cpu_isa = level.name;
    expect_same(options, level.name + " row ");
  }
}

// Asking changes no draw, rows that do not ask are left alone, and all but the lists is planned.
TEST_P(Logprobs, AskingIsPerRow) {
  Batch batch(decoder_, options_for(GetParam()), {1, 2, 3});
  const std::vector<ops::SamplingParams> params = {params_of(1), params_of(2), params_of(3)};
  const auto none = batch.step(params, {-1, -1, -1});
  Batch again(decoder_, options_for(GetParam()), {1, 2, 3});
  const auto some = again.step(params, {-1, 4, 0});
  for (size_t i = 0; i < none.size(); ++i) {
    EXPECT_EQ(none[i].id, some[i].id);
    EXPECT_EQ(none[i].logprobs.chosen.id, -1);
  }
  EXPECT_EQ(some[0].logprobs.chosen.id, -1);
  EXPECT_EQ(some[1].logprobs.top.size(), 4U);
  EXPECT_EQ(some[2].logprobs.chosen.id, some[2].id);
  EXPECT_TRUE(some[2].logprobs.top.empty());

  if (!testing::AllocationCounter::available()) return;
  const std::vector<int32_t> outputs = {0, 1, 2};
  const std::vector<int32_t> num_top = {-1, 0, 20};
  std::vector<int32_t> ids(3);
  std::vector<TokenLogprobs> logprobs(3);
  logprobs[2].top.reserve(20);
  const SampleOutputs into{.ids = ids, .num_top = num_top, .logprobs = logprobs};
  const testing::AllocationCounter counter;
  const bool ok = again.runner().run_and_sample(again.last(), outputs, params, into).ok();
  EXPECT_EQ(counter.count(), 0);
  EXPECT_TRUE(ok);
  EXPECT_EQ(logprobs[2].top.size(), 20U);
}

INSTANTIATE_TEST_SUITE_P(Backends, Logprobs,
                         ::testing::Values(BackendKind::kRef, BackendKind::kCpu),
                         [](const auto& param_info) {
                           return param_info.param == BackendKind::kRef ? "ref" : "cpu";
                         });

}  // namespace
}  // namespace markbase
