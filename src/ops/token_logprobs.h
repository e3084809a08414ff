// Log probabilities of chosen tokens and of the likeliest ones, of the model's own distribution:
//
//   logprob(i) = x[i] - max(x) - log(sum over j of exp(x[j] - max(x)))
//
// Runs on logits that sample() has not changed yet, or on a copy of them, since sample() overwrites
// its own.
#pragma once

#include "tensor/tensor.h"

namespace markbase::ops {

// logits: [rows, vocab] f32, read only. ids: [rows] i32, the chosen ids; -1: none. num_top: [rows]
// i32, how many of the likeliest to give, 0 to max_top; -1: the row is not computed at all.
// chosen_logprob: [rows] f32 out. top_ids: [rows, max_top] i32 out; top_logprobs: [rows, max_top]
// f32 out; likeliest first, of equal logits the lower id. max_top may be 0.
//
// What was not asked for is -1 and NaN: a row without an id or that is not computed, places beyond
// num_top or the vocabulary. So is all of a row in which sample() finds nothing to choose (a NaN or
// +infinity, or nothing but -infinity). An id whose logit is -infinity has the logprob -infinity.
//
// Logprobs are computed in double and rounded once.
struct TokenLogprobsArgs {
  tensor::TensorView logits;
  tensor::TensorView ids;
  tensor::TensorView num_top;
  tensor::TensorView chosen_logprob;
  tensor::TensorView top_ids;
  tensor::TensorView top_logprobs;
};
void check(const TokenLogprobsArgs& args);

}  // namespace markbase::ops
