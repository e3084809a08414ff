#include "runtime/embedding.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"

namespace markbase::runtime {

void Pooler::add(std::span<const float> hidden) {
  MB_CHECK(hidden.size() == sum_.size());
  for (size_t i = 0; i < hidden.size(); ++i) {
    const auto value = static_cast<double>(hidden[i]);
    sum_[i] = pooling_ == Pooling::kMean ? sum_[i] + value : value;
  }
  ++num_added_;
}

void Pooler::clear() {
  std::fill(sum_.begin(), sum_.end(), 0.0);
  num_added_ = 0;
}

Result<std::vector<float>> Pooler::vector(bool normalise) const {
  MB_CHECK(num_added_ > 0);
  double squares = 0.0;
  for (const double value : sum_) squares += value * value;
  if (!std::isfinite(squares)) {
    return base::failed(
        "the hidden states hold a NaN or infinity: the model or its weights are broken");
  }
  // The length is that of the sum: the count would cancel.
  double divisor = pooling_ == Pooling::kMean ? static_cast<double>(num_added_) : 1.0;
  if (normalise) divisor = std::sqrt(squares);
  if (divisor == 0.0) {
    return base::failed("the hidden states are all zero: expected a vector to bring to length 1");
  }
  std::vector<float> out(sum_.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(sum_[i] / divisor);
  return out;
}

}  // namespace markbase::runtime
