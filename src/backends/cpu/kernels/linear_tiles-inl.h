// Products by AMX tiles. A tile of x holds hi of 8 rows and lo of the same 8, a tile of weights 16
// rows as signed bytes; one tile product gives both halves of 8 x 16 dot products over a group.
//
// Three things run side by side, each a step behind the one before: the tile products of a group,
// the stores of the sums of the group before, and the float steps of the one before that. A store
// right behind its product would fill the scheduler with what waits for it. In between, the next
// segment of the weights is unpacked: tile loads wait for stores that are still on their way.
#pragma once

#include "backends/cpu/kernels/linear_panel-inl.h"

namespace markbase::backends::cpu {
namespace {

// Row blocks that share the tiles of x.
constexpr int kTileBlocks = 2;
constexpr int64_t kTileBytes = 16 * 64;
// Weights are asked for so many segments ahead of the one that is unpacked.
constexpr int64_t kTileAhead = 2;

// What `ldtilecfg` reads.
struct alignas(64) TileConfig {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

// Tiles 0..3 are sums (even and odd groups, two row blocks), 4 and 5 x, 6 and 7 weights, `depth`
// deep.
void configure_tiles(int64_t depth) {
  TileConfig config;
  __builtin_memset(&config, 0, sizeof config);
  config.palette = 1;
  for (int i = 0; i < 8; ++i) {
    const bool is_x = i == 4 || i == 5;
    const bool is_weight = i >= 6;
    config.row_bytes[i] = static_cast<uint16_t>(is_x ? depth : 64);
    config.rows[i] = static_cast<uint8_t>(is_weight ? depth / 4 : 16);
  }
  // The compiler does not know that the instruction reads memory and would drop the stores above.
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

// Tile loads and stores do not say which memory they touch.
inline __attribute__((always_inline)) void tile_fence() { __asm__ volatile("" : : : "memory"); }

// Of even and odd segments, one of which is unpacked while the other is multiplied.
struct TilePanel {
  uint8_t* codes;  // [length / 4][16 rows][4] codes less the zero point
  SegmentScales scales;
};

struct TileScratch {
  TilePanel panels[2][kTileBlocks];
  int32_t* products;  // [2 groups][kTileBlocks][hi of 8, lo of 8][16 rows]
  PanelScratch sums[kTileBlocks];
};

constexpr int64_t kTilePanelBytes = kSegment * kBlockRows + 4 * 32 * kBlockRows;
static_assert(2 * kTileBlocks * kTileBytes + 2 * kTileBlocks * kTilePanelBytes +
                      kTileBlocks * 2 * 4 * kTileTokens * kBlockRows <=
                  kLinearScratchBytes,
              "a thread's scratch holds what carve_tiles takes");

inline TileScratch carve_tiles(uint8_t* scratch) {
  TileScratch s;
  s.products = reinterpret_cast<int32_t*>(scratch);
  scratch += 2 * kTileBlocks * kTileBytes;
  for (auto& of_parity : s.panels) {
    for (TilePanel& panel : of_parity) {
      float* floats = reinterpret_cast<float*>(scratch + kSegment * kBlockRows);
      panel = {scratch, {floats, floats + 16 * kBlockRows}};
      scratch += kTilePanelBytes;
    }
  }
  for (PanelScratch& sums : s.sums) {
    sums.panel = nullptr;
    sums.spans = reinterpret_cast<float*>(scratch);
    sums.totals = sums.spans + kTileTokens * kBlockRows;
    scratch = reinterpret_cast<uint8_t*>(sums.totals + kTileTokens * kBlockRows);
  }
  return s;
}

// A group of columns and 8 rows of x.
struct TilePlace {
  int64_t begin;   // of the segment
  int64_t length;  // of the segment
  int64_t token;
  int64_t g;  // inside the segment
};

inline void ask_for(const uint8_t* p) { __asm__ volatile("prefetcht0 %0" : : "m"(*p)); }

// Products of B row blocks with all rows of x.
template <CodeKind K, int B>
struct TileRun {
  using Sums = FVec[B][kTileGroup];

  const GroupedArgs& args;
  const TileScratch& scratch;
  const GroupedFormat& f;
  int64_t cols;
  int64_t depth;   // K of a tile product
  int64_t stride;  // of whole segments
  int group_shift;
  const uint8_t* blocks[B];
  const uint8_t* rows[kTileGroup];  // of x, at the place that is accumulated

  // A segment of a row block that is being unpacked, and what comes so much later.
  struct Source {
    const uint8_t* low;
    const uint8_t* high;
    int64_t ahead;  // bytes from there to what is worth asking for
    uint8_t* codes;
  };
  Source sources[B];

  TileRun(const GroupedArgs& a, const TileScratch& s, int64_t block)
      : args(a),
        scratch(s),
        f(*a.format),
        cols(a.x->layout.cols),
        depth(least(f.group_size, kTileDepth)),
        stride(segment_bytes(f, kSegment)),
        group_shift(f.group_level + 4) {
    for (int b = 0; b < B; ++b) blocks[b] = args.blocks + (block + b) * args.block_bytes;
  }

  int64_t segment_length(int64_t begin) const { return least(kSegment, cols - begin); }
  const TilePanel* panels(int64_t begin) const { return scratch.panels[begin / kSegment % 2]; }

  // Bytes from the segment at `begin` to the one kTileAhead later, of these row blocks or the next.
  int64_t ahead(int64_t begin) const {
    if (begin + kTileAhead * kSegment < cols) return kTileAhead * stride;
    const int64_t segments = (cols + kSegment - 1) / kSegment;
    return B * args.block_bytes + (kTileAhead - segments) * stride;
  }

  void open(int64_t begin) {
    const int64_t length = segment_length(begin);
    const int64_t planes = code_bytes(f, length);
    const int64_t scales = scale_bytes(f, length);
    for (int b = 0; b < B; ++b) {
      const uint8_t* from = blocks[b] + begin / kSegment * stride;
      const TilePanel& panel = panels(begin)[b];
      sources[b] = {from, from + first_plane_bytes(f, length), ahead(begin), panel.codes};
      for (int64_t i = 0; i < scales; i += 64) ask_for(from + planes + sources[b].ahead + i);
      segment_scales(f, from + planes, length / f.group_size, panel.scales);
    }
  }

  // Columns [32 u, 32 u + 32) of the segment that is open.
  inline __attribute__((always_inline)) void unpack(int64_t u) const {
    const IVec table = broadcast16(f.table);
    const IVec zero = set1_i8(f.zero_point);
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) {
      const Source& source = sources[b];
      const uint8_t* low = source.low + u * kPlaneStride<K>;
      const uint8_t* high = source.high + u * kHighStride<K>;
      uint8_t* codes = source.codes + u * kUnit * kBlockRows;
#pragma GCC unroll 8
      for (int s = 0; s < 8; ++s) {
        if (64 * s < kPlaneStride<K>) ask_for(low + source.ahead + 64 * s);
        if (64 * s < kHighStride<K>) ask_for(high + source.ahead + 64 * s);
        const IVec bytes = unit_codes<K>(low, high, table, s);
        store_i(codes + 64 * s, _mm512_sub_epi8(bytes, zero));
      }
    }
  }

  // While the rows of x from 0 on meet group g: as many columns of the next segment.
  inline __attribute__((always_inline)) void unpack_ahead(const TilePlace& at) {
    const int64_t next = at.begin + kSegment;
    if (at.token > 0 || next >= cols) return;
    if (at.g == 0) open(next);
    const int64_t end = least((at.g + 1) * f.group_size, segment_length(next));
    for (int64_t k = round_up(at.g * f.group_size, kUnit); k < end; k += kUnit) unpack(k / kUnit);
  }

  // The tile products of a group. The instructions name their tiles, so there are two of each.
  inline __attribute__((always_inline)) void multiply(bool odd, const TilePlace& at) const {
    const Activations& x = *args.x;
    const int8_t* tiles = x.tiles + (args.first_token + at.token) / kTileGroup * x.tile_group_bytes;
    const uint8_t* first = panels(at.begin)[0].codes;
    const uint8_t* second = panels(at.begin)[B - 1].codes;
    const bool is_unsigned = K == CodeKind::k8 && f.zero_point == 0;
    tile_fence();
    if (odd) {
      _tile_zero(2);
      if constexpr (B > 1) _tile_zero(3);
    } else {
      _tile_zero(0);
      if constexpr (B > 1) _tile_zero(1);
    }
    for (int64_t k = at.g * f.group_size; k < (at.g + 1) * f.group_size; k += depth) {
      const int64_t col = at.begin + k;
      const int8_t* x_tile = tiles + col / kTileDepth * kTileBytes + col % kTileDepth;
      _tile_loadd(4, x_tile, 64);
      _tile_loadd(6, first + k * kBlockRows, 64);
      if constexpr (B > 1) _tile_loadd(7, second + k * kBlockRows, 64);
      if (is_unsigned) {
        if (odd) {
          _tile_dpbsud(2, 4, 6);
          if constexpr (B > 1) _tile_dpbsud(3, 4, 7);
        } else {
          _tile_dpbsud(0, 4, 6);
          if constexpr (B > 1) _tile_dpbsud(1, 4, 7);
        }
      } else if (odd) {
        _tile_dpbssd(2, 4, 6);
        if constexpr (B > 1) _tile_dpbssd(3, 4, 7);
      } else {
        _tile_dpbssd(0, 4, 6);
        if constexpr (B > 1) _tile_dpbssd(1, 4, 7);
      }
    }
  }

  int32_t* products(bool odd) const {
    return scratch.products + (odd ? kTileBlocks * (kTileBytes / 4) : 0);
  }

  inline __attribute__((always_inline)) void store_products(bool odd) const {
    int32_t* out = products(odd);
    if (odd) {
      _tile_stored(2, out, 64);
      if constexpr (B > 1) _tile_stored(3, out + kTileBytes / 4, 64);
    } else {
      _tile_stored(0, out, 64);
      if constexpr (B > 1) _tile_stored(1, out + kTileBytes / 4, 64);
    }
    tile_fence();
  }

  // D = 256 * hi + lo, then the float steps.
  inline __attribute__((always_inline)) void accumulate(bool odd, const TilePlace& at,
                                                        Sums& segment) const {
    const int32_t* product = products(odd);
    const TilePanel* panel = panels(at.begin);
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) {
      const FVec s = load_f(panel[b].scales.scales + at.g * kBlockRows);
#pragma GCC unroll 8
      for (int t = 0; t < kTileGroup; ++t) {
        const int32_t* row = product + b * (kTileBytes / 4) + t * kBlockRows;
        const IVec hi = _mm512_slli_epi32(load_i(row), 8);
        const IVec dot = _mm512_add_epi32(hi, load_i(row + kTileGroup * kBlockRows));
        segment[b][t] = fma_f(s, to_float(dot), segment[b][t]);
      }
    }
    if (!f.has_offset) return;
    const int64_t sums =
        args.x->layout.sums_f[f.group_level] + 4 * ((at.begin >> group_shift) + at.g);
    FVec offsets[B];
    for (int b = 0; b < B; ++b) {
      offsets[b] = load_f(panel[b].scales.offsets + at.g * kBlockRows);
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTileGroup; ++t) {
      const FVec sum = set1_f(*reinterpret_cast<const float*>(rows[t] + sums));
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) segment[b][t] = fma_f(offsets[b], sum, segment[b][t]);
    }
  }

