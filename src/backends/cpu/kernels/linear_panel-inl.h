// Products with many rows of x: a segment of 16 rows of weights is unpacked once into a panel of
// 16-bit numbers that stays in the L1 cache, then meets tiles of rows of x.
#pragma once

#include "backends/cpu/kernels/linear_fused-inl.h"
#include "backends/cpu/kernels/linear_pair-inl.h"

namespace markbase::backends::cpu {
namespace {

// This thread's scratch while a row block is worked on.
struct PanelScratch {
  int16_t* panel;  // [kSegment / 2 pairs][16 rows][2], zero point taken away
  SegmentScales scales;
  float* spans;   // [kTileTokens][16]
  float* totals;  // [kTileTokens][16]
  // The segment that is unpacked next, fetched while this one is multiplied.
  const uint8_t* next;
  int64_t next_lines;
};

constexpr int64_t kSpan = kSpanSegments * kSegment;
constexpr int64_t kPanelBytes =
    kSegment * kBlockRows * 2 + 4 * 32 * kBlockRows + 2 * 4 * kTileTokens * kBlockRows;
static_assert(kPanelBlocks * kPanelBytes <= kLinearScratchBytes);

// The first kPanelBytes of `scratch`.
inline PanelScratch carve_panel(uint8_t* scratch) {
  PanelScratch s;
  s.panel = reinterpret_cast<int16_t*>(scratch);
  float* floats = reinterpret_cast<float*>(scratch + kSegment * kBlockRows * 2);
  s.scales = {floats, floats + 16 * kBlockRows};
  s.spans = floats + 32 * kBlockRows;
  s.totals = s.spans + kTileTokens * kBlockRows;
  s.next = nullptr;
  s.next_lines = 0;
  return s;
}

inline int64_t lines_per_group(const PanelScratch& scratch, int64_t groups) {
  return (scratch.next_lines + groups - 1) / groups;
}

// Fetches one of `groups` equal parts of the next segment.
inline void prefetch_part(const PanelScratch& scratch, int64_t lines, int64_t g) {
  const int64_t end = least(scratch.next_lines, (g + 1) * lines);
  for (int64_t i = g * lines; i < end; ++i) prefetch_line(scratch.next + 64 * i);
}

// span = fma(a, segment, span) for the segment that begins at column `begin`; the first segment of
// a span starts from zero.
inline __attribute__((always_inline)) void add_to_span(float* span, FVec a, FVec segment,
                                                       int64_t begin) {
  store_f(span, fma_f(a, segment, begin % kSpan == 0 ? zero_f() : load_f(span)));
}

// The 16 pairs of columns of a unit for kLanes rows; codes that begin at zero have nothing taken
// away.
template <CodeKind K, bool kFromZero>
inline __attribute__((always_inline)) void unpack_unit(const uint8_t* low, const uint8_t* high,
                                                       IVec table, IVec zero, uint8_t* out) {
  const auto put = [&](int pair, IVec codes) __attribute__((always_inline)) {
    store_i(out + pair * 64, kFromZero ? codes : sub16(codes, zero));
  };
#pragma GCC unroll 8
  for (int s = 0; s < 8; ++s) {
    if constexpr (K == CodeKind::k4) {
      const IVec words = load_i(low + 64 * (s / 2));
      const int shift = 4 * (s % 2);
      put(2 * s, and_i(shift16(words, shift), set1_i16(0x000f)));
      put(2 * s + 1, s % 2 == 0 ? and_i(shift16(words, 8), set1_i16(0x000f)) : shift16(words, 12));
    } else {
      const IVec bytes = unit_codes<K>(low, high, table, s);
      put(2 * s, even_codes(bytes));
      put(2 * s + 1, odd_codes(bytes));
    }
  }
}

template <CodeKind K, bool kFromZero>
void unpack_panel(const GroupedFormat& f, const uint8_t* segment, int64_t length, int16_t* panel) {
  const uint8_t* low = segment;
  const uint8_t* high = segment + first_plane_bytes(f, length);
  const IVec table = broadcast16(f.table);
  const IVec zero = set1_i16(f.zero_point);
  uint8_t* out = reinterpret_cast<uint8_t*>(panel);
  for (int64_t u = 0; u < length / kUnit; ++u) {
    for (int v = 0; v < kVecs; ++v) {
      const int64_t at = v * kVecBytes;
      unpack_unit<K, kFromZero>(low + at, high + at, table, zero, out + at);
    }
    low += kPlaneStride<K>;
    high += kHighStride<K>;
    out += 16 * 64;
  }
}

template <CodeKind K>
void unpack_panel(const GroupedFormat& f, const uint8_t* segment, int64_t length, int16_t* panel) {
  return f.zero_point == 0 ? unpack_panel<K, true>(f, segment, length, panel)
                           : unpack_panel<K, false>(f, segment, length, panel);
}

void unpack_any_panel(const GroupedFormat& f, const uint8_t* segment, int64_t length,
                      int16_t* panel) {
  switch (f.codes) {
    case CodeKind::k2:
      return unpack_panel<CodeKind::k2>(f, segment, length, panel);
    case CodeKind::k3:
      return unpack_panel<CodeKind::k3>(f, segment, length, panel);
    case CodeKind::k4:
      return unpack_panel<CodeKind::k4>(f, segment, length, panel);
    case CodeKind::k5:
      return unpack_panel<CodeKind::k5>(f, segment, length, panel);
    case CodeKind::k6:
      return unpack_panel<CodeKind::k6>(f, segment, length, panel);
    case CodeKind::k8:
      return unpack_panel<CodeKind::k8>(f, segment, length, panel);
    case CodeKind::kTable4:
      return unpack_panel<CodeKind::kTable4>(f, segment, length, panel);
  }
}

// One segment for T rows of x; their spans are updated.
template <int T>
void panel_tile(const GroupedArgs& args, const PanelScratch& scratch, int64_t begin, int64_t length,
                int64_t token) {
  const GroupedFormat& f = *args.format;
  FusedState<T> state;
  point_at_segment<T>(args, token, begin, &state);
  const int16_t* panel = scratch.panel;
  const int64_t pairs = f.group_size / 2;
  const int64_t groups = length / f.group_size;
  int64_t at = 0;  // bytes into x16
  const int64_t lines = token == 0 ? lines_per_group(scratch, groups) : 0;
  for (int64_t g = 0; g < groups; ++g) {
    if (lines > 0) prefetch_part(scratch, lines, g);
    IVec acc[T][kVecs];
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) acc[t][v] = zero_i();
    }
    const int64_t end = at + 4 * pairs;
#pragma GCC unroll 4
    for (; at < end; at += 4, panel += 2 * kBlockRows) {
      IVec w[kVecs];
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) w[v] = load_i(panel + 2 * v * kLanes);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        dot_step(acc[t], w, state.codes[t] + at);
      }
    }
    end_group<T>(f, scratch.scales, g, acc, state);
  }
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) {
    float* span = scratch.spans + (token + t) * kBlockRows;
    for (int v = 0; v < kVecs; ++v) {
      add_to_span(span + v * kLanes, set1_f(state.a[t]), state.segment[t][v], begin);
    }
  }
}

