#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/ref/kv_block.h"

namespace markbase::backends {
namespace {

// One row and head: keys [first, last] of one sequence, seen through the block table.
struct HeadArgs {
  const float* q;
  float* y;
  int32_t sequence;
  int64_t first;
  int64_t last;
  int64_t kv_head;
};

void attend(const ops::AttentionArgs& args, size_t block_bytes, const HeadArgs& head,
            double* scores, double* sums) {
  const ops::KvLayout& layout = args.cache.layout;
  const int64_t at = head.kv_head * layout.head_dim;
  double best = -std::numeric_limits<double>::infinity();
  for (int64_t p = head.first; p <= head.last; ++p) {
    const float* k = kv_key(args.cache, block_bytes, head.sequence, p) + at;
    double dot = 0.0;
    for (int64_t i = 0; i < layout.head_dim; ++i) {
      dot += static_cast<double>(head.q[i]) * static_cast<double>(k[i]);
    }
    scores[p - head.first] = static_cast<double>(args.scale) * dot;
    best = std::max(best, scores[p - head.first]);
  }
  std::fill_n(sums, layout.head_dim, 0.0);
  double total = 0.0;
  for (int64_t p = head.first; p <= head.last; ++p) {
    const float* v =
        kv_key(args.cache, block_bytes, head.sequence, p) + kv_value_offset(layout) + at;
    const double weight = std::exp(scores[p - head.first] - best);
    total += weight;
    for (int64_t i = 0; i < layout.head_dim; ++i) sums[i] += weight * static_cast<double>(v[i]);
  }
  for (int64_t i = 0; i < layout.head_dim; ++i) head.y[i] = static_cast<float>(sums[i] / total);
}

}  // namespace

void RefBackend::attention(const ops::AttentionArgs& args) {
  check(args);
  const ops::KvLayout& layout = args.cache.layout;
  const size_t block_bytes = kv_block_bytes(layout);
  const int64_t num_heads = args.q.dim(1);
  const int64_t group = num_heads / layout.num_kv_heads;
  const int32_t* positions = args.positions.as<int32_t>();
  const int32_t* sequences = args.sequences.as<int32_t>();
  MB_CHECK_MSG(layout.head_dim <= capacity_.max_head_dim, "attention is larger than planned");
  pool_.run(args.q.dim(0) * num_heads, [&](int64_t chunk, int thread) {
    const int64_t t = chunk / num_heads;
    const int64_t h = chunk % num_heads;
    const int64_t last = positions[t];
    const int64_t first = args.window == 0 ? 0 : std::max<int64_t>(0, last - args.window + 1);
    MB_CHECK_MSG(last - first < capacity_.max_context, "attention sees more keys than planned");
    double* scratch = scores_ + thread * (capacity_.max_context + capacity_.max_head_dim);
    attend(args, block_bytes,
           {.q = args.q.f32() + t * args.q.stride[0] + h * layout.head_dim,
            .y = args.y.f32() + t * args.y.stride[0] + h * layout.head_dim,
            .sequence = sequences[t],
            .first = first,
            .last = last,
            .kv_head = h / group},
           scratch, scratch + capacity_.max_context);
  });
}

}  // namespace markbase::backends