  // Eight rows of x from `token` on: rows that are not there repeat the last one, and their results
  // are dropped.
  inline __attribute__((always_inline)) void start(int64_t token, Sums& segment) {
    const Activations& x = *args.x;
#pragma GCC unroll 8
    for (int64_t t = 0; t < kTileGroup; ++t) {
      const int64_t there = least(token + t, args.num_tokens - 1);
      rows[t] = x.rows + (args.first_token + there) * x.layout.row_bytes;
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) segment[b][t] = zero_f();
    }
  }

  // The segment's sums of these rows into their spans.
  inline __attribute__((always_inline)) void finish(const TilePlace& at,
                                                    const Sums& segment) const {
    const int64_t scale = args.x->layout.scales + 4 * (at.begin / kSegment);
#pragma GCC unroll 8
    for (int64_t t = 0; t < kTileGroup; ++t) {
      const FVec a = set1_f(*reinterpret_cast<const float*>(rows[t] + scale));
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) {
        float* span = scratch.sums[b].spans + (at.token + t) * kBlockRows;
        add_to_span(span, a, segment[b][t], at.begin);
      }
    }
    if (at.token + kTileGroup < args.num_tokens) return;
    for (int b = 0; b < B; ++b) end_segment(scratch.sums[b], args.num_tokens, at.begin, cols);
  }

  // The place after `at`; false when there is none.
  bool advance(TilePlace* at) const {
    if (++at->g < at->length >> group_shift) return true;
    at->g = 0;
    at->token += kTileGroup;
    if (at->token < args.num_tokens) return true;
    at->token = 0;
    at->begin += kSegment;
    at->length = segment_length(at->begin);
    return at->begin < cols;
  }

  void run() {
    TilePlace at = {0, segment_length(0), 0, 0};
    open(0);
    for (int64_t u = 0; u < at.length / kUnit; ++u) unpack(u);
    Sums segment;
    start(0, segment);
    multiply(false, at);
    TilePlace before = at;
    TilePlace next = at;
    bool odd = false;
    bool is_first = true;
    for (bool has_next = true; has_next; is_first = false, odd = !odd) {
      has_next = advance(&next);
      if (has_next) multiply(!odd, next);
      store_products(odd);
      if (!is_first) {
        accumulate(!odd, before, segment);
        if (at.g == 0) {
          finish(before, segment);
          start(at.token, segment);
        }
      }
      unpack_ahead(at);
      before = at;
      at = next;
    }
    accumulate(!odd, before, segment);
    finish(before, segment);
  }
};

