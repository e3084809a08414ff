// Products with many rows of x: a segment of 16 rows of weights is unpacked once into a panel of
// 16-bit numbers that stays in the L1 cache, then meets tiles of rows of x.
#pragma once

#include "backends/cpu/kernels/linear_fused-inl.h"

namespace markbase::backends::cpu {
namespace {

// This thread's scratch while a row block is worked on.
struct PanelScratch {
  int16_t* panel;  // [kSegment / 2 pairs][16 rows][2], zero point taken away
  SegmentScales scales;
  float* spans;   // [kTileTokens][16]
  float* totals;  // [kTileTokens][16]
};

inline PanelScratch carve_panel(uint8_t* scratch) {
  PanelScratch s;
  s.panel = reinterpret_cast<int16_t*>(scratch);
  float* floats = reinterpret_cast<float*>(scratch + kSegment * kBlockRows * 2);
  s.scales = {floats, floats + 16 * kBlockRows};
  s.spans = floats + 32 * kBlockRows;
  s.totals = s.spans + kTileTokens * kBlockRows;
  return s;
}

template <CodeKind K>
void unpack_panel(const GroupedFormat& f, const uint8_t* segment, int64_t length, int16_t* panel) {
  const uint8_t* low = segment;
  const uint8_t* high = segment + first_plane_bytes(f, length);
  const IVec table = broadcast16(f.table);
  const IVec zero = set1_i16(f.zero_point);
  uint8_t* out = reinterpret_cast<uint8_t*>(panel);
  for (int64_t u = 0; u < length / kUnit; ++u) {
    for (int v = 0; v < kVecs; ++v) {
#pragma GCC unroll 8
      for (int s = 0; s < 8; ++s) {
        const IVec bytes = unit_codes<K>(low + v * kVecBytes, high + v * kVecBytes, table, s);
        store_i(out + (2 * s) * 64 + v * kVecBytes, sub16(even_codes(bytes), zero));
        store_i(out + (2 * s + 1) * 64 + v * kVecBytes, sub16(odd_codes(bytes), zero));
      }
    }
    low += kPlaneStride<K>;
    high += kHighStride<K>;
    out += 16 * 64;
  }
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
  for (int64_t g = 0; g < groups; ++g) {
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
      store_f(span + v * kLanes,
              fma_f(set1_f(state.a[t]), state.segment[t][v], load_f(span + v * kLanes)));
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

inline void clear_floats(float* p, int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) store_f(p + i, zero_f());
}

// totals += spans, spans = 0.
inline void end_span(const PanelScratch& scratch, int64_t num_tokens) {
  for (int64_t i = 0; i < num_tokens * kBlockRows; i += kLanes) {
    store_f(scratch.totals + i, add_f(load_f(scratch.totals + i), load_f(scratch.spans + i)));
    store_f(scratch.spans + i, zero_f());
  }
}

inline void store_totals(const PanelScratch& scratch, int64_t num_tokens, float* y,
                         int64_t y_stride, int64_t count) {
  for (int64_t t = 0; t < num_tokens; ++t) {
    FVec values[kVecs];
    for (int v = 0; v < kVecs; ++v)
      values[v] = load_f(scratch.totals + t * kBlockRows + v * kLanes);
    store_rows(y + t * y_stride, count, values);
  }
}

void panel_blocks(const GroupedArgs& args) {
  const GroupedFormat& f = *args.format;
  const int64_t cols = args.x->layout.cols;
  const PanelScratch scratch = carve_panel(args.scratch);
  for (int64_t block = 0; block < args.num_blocks; ++block) {
    const uint8_t* segment = args.blocks + block * args.block_bytes;
    clear_floats(scratch.spans, args.num_tokens * kBlockRows);
    clear_floats(scratch.totals, args.num_tokens * kBlockRows);
    for (int64_t begin = 0; begin < cols; begin += kSegment) {
      const int64_t length = least(kSegment, cols - begin);
      unpack_any_panel(f, segment, length, scratch.panel);
      segment_scales(f, segment + code_bytes(f, length), length / f.group_size, scratch.scales);
      segment += segment_bytes(f, length);
      for (int64_t token = 0; token < args.num_tokens; token += kTile) {
        kTileFunctions[least(kTile, args.num_tokens - token)](args, scratch, begin, length, token);
      }
      const bool span_ends =
          begin + kSegment >= cols || (begin / kSegment + 1) % kSpanSegments == 0;
      if (span_ends) end_span(scratch, args.num_tokens);
    }
    store_totals(scratch, args.num_tokens, args.y + block * kBlockRows, args.y_stride,
                 args.num_rows - block * kBlockRows);
  }
}

}  // namespace
}  // namespace markbase::backends::cpu
