#include "runtime/step_budget.h"

#include <gtest/gtest.h>

namespace markbase::runtime {
namespace {

// A machine: a step takes so long.
struct Machine {
  double decode_ms = 20;
  double row_ms = 0.5;
  double token_ms = 1.4;
  double step(int64_t decoding, int64_t prompt) const {
    const double decode = decoding == 0 ? 0 : decode_ms + row_ms * static_cast<double>(decoding);
    return decode + token_ms * static_cast<double>(prompt);
  }
};

double worst_slowdown(StepBudget& budget, Machine machine, int64_t decoding, int steps,
                      double token_ms_growth = 0) {
  double worst = 0;
  for (int i = 0; i < steps; ++i) {
    const int64_t tokens = budget.prompt_tokens(decoding);
    const double ms = machine.step(decoding, tokens);
    budget.learn(decoding, tokens, ms);
    worst = std::max(worst, ms / machine.step(decoding, 0));
    machine.token_ms += token_ms_growth;
  }
  return worst;
}

TEST(StepBudget, APromptAloneHasTheWholeStep) {
  const StepBudget budget(512);
  EXPECT_EQ(budget.prompt_tokens(0), 512);
}

TEST(StepBudget, DecodingIsMeasuredBeforePromptsJoinIt) {
  StepBudget budget(512);
  EXPECT_EQ(budget.prompt_tokens(3), 0);
  budget.learn(3, 0, 20);
  EXPECT_EQ(budget.prompt_tokens(3), StepBudget::kLeastTokens);
}

TEST(StepBudget, AStepWithAPromptTakesAboutTwiceOneWithout) {
  StepBudget budget(512);
  EXPECT_LE(worst_slowdown(budget, {}, 8, 200), 2.2);
  // And not much less: the prompt gets what there is.
  const Machine machine;
  const double whole = machine.step(8, budget.prompt_tokens(8));
  EXPECT_GE(whole / machine.step(8, 0), 1.8);
}

TEST(StepBudget, ChunksShrinkAsTokensGetDearer) {
  StepBudget budget(512);
  const Machine machine = {.decode_ms = 200};
  worst_slowdown(budget, machine, 8, 50);
  const int64_t shallow = budget.prompt_tokens(8);
  // Ten times as dear by the end, as attention makes them with depth.
  EXPECT_LE(worst_slowdown(budget, machine, 8, 300, 1.4 * 9 / 300), 2.3);
  EXPECT_LT(budget.prompt_tokens(8), shallow / 4);
}

TEST(StepBudget, OneStepInManyIsMeasuredWithoutPrompts) {
  StepBudget budget(512);
  worst_slowdown(budget, {}, 4, 2);
  int without = 0;
  for (int i = 0; i < 10 * (StepBudget::kMixedSteps + 1); ++i) {
    const int64_t tokens = budget.prompt_tokens(4);
    budget.learn(4, tokens, Machine().step(4, tokens));
    if (tokens == 0) ++without;
  }
  EXPECT_EQ(without, 10);
}

TEST(StepBudget, NeverMoreThanAChunkNorLessThanIsWorthIt) {
  StepBudget budget(512);
  worst_slowdown(budget, {.token_ms = 1e-6}, 8, 50);
  EXPECT_EQ(budget.prompt_tokens(8), 512);
  StepBudget dear(512);
  worst_slowdown(dear, {.token_ms = 1e6}, 8, 20);
  EXPECT_EQ(dear.prompt_tokens(8), StepBudget::kLeastTokens);
  StepBudget small(4);
  worst_slowdown(small, {}, 8, 20);
  EXPECT_EQ(small.prompt_tokens(8), 4);
}

}  // namespace
}  // namespace markbase::runtime
