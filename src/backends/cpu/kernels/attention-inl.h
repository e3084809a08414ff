// Attention of a tile of queries over one span of keys.
//
// The arithmetic, whatever the tile: a score is one fma chain over the head's dims, times the scale
// of the key (Q8), times args.scale. Then the span's maximum over the visible keys, p = exp(score -
// max), the sum of p in sixteen lanes by position and the tree, and out[d] = fma(p, v[d], out[d])
// key after key (p times the scale of the value for Q8). Keys outside a query's range have p = 0
// and are skipped or add +0. Keys lie as [4][head_dim][16 keys], values as [head_dim / 16][64
// keys][16 dims]: both are read straight through.
#pragma once

#include "backends/cpu/kernels/math-inl.h"
#include "backends/cpu/kernels/simd-inl.h"
#include "backends/cpu/kernels/vector_kernels.h"

namespace {
namespace attn {

using markbase::backends::cpu::kBlockKeys;
using markbase::backends::cpu::kScoreStride;
using markbase::backends::cpu::kSpanBlocks;
using markbase::backends::cpu::KvStore;
using markbase::backends::cpu::SpanArgs;
using simd::F;
using simd::kLanes;

constexpr int kGroups = kBlockKeys / kLanes;

// Accumulators that fit the registers: queries x vectors of sixteen.
#if defined(__AVX512F__)
constexpr int kMaxQueries = 12;
constexpr int vectors_for(int queries) { return queries <= 6 ? 4 : 2; }
#else
constexpr int kMaxQueries = 6;
constexpr int vectors_for(int queries) { return queries == 1 ? 4 : queries <= 3 ? 2 : 1; }
#endif

// Queries that go through the registers together, given how many are left. Only 1, 2, 3, 4, 6, 8,
// 12 exist.
MB_INLINE int micro_tile(int left) {
  if (kMaxQueries >= 12 && left >= 12) return 12;
  if (kMaxQueries >= 8 && left >= 8) return 8;
  if (left >= 6) return 6;
  return left >= 4 ? 4 : left;
}

// With few queries the cache comes from memory at every step: asked for this far ahead, since the
// arithmetic fills the window in which the processor would find out by itself (+25 % at 16,384
// keys). Beyond the end of a block it does no harm.
constexpr int kPrefetchBytes = 2048;
constexpr int kPrefetchQueries = 4;
template <int kQueries>
MB_INLINE void prefetch(const void* p) {
  if constexpr (kQueries <= kPrefetchQueries) {
    __builtin_prefetch(static_cast<const char*>(p) + kPrefetchBytes);
  }
}

template <KvStore kType>
struct Stored {
  using Type = uint16_t;
};
template <>
struct Stored<KvStore::kF32> {
  using Type = float;
};
template <>
struct Stored<KvStore::kQ8> {
  using Type = int8_t;
};

template <KvStore kType>
MB_INLINE F load_stored(const typename Stored<kType>::Type* p) {
  if constexpr (kType == KvStore::kF16) {
    return simd::load_f16(p);
  } else if constexpr (kType == KvStore::kBF16) {
    return simd::load_bf16(p);
  } else if constexpr (kType == KvStore::kF32) {
    return simd::load(p);
  } else {
    return simd::load_i8(p);
  }
}

// Queries [begin, begin + count) of the tile and the keys that any of them sees.
struct Micro {
  int begin;
  int count;
  int first;
  int last;
};

MB_INLINE Micro micro_at(const SpanArgs& args, int begin) {
  Micro m{begin, micro_tile(args.num_queries - begin), kScoreStride, -1};
  for (int q = begin; q < begin + m.count; ++q) {
    if (args.first[q] > args.last[q]) continue;
    if (args.first[q] < m.first) m.first = args.first[q];
    if (args.last[q] > m.last) m.last = args.last[q];
  }
  return m;
}

// Raw scores of kQueries queries with 16 kVectors keys from group `group` of a block.
template <KvStore kType, int kQueries, int kVectors>
MB_INLINE void score_groups(const SpanArgs& args, const float* packed, const uint8_t* block,
                            int group, float* scores) {
  using T = typename Stored<kType>::Type;
  const int64_t head_dim = args.head_dim;
  const T* keys = reinterpret_cast<const T*>(block) + group * head_dim * kLanes;
  F acc[kQueries][kVectors];
#pragma GCC unroll 12
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[q][v] = simd::set1(0.0f);
  }
  for (int64_t d = 0; d < head_dim; ++d) {
    F k[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      k[v] = load_stored<kType>(keys + (v * head_dim + d) * kLanes);
      prefetch<kQueries>(keys + (v * head_dim + d) * kLanes);
    }
#pragma GCC unroll 12
    for (int q = 0; q < kQueries; ++q) {
      const F x = simd::set1(packed[d * kQueries + q]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[q][v] = simd::fma(x, k[v], acc[q][v]);
    }
  }
  const F scale = simd::set1(args.scale);
  const float* key_scales =
      reinterpret_cast<const float*>(block + args.offsets.k_scales) + group * kLanes;
#pragma GCC unroll 12
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      F s = acc[q][v];
      if constexpr (kType == KvStore::kQ8) s = simd::mul(s, simd::load(key_scales + v * kLanes));
      simd::store(scores + q * kScoreStride + v * kLanes, simd::mul(s, scale));
    }
  }
}

