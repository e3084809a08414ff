#include "runtime/step_budget.h"

#include <algorithm>
#include <cmath>

namespace markbase::runtime {
namespace {

// Weight of the newest step: depth changes the cost slowly, and a hiccup should not.
constexpr double kNewest = 0.25;

void average(double* mean, double value) {
  *mean = *mean == 0 ? value : *mean + kNewest * (value - *mean);
}

}  // namespace

int64_t StepBudget::prompt_tokens(int64_t num_decoding) const {
  if (num_decoding == 0) return most_tokens_;
  if (decode_ms_ == 0 || mixed_steps_ >= kMixedSteps) return 0;
  if (prompt_token_ms_ == 0) return std::min(kLeastTokens, most_tokens_);
  const double tokens = (kSlowdown - 1.0) * expected_decode_ms(num_decoding) / prompt_token_ms_;
  const double least = static_cast<double>(std::min(kLeastTokens, most_tokens_));
  return static_cast<int64_t>(std::clamp(tokens, least, static_cast<double>(most_tokens_)));
}

void StepBudget::learn(int64_t num_decoding, int64_t num_prompt_tokens, double ms) {
  if (num_prompt_tokens == 0) {
    average(&decode_ms_, ms);
    average(&decode_rows_, static_cast<double>(num_decoding));
    mixed_steps_ = 0;
    return;
  }
  if (num_decoding > 0) ++mixed_steps_;
  // Without decoding rows the weights are read for the prompt: that is part of its cost here, which
  // errs on the side of shorter chunks.
  const double decode_ms = num_decoding == 0 ? 0 : expected_decode_ms(num_decoding);
  average(&prompt_token_ms_,
          std::max(0.0, ms - decode_ms) / static_cast<double>(num_prompt_tokens));
}

// More rows cost more, but far less than in proportion: what was measured stands for counts near
// it.
double StepBudget::expected_decode_ms(int64_t num_decoding) const {
  constexpr double kShareOfRow = 0.15;  // of a step of one row, that one more row adds
  const auto cost = [](double rows) { return 1.0 + kShareOfRow * (rows - 1.0); };
  return decode_ms_ * cost(static_cast<double>(num_decoding)) / cost(decode_rows_);
}

}  // namespace markbase::runtime
