// Products with few rows of x: codes go from memory through registers into the sums, so that the
// weights are read at the speed of the memory.
#pragma once

#include "backends/cpu/kernels/linear_codes-inl.h"

namespace markbase::backends::cpu {
namespace {

// Software prefetch distance: about two segments of 4-bit codes. The hardware prefetcher alone
// starves, because the out-of-order window is full of arithmetic.
constexpr int64_t kPrefetchBytes = 4608;

// In assembly because the compiler takes a function that only prefetches for one without effect and
// drops the calls.
inline void prefetch_line(const uint8_t* p) { __asm__ volatile("prefetcht0 %0" : : "m"(*p)); }
inline void prefetch(const uint8_t* p) { prefetch_line(p + kPrefetchBytes); }

// Sums of T rows of x for 16 rows of weights, over the segments of a row block.
template <int T>
struct FusedState {
  const uint8_t* codes[T];  // x16 of the segment
  const int32_t* sums[T];   // group sums from the segment's first on
  const float* sums_f[T];
  float a[T];
  FVec segment[T][kVecs];
};

// Chains of sums a row of x, for T rows.
template <int T>
constexpr int kChains = kMostChains / T < 1 ? 1 : kMostChains / T;

template <int T>
inline __attribute__((always_inline)) void end_group(const GroupedFormat& f,
                                                     const SegmentScales& scales, int64_t g,
                                                     const IVec (&acc)[T][kVecs],
                                                     FusedState<T>& state) {
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      const FVec s = load_f(scales.scales + g * kBlockRows + v * kLanes);
      state.segment[t][v] = fma_f(s, to_float(acc[t][v]), state.segment[t][v]);
    }
  }
  if (!f.has_offset) return;
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) {
    const FVec sum = set1_f(state.sums_f[t][g]);
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      const FVec b = load_f(scales.offsets + g * kBlockRows + v * kLanes);
      state.segment[t][v] = fma_f(b, sum, state.segment[t][v]);
    }
  }
}

// Adds the chains together, takes the zero point away, and starts the next group.
template <int T>
inline __attribute__((always_inline)) void end_chains(const GroupedFormat& f,
                                                      const SegmentScales& scales, int64_t g,
                                                      IVec (&acc)[T][kChains<T>][kVecs],
                                                      FusedState<T>& state) {
  IVec dots[T][kVecs];
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
    const IVec start = set1_i32(-f.zero_point * state.sums[t][g]);
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      dots[t][v] = start;
#pragma GCC unroll 4
      for (int c = 0; c < kChains<T>; ++c) {
        dots[t][v] = add_i32(dots[t][v], acc[t][c][v]);
        acc[t][c][v] = zero_i();
      }
    }
  }
  end_group<T>(f, scales, g, dots, state);
}

// One segment; kSmall: groups of 16, two in a unit of 32.
template <CodeKind K, int T, bool kSmall>
inline __attribute__((always_inline)) void fused_segment(const GroupedFormat& f,
                                                         const uint8_t* segment, int64_t length,
                                                         const SegmentScales& scales,
                                                         FusedState<T>& state) {
  const uint8_t* low = segment;
  const uint8_t* high = segment + first_plane_bytes(f, length);
  const IVec table = broadcast16(f.table);
  const int64_t last_unit_of_group = kSmall ? 0 : f.group_size / kUnit - 1;
  IVec acc[T][kChains<T>][kVecs];
#pragma GCC unroll 4
  for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
    for (int c = 0; c < kChains<T>; ++c) {
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) acc[t][c][v] = zero_i();
    }
  }
  int64_t g = 0;
  for (int64_t u = 0; u < length / kUnit; ++u) {
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) {
      if (kSmall && s == 4) end_chains<T>(f, scales, g++, acc, state);
      IVec even[kVecs];
      IVec odd[kVecs];
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) {
        const IVec bytes = unit_codes<K>(low + v * kVecBytes, high + v * kVecBytes, table, s);
        even[v] = even_codes(bytes);
        odd[v] = odd_codes(bytes);
      }
      if (64 * s < kPlaneStride<K>) prefetch(low + 64 * s);
      if (64 * s < kHighStride<K>) prefetch(high + 64 * s);
