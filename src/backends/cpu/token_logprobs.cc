// Log probabilities: the passes of docs/arithmetic.md, section 8. The same code on every
// instruction set: it runs once a token, and only where it is asked for.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "backends/cpu/vector_ops.h"
#include "ops/exp_log.h"
#include "ops/sample.h"

namespace markbase::backends::cpu {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
// As far as exp_of reaches: a whole vocabulary of such weights does not change a sum from 1 on.
constexpr double kLowest = -104.0;

// Whether any is above (or below) the bound. Without a branch an element, as all loops here over
// whole rows, so that compilers make vectors of them.
bool any_above(std::span<const float> x, float bound) {
  uint32_t found = 0;
  for (const float value : x) found |= value > bound ? 1u : 0u;
  return found != 0;
}
bool any_below(std::span<const float> x, float bound) {
  uint32_t found = 0;
  for (const float value : x) found |= value < bound ? 1u : 0u;
  return found != 0;
}

// Element i goes to partial sum i mod 8.
double sum_weights(std::span<const float> x, float best) {
  constexpr size_t kLanes = 8;
  constexpr size_t kBlock = 256;
  double sums[kLanes] = {};
  double distances[kBlock];
  const auto origin = static_cast<double>(best);
  const float low = best - 100.0F;
  for (size_t begin = 0; begin < x.size(); begin += kBlock) {
    const auto block = x.subspan(begin, std::min(kBlock, x.size() - begin));
    for (size_t i = 0; i < block.size(); ++i) {
      distances[i] = static_cast<double>(block[i]) - origin;
    }
    if (any_below(block, low)) {
      for (size_t i = 0; i < block.size(); ++i) distances[i] = std::max(distances[i], kLowest);
    }
    for (size_t i = 0; i < block.size(); ++i) distances[i] = ops::exp_of(distances[i]);
    size_t i = 0;
    for (; i + kLanes <= block.size(); i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += distances[i + lane];
    }
    for (; i < block.size(); ++i) sums[i % kLanes] += distances[i];
  }
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// The ids of the highest logits and these, highest first, of equal ones the lower id. Returns how
// many: ids.size(), or all there are. Most of a row is passed over block by block.
size_t highest_logits(std::span<const float> x, std::span<int32_t> ids, std::span<float> values) {
  constexpr size_t kBlock = 64;
  if (ids.empty()) return 0;
  size_t held = 0;
  const auto take = [&](size_t id) {
    size_t at = held;
    while (at > 0 && x[id] > values[at - 1]) --at;
    if (at == ids.size()) return;
    held = std::min(held + 1, ids.size());
    for (size_t i = held - 1; i > at; --i) {
      ids[i] = ids[i - 1];
      values[i] = values[i - 1];
    }
    ids[at] = static_cast<int32_t>(id);
    values[at] = x[id];
  };
  for (size_t begin = 0; begin < x.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, x.size());
    if (held == ids.size() && !any_above(x.subspan(begin, end - begin), values[held - 1])) continue;
    for (size_t id = begin; id < end; ++id) take(id);
  }
  return held;
}

void row_logprobs(const ops::TokenLogprobsArgs& args, int64_t row) {
  const std::span<const float> x(args.logits.row(row), static_cast<size_t>(args.logits.dim(1)));
  const auto max_top = static_cast<size_t>(args.top_ids.dim(1));
  const std::span<int32_t> ids(args.top_ids.as<int32_t>() + static_cast<size_t>(row) * max_top,
                               max_top);
  const std::span<float> values(args.top_logprobs.f32() + static_cast<size_t>(row) * max_top,
                                max_top);
  float& chosen = args.chosen_logprob.f32()[row];
  chosen = kNaN;
  std::fill(ids.begin(), ids.end(), -1);
  std::fill(values.begin(), values.end(), kNaN);

  const int32_t num_top = args.num_top.as<int32_t>()[row];
  if (num_top < 0) return;
  const float best = ops::highest_logit(x);
  if (std::isnan(best)) return;
  const double log_sum = ops::log_of(sum_weights(x, best));
  const auto logprob = [&](float logit) {
    return static_cast<float>((static_cast<double>(logit) - static_cast<double>(best)) - log_sum);
  };
  const int32_t id = args.ids.as<int32_t>()[row];
  if (id >= 0) chosen = logprob(x[static_cast<size_t>(id)]);
  const size_t wanted = std::min(static_cast<size_t>(num_top), max_top);
  const size_t found = highest_logits(x, ids.first(wanted), values.first(wanted));
  for (float& value : values.first(found)) value = logprob(value);
}

}  // namespace

void token_logprobs(base::ThreadPool& pool, const ops::TokenLogprobsArgs& args) {
  pool.run(args.logits.dim(0), [&](int64_t row, int) { row_logprobs(args, row); });
}

}  // namespace markbase::backends::cpu
