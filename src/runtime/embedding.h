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

namespace markbase::runtime {

// Pools hidden states that come position by position.
class Pooler {
 public:
  Pooler(Pooling pooling, int64_t hidden_size)
      : pooling_(pooling), sum_(static_cast<size_t>(hidden_size)) {}
  // Whether the states of all positions are to be added, or that of the last alone.
  bool needs_all() const { return pooling_ == Pooling::kMean; }
  // The state of the next position.
  void add(std::span<const float> hidden);
  // As before the first.
  void clear();
  // Errors: kFailed for states that hold a NaN or infinity, and for a vector of zeros that is to be
  // normalised.
  Result<std::vector<float>> vector(bool normalise) const;

 private:
  Pooling pooling_;
  std::vector<double> sum_;  // of the last state alone for kLast
  int64_t num_added_ = 0;
};

}  // namespace markbase::runtime
