// The row kernels of one instruction set: what vector_ops.cc and attention.cc drive. Plain data
// only, since it is included by sources compiled for different instruction sets.
#pragma once

#include <cstddef>
#include <cstdint>

namespace markbase::backends::cpu {

// Values as ops::KvType.
enum class KvStore : uint8_t { kF16, kBF16, kF32, kQ8 };

inline constexpr int kBlockKeys = 64;
// Keys are reduced in spans at fixed absolute positions, so that a long context can be shared out
// to threads without changing a bit.
inline constexpr int kSpanBlocks = 8;
inline constexpr int kSpanKeys = kBlockKeys * kSpanBlocks;
// Floats between the score rows of two queries: a span and a cache line, so that rows do not share
// L1 sets.
inline constexpr int kScoreStride = kSpanKeys + 16;
// Query vectors (row, head) that go over a span together.
inline constexpr int kMaxTileQueries = 48;

// One KV head's part of a block, see attention_layout.h. Offsets in bytes from its start (K is at
// 0).
struct KvHeadOffsets {
  size_t v;
  size_t k_scales;
  size_t v_scales;
};

struct KvStoreArgs {
  KvStore type;
  int head_dim;    // the block has zeros from here to the next multiple of 16
  const float* k;  // [head_dim]
  const float* v;  // [head_dim]
  int entry;       // position inside the block
  uint8_t* head;   // the head's part of the block
  KvHeadOffsets offsets;
};

// One span of keys for a tile of queries that share a KV head.
struct SpanArgs {
  KvStore type;
  int head_dim;     // a multiple of 16
  int num_queries;  // <= kMaxTileQueries
  float scale;
  const float* queries;  // as pack_queries left them
  const int* first;      // [num_queries] visible keys first..last, inside the span;
  const int* last;       // first > last: none
  const uint8_t* const*
      blocks;  // [kSpanBlocks] the head's part; only those with visible keys are read
  KvHeadOffsets offsets;
  float* scores;  // [num_queries, kScoreStride] scratch
  float* max;     // [num_queries] out: highest score; untouched where no key is visible, as are:
  float* sum;     // [num_queries] out: sum of exp(score - max)
  float* out;     // [num_queries, head_dim] out: sum of exp(score - max) * v
};

struct VectorKernels {
  // y = x * (mean(x^2) + eps)^(-1/2) * weight; weight may be null, y may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* y);
  // residual = (residual + rms_norm(x, post_weight)) * scale; y (null: none) = rms_norm(residual,
  // next_weight).
  void (*add_rms_norm)(const float* x, const float* post_weight, float* residual, float scale,
                       const float* next_weight, float eps, int64_t n, float* y);
  void (*add)(const float* x, float* y, int64_t n);
  // y = fma(factor, x, y)
  void (*add_scaled)(const float* x, float factor, float* y, int64_t n);
  void (*gelu_mul)(const float* gate, const float* up, float* y, int64_t n);
  void (*soft_cap)(float* x, float cap, int64_t n);
  void (*scale)(float* x, float factor, int64_t n);
  // table_row: cosines, then sines, of the first `pairs` of the head_dim / 2 pairs; the others
  // stay.
  void (*rope)(float* x, const float* table_row, int64_t head_dim, int64_t pairs);
  // False when a value is not finite or does not fit the type.
  bool (*kv_store)(const KvStoreArgs& args);

  // packed: [num_queries, padded_dim] in the order attend_span reads, zeros behind head_dim.
  void (*pack_queries)(const float* const* queries, int num_queries, int head_dim, int padded_dim,
                       float* packed);
  void (*attend_span)(const SpanArgs& args);
  // Adds a span to the running (max, sum, out): both are brought to the higher maximum.
  void (*merge_span)(float span_max, float span_sum, const float* span_out, float* max, float* sum,
                     float* out, int64_t head_dim);
  // y = out / sum; out has whole vectors.
  void (*finish)(const float* out, float sum, float* y, int64_t head_dim);

  // The functions themselves, for tests.
  void (*exp)(const float* x, float* y, int64_t n);
  void (*tanh)(const float* x, float* y, int64_t n);
  void (*gelu_tanh)(const float* x, float* y, int64_t n);
};

const VectorKernels& generic_vector_kernels();
const VectorKernels& avx2_vector_kernels();
const VectorKernels& avx512_vector_kernels();

}  // namespace markbase::backends::cpu
