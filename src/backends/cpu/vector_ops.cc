#include "backends/cpu/vector_ops.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backends/cpu/attention_layout.h"
#include "backends/cpu/kernels/vector_kernels.h"
#include "base/check.h"

namespace markbase::backends::cpu {
namespace {

using tensor::TensorView;

// Below this a call costs less (some microseconds) than waking the pool.
constexpr int64_t kInlineElements = 32 * 1024;
// Elements of a chunk: 64 KiB of floats, small enough to share out evenly.
constexpr int64_t kChunkElements = 16 * 1024;

// body(begin, end) over rows [0, num_rows) of row_elements each: one call, or chunks over the pool.
template <class Body>
void for_rows(base::ThreadPool& pool, int64_t num_rows, int64_t row_elements, const Body& body) {
  if (num_rows <= 1 || pool.num_threads() == 1 || num_rows * row_elements < kInlineElements) {
    body(int64_t{0}, num_rows);
    return;
  }
  const int64_t chunk_rows =
      std::max<int64_t>(1, kChunkElements / std::max<int64_t>(1, row_elements));
  const int64_t num_chunks = (num_rows + chunk_rows - 1) / chunk_rows;
  pool.run(num_chunks, [&](int64_t chunk_idx, int) {
    const int64_t begin = chunk_idx * chunk_rows;
    body(begin, std::min(num_rows, begin + chunk_rows));
  });
}

template <class Body>
void for_each_row(base::ThreadPool& pool, const TensorView& x, const Body& body) {
  for_rows(pool, x.dim(0), x.dim(1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
  });
}

float* token(const TensorView& x, int64_t t) { return x.f32() + t * x.stride[0]; }

}  // namespace

const VectorKernels& vector_kernels(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kGeneric:
      return generic_vector_kernels();
    case CpuIsa::kAvx2:
    case CpuIsa::kAvxVnni:
      return avx2_vector_kernels();
    case CpuIsa::kAvx512:
    case CpuIsa::kAvx512Vnni:
    case CpuIsa::kAmx:
      return avx512_vector_kernels();
  }
  MB_CHECK_MSG(false, "unknown instruction set");
}

void rms_norm(const VectorKernels& kernels, base::ThreadPool& pool, const ops::RmsNormArgs& args) {
  const float* weight = args.weight.data == nullptr ? nullptr : args.weight.f32();
  for_each_row(pool, args.x, [&](int64_t i) {
    kernels.rms_norm(args.x.row(i), weight, args.eps, args.x.dim(1), args.y.row(i));
  });
}

void add_rms_norm(const VectorKernels& kernels, base::ThreadPool& pool,
                  const ops::AddRmsNormArgs& args) {
  const float* post = args.post_weight.data == nullptr ? nullptr : args.post_weight.f32();
  const float* next = args.next_weight.data == nullptr ? nullptr : args.next_weight.f32();
  const bool has_y = args.y.data != nullptr;
  for_each_row(pool, args.x, [&](int64_t i) {
    kernels.add_rms_norm(args.x.row(i), post, args.residual.row(i), args.scale, next, args.eps,
                         args.x.dim(1), has_y ? args.y.row(i) : nullptr);
  });
}

void add(const VectorKernels& kernels, base::ThreadPool& pool, const ops::AddArgs& args) {
  for_each_row(pool, args.x,
               [&](int64_t i) { kernels.add(args.x.row(i), args.y.row(i), args.x.dim(1)); });
}

void gelu_mul(const VectorKernels& kernels, base::ThreadPool& pool, const ops::GeluMulArgs& args) {
  for_each_row(pool, args.gate, [&](int64_t i) {
    kernels.gelu_mul(args.gate.row(i), args.up.row(i), args.y.row(i), args.gate.dim(1));
  });
}

// A row of logits alone is worth sharing out: 262,144 elements.
void soft_cap(const VectorKernels& kernels, base::ThreadPool& pool, const ops::SoftCapArgs& args) {
  const int64_t width = args.x.dim(1);
  const int64_t row_chunks = (width + kChunkElements - 1) / kChunkElements;
  for_rows(pool, args.x.dim(0) * row_chunks, std::min(width, kChunkElements),
           [&](int64_t begin, int64_t end) {
             for (int64_t i = begin; i < end; ++i) {
               const int64_t offset = i % row_chunks * kChunkElements;
               kernels.soft_cap(args.x.row(i / row_chunks) + offset, args.cap,
                                std::min(kChunkElements, width - offset));
             }
           });
}

void scale(const VectorKernels& kernels, base::ThreadPool& pool, const ops::ScaleArgs& args) {
  for_each_row(pool, args.x,
               [&](int64_t i) { kernels.scale(args.x.row(i), args.factor, args.x.dim(1)); });
}