template <CodeKind K, int B>
void tile_blocks(const GroupedArgs& args, const TileScratch& scratch, int64_t block) {
  TileRun<K, B> run(args, scratch, block);
  run.run();
  for (int b = 0; b < B; ++b) {
    const int64_t row = (block + b) * kBlockRows;
    store_sums(scratch.sums[b], args.num_tokens, run.cols > kSpan, args.y + row, args.y_stride,
               args.num_rows - row);
  }
}

template <CodeKind K>
void tile_product_of(const GroupedArgs& args) {
  const TileScratch scratch = carve_tiles(args.scratch);
  configure_tiles(least(args.format->group_size, kTileDepth));
  int64_t block = 0;
  for (; block + kTileBlocks <= args.num_blocks; block += kTileBlocks) {
    tile_blocks<K, kTileBlocks>(args, scratch, block);
  }
  if (block < args.num_blocks) tile_blocks<K, 1>(args, scratch, block);
  _tile_release();
}

void tile_product(const GroupedArgs& args) {
  switch (args.format->codes) {
    case CodeKind::k2:
      return tile_product_of<CodeKind::k2>(args);
    case CodeKind::k3:
      return tile_product_of<CodeKind::k3>(args);
    case CodeKind::k4:
      return tile_product_of<CodeKind::k4>(args);
    case CodeKind::k5:
      return tile_product_of<CodeKind::k5>(args);
    case CodeKind::k6:
      return tile_product_of<CodeKind::k6>(args);
    case CodeKind::k8:
      return tile_product_of<CodeKind::k8>(args);
    case CodeKind::kTable4:
      return tile_product_of<CodeKind::kTable4>(args);
  }
}

}  // namespace
}  // namespace markbase::backends::cpu