using TileFunction = void (*)(const GroupedArgs&, const PanelScratch&, int64_t, int64_t, int64_t);
constexpr TileFunction kTileFunctions[13] = {
    nullptr,       panel_tile<1>, panel_tile<2>, panel_tile<3>,  panel_tile<4>,  panel_tile<5>,
    panel_tile<6>,
#if defined(__AVX512F__)
    panel_tile<7>, panel_tile<8>, panel_tile<9>, panel_tile<10>, panel_tile<11>, panel_tile<12>,
#endif
};

// totals = totals + spans, the first span's from zero.
inline void fold_spans(const PanelScratch& scratch, int64_t num_tokens, bool first) {
  for (int64_t i = 0; i < num_tokens * kBlockRows; i += kLanes) {
    const FVec before = first ? zero_f() : load_f(scratch.totals + i);
    store_f(scratch.totals + i, add_f(before, load_f(scratch.spans + i)));
  }
}

// y = totals + the last spans; there are totals after more than one span.
inline void store_sums(const PanelScratch& scratch, int64_t num_tokens, bool has_totals, float* y,
                       int64_t y_stride, int64_t count) {
  for (int64_t t = 0; t < num_tokens; ++t) {
    FVec values[kVecs];
    for (int v = 0; v < kVecs; ++v) {
      const int64_t i = t * kBlockRows + v * kLanes;
      const FVec before = has_totals ? load_f(scratch.totals + i) : zero_f();
      values[v] = add_f(before, load_f(scratch.spans + i));
    }
    store_rows(y + t * y_stride, count, values);
  }
}

// Called after the segment at `begin`: folds a span that ends there, unless it is the last.
inline void end_segment(const PanelScratch& scratch, int64_t num_tokens, int64_t begin,
                        int64_t cols) {
  const int64_t end = begin + kSegment;
  if (end % kSpan == 0 && end < cols) fold_spans(scratch, num_tokens, end == kSpan);
}

