// One vector of a text: its final normed hidden states, pooled.
//
//   mean: y = (sum over positions t of h[t]) / T, summed in double in the order of positions
//   last: y = h[T - 1]
//   normalised: y / sqrt(sum over i of y[i]^2), in double as well; rounded to float once, at the
//   end
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "markbase/options.h"
#include "markbase/result.h"
#include "runtime/model_runner.h"

namespace markbase::runtime {

// Pools hidden states that come position by position.
class Pooler {
 public:
  Pooler(Pooling pooling, int64_t hidden_size)
      : pooling_(pooling), sum_(static_cast<size_t>(hidden_size)) {}
  // The state of the next position: of every one for the mean, of the last one at least for it.
  void add(std::span<const float> hidden);
  // Errors: kFailed for states that hold a NaN or infinity, and for a vector of zeros that is to be
  // normalised.
  Result<std::vector<float>> vector(bool normalise) const;

 private:
  Pooling pooling_;
  std::vector<double> sum_;  // of the last state alone for kLast
  int64_t num_added_ = 0;
};

// Embeds one text, a chunk a step, so that other work can go between the steps. The sequence is
// open and empty, belongs to the job while it lasts, and is closed by whoever opened it. Not thread
// safe; the runner outlives it. The result depends on ids, pooling and normalise alone, not on the
// chunks or what else is stepped.
class EmbedJob {
 public:
  // ids: at least one, at most the context's, all in the vocabulary.
  EmbedJob(ModelRunner& runner, int64_t hidden_size, int sequence, std::vector<int32_t> ids,
           Pooling pooling, bool normalise);

  bool done() const { return begin_ == ids_.size(); }
  int64_t tokens_done() const { return static_cast<int64_t>(begin_); }
  // Computes the next chunk: prefill_chunk_tokens, or what is left. Errors: those of
  // ModelRunner::run; the job is then over.
  Result<void> step();
  // After the last step. Errors: those of Pooler::vector.
  Result<std::vector<float>> vector() const;

 private:
  ModelRunner& runner_;
  int sequence_;
  std::vector<int32_t> ids_;
  Pooling pooling_;
  bool normalise_;
  Pooler pooler_;
  size_t begin_ = 0;  // of the next chunk
  std::vector<StepRow> rows_;
  std::vector<int32_t> output_rows_;
};

}  // namespace markbase::runtime
