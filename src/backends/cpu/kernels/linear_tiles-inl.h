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

// Tiles 0..3 are sums (even and odd groups, two row blocks), 4 is x, 6 and 7 are weights, `depth`
// deep.
void configure_tiles(int64_t depth) {
  TileConfig config;
  __builtin_memset(&config, 0, sizeof config);
  config.palette = 1;
  for (int i = 0; i < 8; ++i) {
    const bool is_x = i == 4;
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

constexpr int64_t kTileOffsets = 16 * kBlockRows;  // floats from a scale to its offset
// From the panel of a row block to the next.
constexpr int64_t kTilePanelBytes = kSegment * kBlockRows + 2 * 4 * kTileOffsets;
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
      panel = {scratch, {floats, floats + kTileOffsets}};
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

// Into the second cache: the first is full of x, panels and products (about 10 % at 8 rows of x).
inline void ask_for(const uint8_t* p) { __asm__ volatile("prefetcht1 %0" : : "m"(*p)); }

// 4-bit codes of 4 k of 16 rows less the zero point, 0 or 8: one affine map of the bits of a byte
// takes a nibble out and, with the sign bit turned over, extends it.
template <bool kSigned>
inline __attribute__((always_inline)) IVec nibbles(IVec bytes, int s) {
  const int64_t low = kSigned ? 0x0102040808080808 : 0x0102040800000000;
  const IVec map = _mm512_set1_epi64(s % 2 == 0 ? low : low * 16);
  return _mm512_gf2p8affine_epi64_epi8(bytes, map, kSigned ? 0xf8 : 0);
}

// Products of B row blocks with all rows of x.
template <CodeKind K, int B>
class TileRun {
 public:
  TileRun(const GroupedArgs& args, const TileScratch& scratch, int64_t block)
      : args_(args),
        scratch_(scratch),
        f_(*args.format),
        layout_(args.x->layout),
        cols_(layout_.cols),
        stride_(segment_bytes(f_, kSegment)),
        tiles_(args.x->tiles + args.first_token / kTileGroup * layout_.tile_group_bytes) {
    for (int b = 0; b < B; ++b) blocks_[b] = args.blocks + (block + b) * args.block_bytes;
  }

  // Leaves the sums of the last span in the scratch.
  void run() {
    open(0);
    for (int64_t u = 0; u < segment_length(0) / kUnit; ++u) unpack(u);
    multiply(false, tiles_, 0, panels(0)[0].codes);
    Sums segment;
    // Of the group whose float steps come next.
    const float* scales = panels(0)[0].scales.scales;
    const float* sums = tile_floats(tiles_, layout_.tile_sums[f_.group_level], 0);
    Place before = {-1, 0, nullptr};
    bool odd = false;
    for (int64_t begin = 0; begin < cols_; begin += kSegment) {
      const int64_t groups = segment_length(begin) / f_.group_size;
      Place at = {begin, 0, tiles_};
      for (; at.token < args_.num_tokens; next_rows(&at)) {
        for (int64_t g = 0; g < groups; ++g, odd = !odd) {
          multiply_after(at, g, groups, !odd);
          store_products(odd);
          if (before.begin >= 0) accumulate(!odd, scales, sums, segment);
          scales += kBlockRows;
          sums += kTileGroup;
          if (g == 0) {
            if (before.begin >= 0) finish(before, segment);
            clear(segment);
            scales = panels(begin)[0].scales.scales;
            sums = tile_floats(at.tiles, layout_.tile_sums[f_.group_level], begin / f_.group_size);
            before = at;
          }
          if (at.token == 0) unpack_ahead(begin, g);
        }
      }
    }
    accumulate(!odd, scales, sums, segment);
    finish(before, segment);
  }

 private:
  using Sums = FVec[B][kTileGroup];

  // A segment and 8 rows of x.
  struct Place {
    int64_t begin;
    int64_t token;
    const int8_t* tiles;
  };
  // A segment of a row block that is being unpacked.
  struct Source {
    const uint8_t* low;
    const uint8_t* high;
    int64_t ahead;  // bytes from there to what is worth asking for
    uint8_t* codes;
  };

  int64_t segment_length(int64_t begin) const { return least(kSegment, cols_ - begin); }
  const TilePanel* panels(int64_t begin) const { return scratch_.panels[begin / kSegment % 2]; }
  void next_rows(Place* at) const {
    at->token += kTileGroup;
    at->tiles += layout_.tile_group_bytes;
  }
  static const float* tile_floats(const int8_t* tiles, int64_t offset, int64_t i) {
    return reinterpret_cast<const float*>(tiles + offset) + i * kTileGroup;
  }

  // Bytes from the segment at `begin` to the one kTileAhead later, of these row blocks or the next.
  int64_t ahead(int64_t begin) const {
    if (begin + kTileAhead * kSegment < cols_) return kTileAhead * stride_;
    const int64_t segments = (cols_ + kSegment - 1) / kSegment;
    return B * args_.block_bytes + (kTileAhead - segments) * stride_;
  }

  void open(int64_t begin) {
    const int64_t length = segment_length(begin);
    const int64_t planes = code_bytes(f_, length);
    const int64_t scales = scale_bytes(f_, length);
    for (int b = 0; b < B; ++b) {
      const uint8_t* from = blocks_[b] + begin / kSegment * stride_;
      const TilePanel& panel = panels(begin)[b];
      sources_[b] = {from, from + first_plane_bytes(f_, length), ahead(begin), panel.codes};
      for (int64_t i = 0; i < scales; i += 64) ask_for(from + planes + sources_[b].ahead + i);
      segment_scales(f_, from + planes, length / f_.group_size, panel.scales);
    }
    unpacked_ = 0;
    units_ = length / kUnit;
  }

  // Columns [32 u, 32 u + 32) of the segment that is open.
  inline __attribute__((always_inline)) void unpack(int64_t u) const {
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) {
      const Source& source = sources_[b];
      const uint8_t* low = source.low + u * kPlaneStride<K>;
      const uint8_t* high = source.high + u * kHighStride<K>;
#pragma GCC unroll 8
      for (int s = 0; s < 8; ++s) {
        if (64 * s < kPlaneStride<K>) ask_for(low + source.ahead + 64 * s);
        if (64 * s < kHighStride<K>) ask_for(high + source.ahead + 64 * s);
      }
      uint8_t* codes = source.codes + u * kUnit * kBlockRows;
      if constexpr (K == CodeKind::k4) {
        if (f_.zero_point == 0) {
          unpack_nibbles<false>(low, codes);
        } else {
          unpack_nibbles<true>(low, codes);
        }
      } else {
        const IVec table = broadcast16(f_.table);
        const IVec zero = set1_i8(f_.zero_point);
#pragma GCC unroll 8
        for (int s = 0; s < 8; ++s) {
          const IVec bytes = unit_codes<K>(low, high, table, s);
          store_i(codes + 64 * s, _mm512_sub_epi8(bytes, zero));
        }
      }
    }
  }

  template <bool kSigned>
  static inline __attribute__((always_inline)) void unpack_nibbles(const uint8_t* low,
                                                                   uint8_t* codes) {
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) {
      store_i(codes + 64 * s, nibbles<kSigned>(load_i(low + 64 * (s / 2)), s));
    }
  }

  // While the first rows of x meet group g: as many columns of the next segment.
  inline __attribute__((always_inline)) void unpack_ahead(int64_t begin, int64_t g) {
    if (begin + kSegment >= cols_) return;
    if (g == 0) open(begin + kSegment);
    const int64_t end = least(((g + 1) * f_.group_size + kUnit / 2) / kUnit, units_);
    for (; unpacked_ < end; ++unpacked_) unpack(unpacked_);
  }

  // The tile products of the group after group g of these rows.
  inline __attribute__((always_inline)) void multiply_after(const Place& at, int64_t g,
                                                            int64_t groups, bool odd) const {
    if (g + 1 < groups) {
      const int64_t k = (g + 1) * f_.group_size;
      multiply(odd, at.tiles, at.begin + k, panels(at.begin)[0].codes + k * kBlockRows);
    } else if (at.token + kTileGroup < args_.num_tokens) {
      multiply(odd, at.tiles + layout_.tile_group_bytes, at.begin, panels(at.begin)[0].codes);
    } else if (const int64_t next = at.begin + kSegment; next < cols_) {
      multiply(odd, tiles_, next, panels(next)[0].codes);
    }
  }

  // The tile products of a group. The instructions name their tiles, so there are two of each.
  inline __attribute__((always_inline)) void multiply(bool odd, const int8_t* tiles, int64_t col,
                                                      const uint8_t* codes) const {
    const bool is_unsigned = K == CodeKind::k8 && f_.zero_point == 0;
    tile_fence();
    if (odd) {
      _tile_zero(2);
      if constexpr (B > 1) _tile_zero(3);
    } else {
      _tile_zero(0);
      if constexpr (B > 1) _tile_zero(1);
    }
    const int64_t end = col + f_.group_size;
    do {
      _tile_loadd(4, tiles + col / kTileDepth * kTileBytes + col % kTileDepth, 64);
      _tile_loadd(6, codes, 64);
      if constexpr (B > 1) _tile_loadd(7, codes + kTilePanelBytes, 64);
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
      col += kTileDepth;
      codes += kTileDepth * kBlockRows;
    } while (col < end);
  }

  int32_t* products(bool odd) const {
    return scratch_.products + (odd ? kTileBlocks * (kTileBytes / 4) : 0);
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

  static inline __attribute__((always_inline)) void clear(Sums& segment) {
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) {
#pragma GCC unroll 8
      for (int t = 0; t < kTileGroup; ++t) segment[b][t] = zero_f();
    }
  }

  // D = 256 * hi + lo, then the float steps. Rows that x does not have are dropped in the end.
  inline __attribute__((always_inline)) void accumulate(bool odd, const float* scales,
                                                        const float* sums, Sums& segment) const {
    const int32_t* product = products(odd);
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) {
      const FVec s = load_f(scales + b * (kTilePanelBytes / 4));
#pragma GCC unroll 8
      for (int t = 0; t < kTileGroup; ++t) {
        const int32_t* row = product + b * (kTileBytes / 4) + t * kBlockRows;
        const IVec hi = _mm512_slli_epi32(load_i(row), 8);
        const IVec dot = _mm512_add_epi32(hi, load_i(row + kTileGroup * kBlockRows));
        segment[b][t] = fma_f(s, to_float(dot), segment[b][t]);
      }
    }
    if (!f_.has_offset) return;
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) {
      const FVec offset = load_f(scales + b * (kTilePanelBytes / 4) + kTileOffsets);
#pragma GCC unroll 8
      for (int t = 0; t < kTileGroup; ++t) {
        segment[b][t] = fma_f(offset, set1_f(sums[t]), segment[b][t]);
      }
    }
  }

  // The segment's sums of these rows into their spans.
  inline __attribute__((always_inline)) void finish(const Place& at, const Sums& segment) const {
    const float* a = tile_floats(at.tiles, layout_.tile_scales, at.begin / kSegment);
#pragma GCC unroll 2
    for (int b = 0; b < B; ++b) {
      float* span = scratch_.sums[b].spans + at.token * kBlockRows;
#pragma GCC unroll 8
      for (int64_t t = 0; t < kTileGroup; ++t) {
        add_to_span(span + t * kBlockRows, set1_f(a[t]), segment[b][t], at.begin);
      }
    }
    if (at.token + kTileGroup < args_.num_tokens) return;
    for (int b = 0; b < B; ++b) end_segment(scratch_.sums[b], args_.num_tokens, at.begin, cols_);
  }

  const GroupedArgs& args_;
  const TileScratch& scratch_;
  const GroupedFormat& f_;
  const ActivationLayout& layout_;
  const int64_t cols_;
  const int64_t stride_;  // of whole segments
  const int8_t* const tiles_;
  const uint8_t* blocks_[B];
  Source sources_[B];
  int64_t unpacked_ = 0;  // units of the open segment
  int64_t units_ = 0;
};

template <CodeKind K, int B>
void tile_blocks(const GroupedArgs& args, const TileScratch& scratch, int64_t block) {
  TileRun<K, B> run(args, scratch, block);
  run.run();
  for (int b = 0; b < B; ++b) {
    const int64_t row = (block + b) * kBlockRows;
    store_sums(scratch.sums[b], args.num_tokens, args.x->layout.cols > kSpan, args.y + row,
               args.y_stride, args.num_rows - row);
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