void gather_rows(const VectorKernels&, base::ThreadPool& pool, const ops::GatherRowsArgs& args) {
  const int32_t* rows = args.rows.as<int32_t>();
  const size_t row_bytes = static_cast<size_t>(args.x.dim(1)) * sizeof(float);
  for_each_row(pool, args.y,
               [&](int64_t i) { std::memcpy(args.y.row(i), args.x.row(rows[i]), row_bytes); });
}

void rope_table(base::ThreadPool& pool, const ops::RopeTableArgs& args) {
  const int32_t* positions = args.positions.as<int32_t>();
  const std::span<const float> inv_freq(args.inv_freq.f32(),
                                        static_cast<size_t>(args.inv_freq.dim(0)));
  // A sine takes as long as this many elements of the other ops.
  constexpr int64_t kSineElements = 32;
  const int64_t row_elements = kSineElements * args.table.dim(1);
  for_rows(pool, args.table.dim(0), row_elements, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      ops::fill_rope_row(inv_freq, positions[t], args.table.row(t));
    }
  });
}

void rope(const VectorKernels& kernels, base::ThreadPool& pool, const ops::RopeArgs& args) {
  const int32_t* table_rows = args.table_rows.as<int32_t>();
  const int64_t pairs = args.table.dim(1) / 2;
  const int64_t num_heads = args.x.dim(1);
  const int64_t head_dim = args.x.dim(2);
  for_rows(pool, args.x.dim(0), num_heads * head_dim, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* table_row = args.table.row(table_rows[t]);
      float* x = token(args.x, t);
      for (int64_t h = 0; h < num_heads; ++h) {
        kernels.rope(x + h * head_dim, table_row, head_dim, pairs);
      }
    }
  });
}

void norm_rope(const VectorKernels& kernels, base::ThreadPool& pool,
               const ops::NormRopeArgs& args) {
  const int32_t* table_rows = args.table_rows.as<int32_t>();
  const int64_t pairs = args.table.dim(1) / 2;
  const float* weight = args.weight.data == nullptr ? nullptr : args.weight.f32();
  const int64_t num_heads = args.x.dim(1);
  const int64_t head_dim = args.x.dim(2);
  for_rows(pool, args.x.dim(0), num_heads * head_dim, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* table_row = args.table.row(table_rows[t]);
      for (int64_t h = 0; h < num_heads; ++h) {
        float* x = token(args.x, t) + h * head_dim;
        kernels.rms_norm(x, weight, args.eps, head_dim, x);
        kernels.rope(x, table_row, head_dim, pairs);
      }
    }
  });
}

KvHeadLayout kv_head_layout(const ops::KvLayout& layout) {
  const size_t element_bytes = layout.type == ops::KvType::kF32  ? 4
                               : layout.type == ops::KvType::kQ8 ? 1
                                                                 : 2;
  const size_t side_bytes =
      size_t{kBlockKeys} * static_cast<size_t>(padded_head_dim(layout.head_dim)) * element_bytes;
  const size_t scale_bytes = layout.type == ops::KvType::kQ8 ? kBlockKeys * sizeof(float) : 0;
  KvHeadLayout head;
  head.type = static_cast<KvStore>(layout.type);
  head.offsets = {side_bytes, 2 * side_bytes, 2 * side_bytes + scale_bytes};
  head.head_bytes = 2 * (side_bytes + scale_bytes);  // both multiples of 64
  return head;
}

static_assert(static_cast<int>(KvStore::kF16) == static_cast<int>(ops::KvType::kF16) &&
              static_cast<int>(KvStore::kBF16) == static_cast<int>(ops::KvType::kBF16) &&
              static_cast<int>(KvStore::kF32) == static_cast<int>(ops::KvType::kF32) &&
              static_cast<int>(KvStore::kQ8) == static_cast<int>(ops::KvType::kQ8));
static_assert(kBlockKeys == ops::kKvBlockTokens);

size_t kv_block_bytes(const ops::KvLayout& layout) {
  return kv_head_layout(layout).head_bytes * static_cast<size_t>(layout.num_kv_heads);
}

