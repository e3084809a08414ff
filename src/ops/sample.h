// Choosing the next token from logits.
//
// Order, as in transformers: suppressed ids, repetition penalty over prompt and answer,
// temperature, top-k, top-p, min-p, then one draw. Ties go to the lower id. The draw is
// Philox4x32-10 keyed by seed, with the counter (answer index, position), so it depends on nothing
// else in the batch.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace markbase::ops {

// What one row asks for. Plain data, so that it can live in device memory.
struct SamplingParams {
  float temperature = 1.0F;         // 0: greedy, the highest logit after suppression and penalty
  int32_t top_k = 0;                // 0: off
  float top_p = 1.0F;               // 1: off
  float min_p = 0.0F;               // 0: off
  float repetition_penalty = 1.0F;  // 1: off; positive logits are divided, negative multiplied
  uint64_t seed = 0;
  uint32_t answer_idx = 0;
};

// logits: [rows, vocab] f32, overwritten. params: host or device array of `rows` SamplingParams.
// positions: [rows] i32, position of the token being chosen. seen: [rows, ceil(vocab / 32)] u32
// bitmap of ids in prompt and answer; the chosen id is added. suppressed: [n] i32 or empty. ids:
// [rows] i32 out. scratch: planned by sample_scratch_bytes(rows, vocab), in the backend's memory.
struct SampleArgs {
  tensor::TensorView logits;
  const SamplingParams* params = nullptr;
  tensor::TensorView positions;
  tensor::TensorView seen;
  tensor::TensorView suppressed;
  tensor::TensorView ids;
  void* scratch = nullptr;
};
void check(const SampleArgs& args);
size_t sample_scratch_bytes(int64_t rows, int64_t vocab);

// The highest logit of a row, or NaN where there is nothing to choose: a NaN or +infinity in it, or
// all of it -infinity.
float highest_logit(std::span<const float> logits);

// A candidate id with its probability.
struct Candidate {
  int32_t id;
  float value;
};

// One row on the host, for backends whose memory the host can read, and for tests. Returns the
// chosen id, or -1 where there is nothing to choose (the caller reports it). Candidates stand by
// falling logit, ties by id, so a tie at the border of top-k or top-p keeps the lower ids. The draw
// takes the first whose cumulative probability exceeds u = (53 bits of philox4x32(seed, answer_idx,
// position)) / 2^53. The chosen id is added to `seen`. `candidates` has room for the whole
// vocabulary. Allocates nothing.
int32_t sample_row(std::span<float> logits, const SamplingParams& params, int32_t position,
                   std::span<const int32_t> suppressed, std::span<uint32_t> seen,
                   std::span<Candidate> candidates);

// The distribution that sample_row draws from: probabilities of the kept ids, highest first
// (greedy: one id with 1). Returns how many; 0 where there is nothing to choose. Same arguments.
int64_t sampling_distribution(std::span<float> logits, const SamplingParams& params,
                              std::span<const int32_t> suppressed, std::span<const uint32_t> seen,
                              std::span<Candidate> candidates);

// Philox4x32-10: 128 random bits for a 64-bit key and a 128-bit counter.
struct PhiloxBlock {
  uint32_t word[4];
};
PhiloxBlock philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high);

}  // namespace markbase::ops