#if defined(__AVX512VNNI__)
// One segment for T rows of x and two row blocks whose scratch stands side by side.
template <int T>
void pair_tile(const GroupedArgs& args, const PanelScratch* scratch, int64_t begin, int64_t length,
               int64_t token) {
  const GroupedFormat& f = *args.format;
  FusedState<T> state;
  point_at_segment<T>(args, token, begin, &state);
  alignas(64) float segment[2 * T * kBlockRows];
#pragma GCC unroll 24
  for (int i = 0; i < 2 * T; ++i) store_f(segment + i * kBlockRows, zero_f());
  const int64_t pairs = f.group_size / 2;
  const int64_t groups = length / f.group_size;
  const int64_t lines = token == 0 ? lines_per_group(scratch[0], groups) : 0;
  for (int64_t g = 0; g < groups; ++g) {
    if (lines > 0) {
      prefetch_part(scratch[0], lines, g);
      prefetch_part(scratch[1], lines, g);
    }
    const PairGroup group = {state.codes[0] + g * 4 * pairs,
                             state.codes[1] - state.codes[0],
                             scratch[0].panel + g * pairs * 2 * kBlockRows,
                             pairs,
                             scratch[0].scales.scales + g * kBlockRows,
                             segment};
    if constexpr (T == 12) {
      multiply_pair_12<kPanelBytes>(group);
    } else if constexpr (T == 8) {
      multiply_pair_8<kPanelBytes>(group);
    } else {
      multiply_pair_4<kPanelBytes>(group);
    }
    if (!f.has_offset) continue;
    for (int b = 0; b < 2; ++b) {
      const FVec offset = load_f(scratch[b].scales.offsets + g * kBlockRows);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        float* sum = segment + (b * T + t) * kBlockRows;
        store_f(sum, fma_f(offset, set1_f(state.sums_f[t][g]), load_f(sum)));
      }
    }
  }
  for (int b = 0; b < 2; ++b) {
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      float* span = scratch[b].spans + (token + t) * kBlockRows;
      const FVec sum = load_f(segment + (b * T + t) * kBlockRows);
      add_to_span(span, set1_f(state.a[t]), sum, begin);
    }
  }
}
#endif

// One segment of B row blocks for all rows of x.
template <int B>
void panel_segment(const GroupedArgs& args, const PanelScratch* scratch, int64_t begin,
                   int64_t length) {
  int64_t token = 0;
#if defined(__AVX512VNNI__)
  if constexpr (B == 2) {
    while (const int take = pair_tokens(args.num_tokens - token)) {
      const auto tile = take == 12 ? pair_tile<12> : take == 8 ? pair_tile<8> : pair_tile<4>;
      tile(args, scratch, begin, length, token);
      token += take;
    }
  }
#endif
  for (; token < args.num_tokens; token += kTile) {
    const TileFunction tile = kTileFunctions[least(kTile, args.num_tokens - token)];
    for (int b = 0; b < B; ++b) tile(args, scratch[b], begin, length, token);
  }
}

// B row blocks from `block` on.
template <int B>
void panel_run(const GroupedArgs& args, PanelScratch* scratch, int64_t block) {
  const GroupedFormat& f = *args.format;
  const int64_t cols = args.x->layout.cols;
  const uint8_t* segments[B];
  for (int b = 0; b < B; ++b) {
    segments[b] = args.blocks + (block + b) * args.block_bytes;
  }
  for (int64_t begin = 0; begin < cols; begin += kSegment) {
    const int64_t length = least(kSegment, cols - begin);
    for (int b = 0; b < B; ++b) {
      unpack_any_panel(f, segments[b], length, scratch[b].panel);
      segment_scales(f, segments[b] + code_bytes(f, length), length / f.group_size,
                     scratch[b].scales);
      segments[b] += segment_bytes(f, length);
      scratch[b].next =
          begin + kSegment < cols ? segments[b] : args.blocks + (block + B + b) * args.block_bytes;
      scratch[b].next_lines = (segment_bytes(f, least(kSegment, cols)) + 63) / 64;
    }
    panel_segment<B>(args, scratch, begin, length);
    for (int b = 0; b < B; ++b) end_segment(scratch[b], args.num_tokens, begin, cols);
  }
  for (int b = 0; b < B; ++b) {
    const int64_t row = (block + b) * kBlockRows;
    store_sums(scratch[b], args.num_tokens, cols > kSpan, args.y + row, args.y_stride,
               args.num_rows - row);
  }
}

void panel_blocks(const GroupedArgs& args) {
  PanelScratch scratch[kPanelBlocks];
  for (int b = 0; b < kPanelBlocks; ++b) scratch[b] = carve_panel(args.scratch + b * kPanelBytes);
  int64_t block = 0;
  for (; block + kPanelBlocks <= args.num_blocks; block += kPanelBlocks) {
    panel_run<kPanelBlocks>(args, scratch, block);
  }
  for (; block < args.num_blocks; ++block) panel_run<1>(args, scratch, block);
}

}  // namespace
}  // namespace markbase::backends::cpu