void kv_write(const VectorKernels& kernels, base::ThreadPool& pool, const ops::KvWriteArgs& args) {
  const ops::KvLayout& layout = args.cache.layout;
  const KvHeadLayout head = kv_head_layout(layout);
  const size_t block_bytes = kv_block_bytes(layout);
  const int32_t* positions = args.positions.as<int32_t>();
  const int32_t* sequences = args.sequences.as<int32_t>();
  const TensorView& table = args.cache.block_table;
  // Several threads may find an overflow: all store the same 1.
  std::atomic_ref<int32_t> overflow(*args.overflow.as<int32_t>());

  const auto write_token = [&](int64_t t) {
    const int64_t block_idx = positions[t] / kBlockKeys % table.dim(1);
    const int32_t block = table.as<int32_t>()[sequences[t] * table.stride[0] + block_idx];
    uint8_t* base =
        static_cast<uint8_t*>(args.cache.blocks) + static_cast<size_t>(block) * block_bytes;
    for (int64_t g = 0; g < layout.num_kv_heads; ++g) {
      KvStoreArgs store;
      store.type = head.type;
      store.head_dim = static_cast<int>(layout.head_dim);
      store.k = token(args.k, t) + g * layout.head_dim;
      store.v = token(args.v, t) + g * layout.head_dim;
      store.entry = positions[t] % kBlockKeys;
      store.head = base + static_cast<size_t>(g) * head.head_bytes;
      store.offsets = head.offsets;
      if (!kernels.kv_store(store)) overflow.store(1, std::memory_order_relaxed);
    }
  };
  for_rows(pool, args.k.dim(0), 2 * layout.num_kv_heads * layout.head_dim,
           [&](int64_t begin, int64_t end) {
             for (int64_t t = begin; t < end; ++t) write_token(t);
           });
}

namespace {

// The ids of the highest scores, highest first; of equal ones the lower index goes first.
void highest_scores(const float* scores, int64_t num_scores, int64_t top_k, int32_t* ids) {
  int64_t held = 0;
  for (int32_t e = 0; e < num_scores; ++e) {
    int64_t at = held;
    while (at > 0 && scores[e] > scores[ids[at - 1]]) --at;
    if (at == top_k) continue;
    held = std::min(held + 1, top_k);
    std::copy_backward(ids + at, ids + held - 1, ids + held);
    ids[at] = e;
  }
}

// p = softmax(p) over n; NaN where the highest is not finite, or a score is NaN.
void softmax_row(const VectorKernels& kernels, float* p, int64_t n) {
  float highest = p[0];
  for (int64_t e = 1; e < n; ++e) highest = std::max(highest, p[e]);
  for (int64_t e = 0; e < n; ++e) p[e] -= highest;
  kernels.exp(p, p, n);
  float total = 0.0F;
  for (int64_t e = 0; e < n; ++e) total += p[e];
  for (int64_t e = 0; e < n; ++e) p[e] /= total;
}

}  // namespace

void route(const VectorKernels& kernels, base::ThreadPool& pool, const ops::RouteArgs& args) {
  const int64_t top_k = args.ids.dim(1);
  const float* scale = args.expert_scale.f32();
  // Some passes over the row, an exp and a search.
  constexpr int64_t kRowCost = 16;
  for_rows(pool, args.scores.dim(0), kRowCost * args.scores.dim(1),
           [&](int64_t begin, int64_t end) {
             for (int64_t t = begin; t < end; ++t) {
               float* p = args.scores.row(t);
               int32_t* ids = args.ids.as<int32_t>() + t * top_k;
               float* weights = args.weights.row(t);
               highest_scores(p, args.scores.dim(1), top_k, ids);
               softmax_row(kernels, p, args.scores.dim(1));
               float chosen = 0.0F;
               for (int64_t k = 0; k < top_k; ++k) chosen += p[ids[k]];
               for (int64_t k = 0; k < top_k; ++k) weights[k] = p[ids[k]] / chosen * scale[ids[k]];
             }
           });
}

void sample(const VectorKernels&, base::ThreadPool& pool, const ops::SampleArgs& args) {
  const int64_t num_rows = args.logits.dim(0);
  const int64_t vocab = args.logits.dim(1);
  const std::span<const int32_t> suppressed(
      args.suppressed.as<int32_t>(),
      args.suppressed.data == nullptr ? 0 : static_cast<size_t>(args.suppressed.num_elements()));
  const auto sample_one = [&](int64_t i, int) {
    const std::span<uint32_t> seen(args.seen.as<uint32_t>() + i * args.seen.stride[0],
                                   static_cast<size_t>(args.seen.dim(1)));
    const std::span<ops::Candidate> candidates(
        static_cast<ops::Candidate*>(args.scratch) + i * vocab, static_cast<size_t>(vocab));
    args.ids.as<int32_t>()[i] =
        ops::sample_row({args.logits.row(i), static_cast<size_t>(vocab)}, args.params[i],
                        args.positions.as<int32_t>()[i], suppressed, seen, candidates);
  };
  pool.run(num_rows, sample_one);
}

}  // namespace markbase::backends::cpu