template <KvStore kType, int kQueries>
void score_block(const SpanArgs& args, const Micro& micro, int block_idx) {
  constexpr int kVectors = vectors_for(kQueries);
  const float* packed = args.queries + int64_t{micro.begin} * args.head_dim;
  float* scores = args.scores + micro.begin * kScoreStride + block_idx * kBlockKeys;
  for (int group = 0; group < kGroups; group += kVectors) {
    const int first_key = block_idx * kBlockKeys + group * kLanes;
    if (first_key > micro.last || first_key + kVectors * kLanes <= micro.first) continue;
    score_groups<kType, kQueries, kVectors>(args, packed, args.blocks[block_idx], group,
                                            scores + group * kLanes);
  }
}

// Turns the raw scores of one query into weights; lanes and groups that the micro tile reads but
// this query does not see become 0.
template <KvStore kType>
void soft_max_row(const SpanArgs& args, const Micro& micro, int query) {
  float* s = args.scores + query * kScoreStride;
  const int first = args.first[query];
  const int last = args.last[query];
  for (int g = micro.first / kLanes; g <= micro.last / kLanes; ++g) {
    if (first > last || g < first / kLanes || g > last / kLanes) {
      simd::store(s + g * kLanes, simd::set1(0.0f));
    }
  }
  if (first > last) return;
  const F minus_infinity = simd::set1(-__builtin_inff());
  F highest = minus_infinity;
  for (int g = first / kLanes; g <= last / kLanes; ++g) {
    const F x = simd::keep_lanes(simd::load(s + g * kLanes), first - g * kLanes, last - g * kLanes,
                                 minus_infinity);
    simd::store(s + g * kLanes, x);
    highest = simd::max(x, highest);
  }
  const float max = simd::reduce_max(highest);
  F sum = simd::set1(0.0f);
  for (int g = first / kLanes; g <= last / kLanes; ++g) {
    F p = math::exp(simd::sub(simd::load(s + g * kLanes), simd::set1(max)));
    sum = simd::add(sum, p);
    if constexpr (kType == KvStore::kQ8) {
      const uint8_t* block = args.blocks[g / kGroups];
      const float* value_scales = reinterpret_cast<const float*>(block + args.offsets.v_scales);
      p = simd::mul(p, simd::load(value_scales + (g % kGroups) * kLanes));
      // The scale of a key that this query does not see may be anything.
      p = simd::keep_lanes(p, first - g * kLanes, last - g * kLanes, simd::set1(0.0f));
    }
    simd::store(s + g * kLanes, p);
  }
  args.max[query] = max;
  args.sum[query] = simd::reduce_add(sum);
}

// out += p * v over keys [first, last] of a block, for 16 kVectors dims.
template <KvStore kType, int kQueries, int kVectors>
MB_INLINE void add_values(const uint8_t* block_values, const float* weights, int first, int last,
                          int64_t dim, int64_t head_dim, bool fresh, float* out) {
  using T = typename Stored<kType>::Type;
  const T* values = reinterpret_cast<const T*>(block_values) + dim * kBlockKeys;
  F acc[kQueries][kVectors];
#pragma GCC unroll 12
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      acc[q][v] = fresh ? simd::set1(0.0f) : simd::load(out + q * head_dim + dim + v * kLanes);
    }
  }
  for (int64_t key = first; key <= last; ++key) {
    F x[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      x[v] = load_stored<kType>(values + (v * kBlockKeys + key) * kLanes);
      prefetch<kQueries>(values + (v * kBlockKeys + key) * kLanes);
    }
#pragma GCC unroll 12
    for (int q = 0; q < kQueries; ++q) {
      const F p = simd::set1(weights[q * kScoreStride + key]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[q][v] = simd::fma(p, x[v], acc[q][v]);
    }
  }
#pragma GCC unroll 12
  for (int q = 0; q < kQueries; ++q) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      simd::store(out + q * head_dim + dim + v * kLanes, acc[q][v]);
    }
  }
}

template <KvStore kType, int kQueries>
void value_block(const SpanArgs& args, const Micro& micro, int block_idx) {
  constexpr int kVectors = vectors_for(kQueries);
  const int start = block_idx * kBlockKeys;
  const int first = micro.first > start ? micro.first - start : 0;
  const int last = micro.last < start + kBlockKeys ? micro.last - start : kBlockKeys - 1;
  const bool fresh = block_idx == micro.first / kBlockKeys;
  const int64_t head_dim = args.head_dim;
  const uint8_t* values = args.blocks[block_idx] + args.offsets.v;
  const float* weights = args.scores + micro.begin * kScoreStride + start;
  float* out = args.out + micro.begin * head_dim;
  int64_t dim = 0;
  for (; dim + kVectors * kLanes <= head_dim; dim += kVectors * kLanes) {
    add_values<kType, kQueries, kVectors>(values, weights, first, last, dim, head_dim, fresh, out);
  }
  for (; dim < head_dim; dim += kLanes) {
    add_values<kType, kQueries, 1>(values, weights, first, last, dim, head_dim, fresh, out);
  }
}

