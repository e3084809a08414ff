// What is given up where memory is scarce, and in which order.
#include "runtime/memory_plan.h"

#include <gtest/gtest.h>

#include "support/random_decoder.h"

namespace markbase {
namespace {

using runtime::MemoryPlan;
using runtime::RunnerOptions;
using testing::DecoderShape;
using testing::RandomDecoder;

class ChooseContext : public ::testing::Test {
 protected:
  // With a budget of what these runner options need, give or take some bytes.
  Result<MemoryPlan> choose(const RunnerOptions& enough_for, int64_t more_bytes) {
    options_.memory_bytes =
        static_cast<uint64_t>(static_cast<int64_t>(needed(enough_for)) + more_bytes);
    runner_ = std::move(runtime::runner_options(options_)).value();
    return runtime::choose_context(decoder_.config(), decoder_.map(), *backend_.backend, options_,
                                   &runner_);
  }
  uint64_t needed(const RunnerOptions& runner) const {
    return runtime::plan_memory(decoder_.config(), decoder_.map(), *backend_.backend, runner, 0)
        .total_bytes();
  }
  // The whole model limit, and all prefixes.
  RunnerOptions wished() const {
    RunnerOptions runner = std::move(runtime::runner_options(options_)).value();
    runner.context_tokens = kLimit;
    runner.kv_pool_tokens = runtime::pool_tokens(kLimit, runner.max_sequences);
    return runner;
  }
  void expect_choice(int64_t context, int64_t pool, int64_t kept) const {
    EXPECT_EQ(runner_.context_tokens, context);
    EXPECT_EQ(runner_.kv_pool_tokens, pool);
    EXPECT_EQ(runner_.kept_windows, kept);
  }

  static constexpr int64_t kLimit = 4096;  // of the model
  RandomDecoder decoder_{DecoderShape::kOddSources, quant::Format::kBF16};
  EngineOptions options_ = [] {
    EngineOptions options;
    options.backend = BackendKind::kRef;
    options.num_threads = 1;
    options.max_sequences = 4;
    return options;
  }();
  runtime::BackendHandle backend_ = std::move(runtime::make_backend(options_)).value();
  RunnerOptions runner_;
};

TEST_F(ChooseContext, PoolIsAContextAndSomeForEachFurtherSequence) {
  EXPECT_EQ(runtime::pool_tokens(100, 1), 100);
  EXPECT_EQ(runtime::pool_tokens(100, 8), 800);
  EXPECT_EQ(runtime::pool_tokens(4096, 3), 3 * 4096);
  EXPECT_EQ(runtime::pool_tokens(131072, 8), 131072 + 7 * 4096);
}

TEST_F(ChooseContext, GivesUpPrefixesThenThePoolThenTheContext) {
  RunnerOptions runner = wished();
  EXPECT_EQ(runner.kept_windows, 4 + 8);
  ASSERT_TRUE(choose(runner, 0).ok());
  expect_choice(kLimit, 4 * kLimit, 12);
  ASSERT_TRUE(choose(runner, -1).ok());
  expect_choice(kLimit, 4 * kLimit, 6);
  runner.kept_windows = 1;
  ASSERT_TRUE(choose(runner, -1).ok());
  EXPECT_EQ(runner_.context_tokens, kLimit);
  EXPECT_EQ(runner_.kv_pool_tokens, kLimit);
  EXPECT_EQ(runner_.kept_windows, 12) << "there is room for them again";
  runner.kv_pool_tokens = kLimit;
  ASSERT_TRUE(choose(runner, 0).ok());
  expect_choice(kLimit, kLimit, 1);
  ASSERT_TRUE(choose(runner, -1).ok());
  expect_choice(kLimit, kLimit, 0);
  runner.kept_windows = 0;
  ASSERT_TRUE(choose(runner, 0).ok());
  expect_choice(kLimit, kLimit, 0);
  ASSERT_TRUE(choose(runner, -1).ok());
  EXPECT_EQ(runner_.context_tokens, kLimit / 2);
}

TEST_F(ChooseContext, AContextAskedForIsNeverShortened) {
  options_.context_tokens = kLimit;
  RunnerOptions least = wished();
  least.kv_pool_tokens = kLimit;
  least.kept_windows = 0;
  ASSERT_TRUE(choose(least, 0).ok());
  expect_choice(kLimit, kLimit, 0);
  const auto refused = choose(least, -1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
}

TEST_F(ChooseContext, OneSequenceWithoutPrefixesTakesOneContext) {
  options_.max_sequences = 1;
  options_.prefix_cache = false;
  RunnerOptions runner = wished();
  EXPECT_EQ(runner.kept_windows, 0);
  runner.kv_pool_tokens = 0;
  const auto plan = choose(runner, 0);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->total_bytes(), options_.memory_bytes);
  expect_choice(kLimit, kLimit, 0);
}

TEST_F(ChooseContext, SequencesThatCannotBeAreRefused) {
  for (const int64_t count : {int64_t{0}, int64_t{-1}, int64_t{1} << 40}) {
    options_.max_sequences = count;
    const auto checked = runtime::check_options(options_);
    ASSERT_FALSE(checked.ok());
    EXPECT_EQ(checked.error().code, ErrorCode::kUsage);
    EXPECT_NE(checked.error().message.find("max_sequences"), std::string::npos);
  }
}

TEST_F(ChooseContext, ThePlanSaysWhatSequencesHave) {
  MemoryPlan plan;
  plan.context_tokens = plan.pool_tokens = 1000;
  EXPECT_NE(plan_text(plan).find("(1000 tokens)"), std::string::npos);
  plan.max_sequences = 3;
  plan.pool_tokens = 3000;
  EXPECT_NE(plan_text(plan).find("(3 x 1000 tokens)"), std::string::npos);
  plan.pool_tokens = 1200;
  EXPECT_NE(plan_text(plan).find("(3 x up to 1000 tokens, 1200 together)"), std::string::npos);
}

}  // namespace
}  // namespace markbase
