#include "runtime/embedding.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "runtime/generation.h"

namespace markbase::runtime {

void Pooler::add(std::span<const float> hidden) {
  MB_CHECK(hidden.size() == sum_.size());
  for (size_t i = 0; i < hidden.size(); ++i) {
    const auto value = static_cast<double>(hidden[i]);
    sum_[i] = pooling_ == Pooling::kMean ? sum_[i] + value : value;
  }
  ++num_added_;
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

EmbedJob::EmbedJob(ModelRunner& runner, int64_t hidden_size, int sequence, std::vector<int32_t> ids,
                   Pooling pooling, bool normalise)
    : runner_(runner),
      sequence_(sequence),
      ids_(std::move(ids)),
      pooling_(pooling),
      normalise_(normalise),
      pooler_(pooling, hidden_size) {
  MB_CHECK(!ids_.empty() && static_cast<int64_t>(ids_.size()) <= runner.options().context_tokens);
}

Result<void> EmbedJob::step() {
  MB_CHECK(!done());
  const size_t begin = begin_;
  const size_t count =
      std::min(static_cast<size_t>(runner_.options().prefill_chunk_tokens), ids_.size() - begin);
  begin_ = ids_.size();  // unless the step succeeds, the job is over
  fill_rows(std::span(ids_).subspan(begin, count), static_cast<int64_t>(begin), sequence_, &rows_);
  const bool last = begin + count == ids_.size();
  const size_t first_output = pooling_ == Pooling::kMean ? 0 : count - (last ? 1 : 0);
  output_rows_.resize(count - first_output);
  std::iota(output_rows_.begin(), output_rows_.end(), static_cast<int32_t>(first_output));
  const auto add = [&](int64_t, std::span<const float> hidden) -> Result<void> {
    pooler_.add(hidden);
    return {};
  };
  MB_TRY(runner_.run_for_hidden(rows_, output_rows_, add));
  begin_ = begin + count;
  return {};
}

Result<std::vector<float>> EmbedJob::vector() const {
  MB_CHECK(done());
  return pooler_.vector(normalise_);
}

}  // namespace markbase::runtime
