#include <cmath>
#include <limits>

#include "backends/ref/ref_backend_impl.h"

namespace markbase::backends {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// The likeliest id that stands behind `last` in the order of falling logits, then of ids; -1 where
// there is none. last = -1: the first of all.
int32_t next_likeliest(std::span<const float> x, int32_t last) {
  int32_t best = -1;
  for (size_t i = 0; i < x.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (last >= 0) {
      const float bound = x[static_cast<size_t>(last)];
      if (x[i] > bound || (x[i] == bound && id <= last)) continue;
    }
    if (best < 0 || x[i] > x[static_cast<size_t>(best)]) best = id;
  }
  return best;
}

}  // namespace

void RefBackend::token_logprobs(const ops::TokenLogprobsArgs& args) {
  check(args);
  const auto vocab = static_cast<size_t>(args.logits.dim(1));
  const int64_t max_top = args.top_ids.dim(1);
  pool_.run(args.logits.dim(0), [&](int64_t row, int) {
    const std::span<const float> x(args.logits.row(row), vocab);
    float* chosen = args.chosen_logprob.f32() + row;
    int32_t* top_ids = args.top_ids.as<int32_t>() + row * max_top;
    float* top_logprobs = args.top_logprobs.f32() + row * max_top;
    *chosen = kNaN;
    for (int64_t i = 0; i < max_top; ++i) top_ids[i] = -1;
    for (int64_t i = 0; i < max_top; ++i) top_logprobs[i] = kNaN;

    const int64_t num_top = args.num_top.as<int32_t>()[row];
    double best = -std::numeric_limits<double>::infinity();
    bool broken = false;
    for (const float value : x) {
      broken = broken || std::isnan(value) || value == std::numeric_limits<float>::infinity();
      if (double{value} > best) best = double{value};
    }
    if (num_top < 0 || broken || std::isinf(best)) return;

    double sum = 0.0;
    for (const float value : x) sum += std::exp(double{value} - best);
    const auto logprob = [&](int32_t id) {
      return static_cast<float>(double{x[static_cast<size_t>(id)]} - best - std::log(sum));
    };
    const int32_t id = args.ids.as<int32_t>()[row];
    if (id >= 0) *chosen = logprob(id);
    int32_t last = -1;
    for (int64_t i = 0; i < num_top; ++i) {
      last = next_likeliest(x, last);
      if (last < 0) break;
      top_ids[i] = last;
      top_logprobs[i] = logprob(last);
    }
  });
}

}  // namespace markbase::backends