#pragma GCC unroll 4
      for (int t = 0; t < T; ++t) {
        const uint8_t* x = state.codes[t] + u * (2 * kUnit) + s * 8;
        dot_step(acc[t][2 * s % kChains<T>], even, x);
        dot_step(acc[t][(2 * s + 1) % kChains<T>], odd, x + 4);
      }
    }
    low += kPlaneStride<K>;
    high += kHighStride<K>;
    if (kSmall || (u & last_unit_of_group) == last_unit_of_group) {
      end_chains<T>(f, scales, g++, acc, state);
    }
  }
}

template <int T>
inline void point_at_segment(const GroupedArgs& args, int64_t token, int64_t begin,
                             FusedState<T>* state) {
  const Activations& x = *args.x;
  const int level = args.format->group_level;
  for (int t = 0; t < T; ++t) {
    const uint8_t* row = x.rows + (args.first_token + token + t) * x.layout.row_bytes;
    const int64_t group = begin / args.format->group_size;
    state->codes[t] = row + 2 * begin;
    state->sums[t] = reinterpret_cast<const int32_t*>(row + x.layout.sums[level]) + group;
    state->sums_f[t] = reinterpret_cast<const float*>(row + x.layout.sums_f[level]) + group;
    state->a[t] = reinterpret_cast<const float*>(row + x.layout.scales)[begin / kSegment];
    for (int v = 0; v < kVecs; ++v) state->segment[t][v] = zero_f();
  }
}

// Writes the first `count` (at most 16) rows' results of one row of x.
inline void store_rows(float* y, int64_t count, const FVec (&values)[kVecs]) {
  if (count >= kBlockRows) {
    for (int v = 0; v < kVecs; ++v) store_unaligned(y + v * kLanes, values[v]);
    return;
  }
  alignas(64) float rows[kBlockRows];
  for (int v = 0; v < kVecs; ++v) store_f(rows + v * kLanes, values[v]);
  for (int64_t r = 0; r < count; ++r) y[r] = rows[r];
}

template <CodeKind K, int T>
void fused_block(const GroupedArgs& args, int64_t block, int64_t token) {
  const GroupedFormat& f = *args.format;
  const int64_t cols = args.x->layout.cols;
  float* scratch = reinterpret_cast<float*>(args.scratch);
  const SegmentScales scales = {scratch, scratch + 16 * kBlockRows};
  const uint8_t* segment = args.blocks + block * args.block_bytes;
  FVec span[T][kVecs];
  FVec total[T][kVecs];
  for (int t = 0; t < T; ++t) {
    for (int v = 0; v < kVecs; ++v) total[t][v] = span[t][v] = zero_f();
  }
  FusedState<T> state;
  for (int64_t begin = 0; begin < cols; begin += kSegment) {
    const int64_t length = least(kSegment, cols - begin);
    const int64_t codes = code_bytes(f, length);
    const int64_t bytes = segment_bytes(f, length);
    for (int64_t line = codes; line < bytes; line += 64) prefetch(segment + line);
    segment_scales(f, segment + codes, length / f.group_size, scales);
    point_at_segment<T>(args, token, begin, &state);
    if (f.group_size == 16) {
      fused_segment<K, T, true>(f, segment, length, scales, state);
    } else {
      fused_segment<K, T, false>(f, segment, length, scales, state);
    }
    segment += bytes;
    const bool span_ends = begin + kSegment >= cols || (begin / kSegment + 1) % kSpanSegments == 0;
    for (int t = 0; t < T; ++t) {
      for (int v = 0; v < kVecs; ++v) {
        span[t][v] = fma_f(set1_f(state.a[t]), state.segment[t][v], span[t][v]);
        if (!span_ends) continue;
        total[t][v] = add_f(total[t][v], span[t][v]);
        span[t][v] = zero_f();
      }
    }
  }
  for (int t = 0; t < T; ++t) {
    store_rows(args.y + (token + t) * args.y_stride + block * kBlockRows,
               args.num_rows - block * kBlockRows, total[t]);
  }
}

template <CodeKind K>
void fused_blocks(const GroupedArgs& args) {
  for (int64_t block = 0; block < args.num_blocks; ++block) {
    int64_t token = 0;
    for (; token + 2 <= args.num_tokens; token += 2) fused_block<K, 2>(args, block, token);
    if (token < args.num_tokens) fused_block<K, 1>(args, block, token);
  }
}

}  // namespace
}  // namespace markbase::backends::cpu
