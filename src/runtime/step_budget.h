// How much of a prompt a step may read while answers wait for their next token.
#pragma once

#include <cstdint>

namespace markbase::runtime {

// Learns from the times of past steps. A step with prompt rows takes about kSlowdown times one
// without them, however deep the prompt is by then; nothing but speed depends on it, since no
// result depends on how a prompt is cut.
class StepBudget {
 public:
  // What a step may take, against one that only decodes.
  static constexpr double kSlowdown = 2.0;
  // Fewer rows at a time read the weights for too little.
  static constexpr int64_t kLeastTokens = 8;

  explicit StepBudget(int64_t most_tokens) : most_tokens_(most_tokens) {}

  // One step in so many only decodes, while prompts wait: to know what that takes.
  static constexpr int64_t kMixedSteps = 32;

  // Prompt tokens for a step in which so many answers decode; 0 where that step is to be measured.
  int64_t prompt_tokens(int64_t num_decoding) const;
  // A step was taken.
  void learn(int64_t num_decoding, int64_t num_prompt_tokens, double ms);

 private:
  double expected_decode_ms(int64_t num_decoding) const;

  int64_t most_tokens_;
  // Moving averages; 0: not known yet.
  double decode_ms_ = 0;        // of a step that only decodes...
  double decode_rows_ = 0;      // ... of so many rows
  double prompt_token_ms_ = 0;  // what one more prompt token adds
  int64_t mixed_steps_ = 0;     // since one that only decoded
};

}  // namespace markbase::runtime