enum class Pass { kScores, kValues };

template <Pass kPass, KvStore kType, int kQueries>
MB_INLINE void run_block(const SpanArgs& args, const Micro& micro, int block_idx) {
  if constexpr (kPass == Pass::kScores) {
    score_block<kType, kQueries>(args, micro, block_idx);
  } else {
    value_block<kType, kQueries>(args, micro, block_idx);
  }
}

template <Pass kPass, KvStore kType>
void micro_block(const SpanArgs& args, const Micro& micro, int block_idx) {
  switch (micro.count) {
    case 1:
      return run_block<kPass, kType, 1>(args, micro, block_idx);
    case 2:
      return run_block<kPass, kType, 2>(args, micro, block_idx);
    case 3:
      return run_block<kPass, kType, 3>(args, micro, block_idx);
    case 4:
      return run_block<kPass, kType, 4>(args, micro, block_idx);
    case 6:
      return run_block<kPass, kType, 6>(args, micro, block_idx);
#if defined(__AVX512F__)
    case 8:
      return run_block<kPass, kType, 8>(args, micro, block_idx);
    case 12:
      return run_block<kPass, kType, 12>(args, micro, block_idx);
#endif
    default:
      __builtin_unreachable();
  }
}

// Block after block, so that the tile's queries find it in the nearer caches.
template <Pass kPass, KvStore kType>
void run_pass(const SpanArgs& args) {
  for (int block_idx = 0; block_idx < kSpanBlocks; ++block_idx) {
    for (int begin = 0; begin < args.num_queries;) {
      const Micro micro = micro_at(args, begin);
      if (micro.first / kBlockKeys <= block_idx && block_idx <= micro.last / kBlockKeys) {
        if (micro.last >= 0) micro_block<kPass, kType>(args, micro, block_idx);
      }
      begin += micro.count;
    }
  }
}

template <KvStore kType>
void attend_typed(const SpanArgs& args) {
  run_pass<Pass::kScores, kType>(args);
  for (int begin = 0; begin < args.num_queries;) {
    const Micro micro = micro_at(args, begin);
    if (micro.last >= 0) {
      for (int q = begin; q < begin + micro.count; ++q) soft_max_row<kType>(args, micro, q);
    }
    begin += micro.count;
  }
  run_pass<Pass::kValues, kType>(args);
}

void attend_span(const SpanArgs& args) {
  switch (args.type) {
    case KvStore::kF16:
      return attend_typed<KvStore::kF16>(args);
    case KvStore::kBF16:
      return attend_typed<KvStore::kBF16>(args);
    case KvStore::kF32:
      return attend_typed<KvStore::kF32>(args);
    case KvStore::kQ8:
      return attend_typed<KvStore::kQ8>(args);
  }
}

// Micro tile after micro tile, each [padded_dim][count].
void pack_queries(const float* const* queries, int num_queries, int head_dim, int padded_dim,
                  float* packed) {
  for (int begin = 0; begin < num_queries;) {
    const int count = micro_tile(num_queries - begin);
    float* out = packed + int64_t{begin} * padded_dim;
    for (int q = 0; q < count; ++q) {
      const float* x = queries[begin + q];
      for (int d = 0; d < head_dim; ++d) out[d * count + q] = x[d];
      for (int d = head_dim; d < padded_dim; ++d) out[d * count + q] = 0.0f;
    }
    begin += count;
  }
}

MB_INLINE float exp_of(float x) {
  float lanes[kLanes];
  simd::store(lanes, math::exp(simd::set1(x)));
  return lanes[0];
}

void merge_span(float span_max, float span_sum, const float* span_out, float* max, float* sum,
                float* out, int64_t head_dim) {
  const float higher = span_max > *max ? span_max : *max;
  const float old_factor = exp_of(*max - higher);
  const float new_factor = exp_of(span_max - higher);
  *max = higher;
  *sum = __builtin_fmaf(span_sum, new_factor, *sum * old_factor);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const F kept = simd::mul(simd::load(out + d), simd::set1(old_factor));
    simd::store(out + d, simd::fma(simd::load(span_out + d), simd::set1(new_factor), kept));
  }
}

// + 0: whether a zero sum is -0 may depend on the keys a neighbour saw, the result may not.
void finish(const float* out, float sum, float* y, int64_t head_dim) {
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    const F quotient = simd::div(simd::load(out + d), simd::set1(sum));
    const F rounded = simd::add(quotient, simd::set1(0.0f));
    if (head_dim - d >= kLanes) {
      simd::store(y + d, rounded);
    } else {
      simd::store_n(y + d, rounded, head_dim - d);
    }
  }
}

}  // namespace attn
}  // namespace
