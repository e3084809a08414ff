// Routing and experts, row by row, as their contracts say.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/ref/gelu.h"
#include "backends/ref/ref_backend_impl.h"

namespace markbase::backends {
namespace {

// The K highest scores, highest first; of equal ones the lower index.
void select(const float* scores, int64_t num_experts, std::span<int32_t> ids) {
  for (size_t k = 0; k < ids.size(); ++k) {
    int32_t best = -1;
    for (int32_t e = 0; e < num_experts; ++e) {
      const auto taken = ids.first(k);
      if (std::find(taken.begin(), taken.end(), e) != taken.end()) continue;
      if (best < 0 || scores[e] > scores[best]) best = e;
    }
    ids[k] = best;
  }
}

double dot(const float* weight, const double* x, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(weight[i]) * x[i];
  return sum;
}

const RefWeight& weight_of(std::span<const std::unique_ptr<ops::PackedWeight>> weights, int32_t e) {
  return static_cast<const RefWeight&>(*weights[static_cast<size_t>(e)]);
}

}  // namespace

void RefBackend::route(const ops::RouteArgs& args) {
  check(args);
  const int64_t num_experts = args.scores.dim(1);
  const int64_t top_k = args.ids.dim(1);
  const float* scale = args.expert_scale.f32();
  for (int64_t t = 0; t < args.scores.dim(0); ++t) {
    float* scores = args.scores.row(t);
    int32_t* ids = args.ids.as<int32_t>() + t * top_k;
    select(scores, num_experts, {ids, static_cast<size_t>(top_k)});
    double highest = -std::numeric_limits<double>::infinity();
    for (int64_t e = 0; e < num_experts; ++e) highest = std::fmax(highest, scores[e]);
    double total = 0.0;
    for (int64_t e = 0; e < num_experts; ++e) total += std::exp(scores[e] - highest);
    double chosen = 0.0;
    for (int64_t k = 0; k < top_k; ++k) chosen += std::exp(scores[ids[k]] - highest);
    for (int64_t k = 0; k < top_k; ++k) {
      // A total that is NaN marks the whole row.
      const double share = std::exp(scores[ids[k]] - highest) / chosen + 0.0 * total;
      args.weights.row(t)[k] = static_cast<float>(share * scale[ids[k]]);
    }
    for (int64_t e = 0; e < num_experts; ++e) {
      scores[e] = static_cast<float>(std::exp(scores[e] - highest) / total);
    }
  }
}

void RefBackend::experts(const ops::ExpertsArgs& args) {
  check(args);
  const int64_t inputs = args.x.dim(1);
  const int64_t width = args.gate[0]->rows();
  const int64_t top_k = args.ids.dim(1);
  MB_CHECK_MSG(inputs <= capacity_.expert_inputs && width <= capacity_.expert_width,
               "experts are larger than planned");
  const int64_t stride = capacity_.expert_inputs + capacity_.expert_width;
  pool_.run(args.x.dim(0), [&](int64_t t, int thread) {
    double* x = expert_rows_ + thread * stride;
    double* product = x + inputs;
    std::copy_n(args.x.row(t), inputs, x);
    float* y = args.y.row(t);
    std::fill_n(y, inputs, 0.0F);
    for (int64_t k = 0; k < top_k; ++k) {
      const int32_t e = args.ids.as<int32_t>()[t * top_k + k];
      ops::check_expert(args, e);
      for (int64_t m = 0; m < width; ++m) {
        // Between the products stand floats, as between ops.
        const auto gate = static_cast<float>(dot(weight_of(args.gate, e).row(m), x, inputs));
        const auto up = static_cast<float>(dot(weight_of(args.up, e).row(m), x, inputs));
        product[m] = static_cast<float>(gelu_tanh(gate) * static_cast<double>(up));
      }
      for (int64_t h = 0; h < inputs; ++h) {
        const auto out = static_cast<float>(dot(weight_of(args.down, e).row(h), product, width));
        y[h] = std::fma(args.weights.row(t)[k], out, y[h]);
      }
    }
  });
}

}  // namespace markbase::backends
