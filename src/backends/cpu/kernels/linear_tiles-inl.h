// Products by AMX tiles. A tile of x holds hi of 8 rows and lo of the same 8, a tile of weights is
// the 8-bit plane itself; one tile product gives both halves of 8 x 16 dot products over a group.
#pragma once

#include "backends/cpu/kernels/linear_panel-inl.h"

namespace markbase::backends::cpu {
namespace {

// Row blocks that share the tiles of x.
constexpr int kTileBlocks = 2;
constexpr int64_t kTileBytes = 16 * 64;

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

struct TileScratch {
  uint8_t* panels[kTileBlocks];  // [length / 4][16 rows][4] unsigned codes
  SegmentScales scales[kTileBlocks];
  int32_t* products;  // [2 groups][kTileBlocks][hi of 8, lo of 8][16 rows]
  PanelScratch sums[kTileBlocks];
};

static_assert(2 * kTileBlocks * kTileBytes +
                      kTileBlocks * (kSegment * kBlockRows + 4 * 32 * kBlockRows +
                                     2 * 4 * kTileTokens * kBlockRows) <=
                  kLinearScratchBytes,
              "a thread's scratch holds what carve_tiles takes");

inline TileScratch carve_tiles(uint8_t* scratch) {
  TileScratch s;
  s.products = reinterpret_cast<int32_t*>(scratch);
  scratch += 2 * kTileBlocks * kTileBytes;
  for (int b = 0; b < kTileBlocks; ++b) {
    s.panels[b] = scratch;
    float* floats = reinterpret_cast<float*>(scratch + kSegment * kBlockRows);
    s.scales[b] = {floats, floats + 16 * kBlockRows};
    s.sums[b].panel = nullptr;
    s.sums[b].scales = s.scales[b];
    s.sums[b].spans = floats + 32 * kBlockRows;
    s.sums[b].totals = s.sums[b].spans + kTileTokens * kBlockRows;
    scratch = reinterpret_cast<uint8_t*>(s.sums[b].totals + kTileTokens * kBlockRows);
  }
  return s;
}

template <CodeKind K>
void unpack_bytes(const GroupedFormat& f, const uint8_t* segment, int64_t length, uint8_t* panel) {
  const uint8_t* low = segment;
  const uint8_t* high = segment + first_plane_bytes(f, length);
  const IVec table = broadcast16(f.table);
  for (int64_t u = 0; u < length / kUnit; ++u) {
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) store_i(panel + 64 * s, unit_codes<K>(low, high, table, s));
    low += kPlaneStride<K>;
    high += kHighStride<K>;
    panel += 8 * 64;
  }
}

// The 8-bit plane of a segment: unpacked, or where it stands.
const uint8_t* byte_plane(const GroupedFormat& f, const uint8_t* segment, int64_t length,
                          uint8_t* panel) {
  switch (f.codes) {
    case CodeKind::k2:
      unpack_bytes<CodeKind::k2>(f, segment, length, panel);
      return panel;
    case CodeKind::k3:
      unpack_bytes<CodeKind::k3>(f, segment, length, panel);
      return panel;
    case CodeKind::k4:
      unpack_bytes<CodeKind::k4>(f, segment, length, panel);
      return panel;
    case CodeKind::k5:
      unpack_bytes<CodeKind::k5>(f, segment, length, panel);
      return panel;
    case CodeKind::k6:
      unpack_bytes<CodeKind::k6>(f, segment, length, panel);
      return panel;
    case CodeKind::kTable4:
      unpack_bytes<CodeKind::kTable4>(f, segment, length, panel);
      return panel;
    case CodeKind::k8:
      break;
  }
  return segment;
}

// One segment of B row blocks and 8 rows of x.
template <int B>
struct TileSegment {
  const GroupedFormat* format;
  const int8_t* x;  // tiles of the 8 rows, from the segment's first k on
  const uint8_t* planes[B];
  const TileScratch* scratch;
  const int32_t* sums[kTileGroup];
  const float* sums_f[kTileGroup];
  FVec segment[B][kTileGroup];

  // Group g into the tiles of its parity, and from there to memory.
  inline __attribute__((always_inline)) void multiply(int64_t g) const {
    const int64_t size = format->group_size;
    const int64_t depth = size < kTileDepth ? size : kTileDepth;
    int32_t* out = scratch->products + (g & 1) * kTileBlocks * (kTileBytes / 4);
    if ((g & 1) == 0) {
      _tile_zero(0);
      if constexpr (B > 1) _tile_zero(1);
      for (int64_t k = g * size; k < (g + 1) * size; k += depth) {
        _tile_loadd(4, x + k / kTileDepth * kTileBytes + k % kTileDepth, 64);
        _tile_loadd(6, planes[0] + k * kBlockRows, 64);
        _tile_dpbsud(0, 4, 6);
        if constexpr (B > 1) {
          _tile_loadd(7, planes[B - 1] + k * kBlockRows, 64);
          _tile_dpbsud(1, 4, 7);
        }
      }
      _tile_stored(0, out, 64);
      if constexpr (B > 1) _tile_stored(1, out + kTileBytes / 4, 64);
    } else {
      _tile_zero(2);
      if constexpr (B > 1) _tile_zero(3);
      for (int64_t k = g * size; k < (g + 1) * size; k += depth) {
        _tile_loadd(5, x + k / kTileDepth * kTileBytes + k % kTileDepth, 64);
        _tile_loadd(6, planes[0] + k * kBlockRows, 64);
        _tile_dpbsud(2, 5, 6);
        if constexpr (B > 1) {
          _tile_loadd(7, planes[B - 1] + k * kBlockRows, 64);
          _tile_dpbsud(3, 5, 7);
        }
      }
      _tile_stored(2, out, 64);
      if constexpr (B > 1) _tile_stored(3, out + kTileBytes / 4, 64);
    }
  }

  // D = 256 * hi + lo - zero_point * sum of x16, then the float steps.
  inline __attribute__((always_inline)) void accumulate(int64_t g) {
    const int32_t* products = scratch->products + (g & 1) * kTileBlocks * (kTileBytes / 4);
    const IVec zero_point = set1_i32(format->zero_point);
#pragma GCC unroll 8
    for (int t = 0; t < kTileGroup; ++t) {
      const IVec shift = _mm512_mullo_epi32(zero_point, set1_i32(sums[t][g]));
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) {
        const int32_t* product = products + b * (kTileBytes / 4) + t * kBlockRows;
        const IVec hi = _mm512_slli_epi32(load_i(product), 8);
        const IVec both = _mm512_add_epi32(hi, load_i(product + kTileGroup * kBlockRows));
        const FVec dot = to_float(_mm512_sub_epi32(both, shift));
        const FVec s = load_f(scratch->scales[b].scales + g * kBlockRows);
        segment[b][t] = fma_f(s, dot, segment[b][t]);
      }
    }
    if (!format->has_offset) return;
#pragma GCC unroll 8
    for (int t = 0; t < kTileGroup; ++t) {
      const FVec sum = set1_f(sums_f[t][g]);
#pragma GCC unroll 2
      for (int b = 0; b < B; ++b) {
        const FVec offset = load_f(scratch->scales[b].offsets + g * kBlockRows);
        segment[b][t] = fma_f(offset, sum, segment[b][t]);
      }
    }
  }
};

template <int B>
void tile_segment(const GroupedArgs& args, const TileScratch& scratch, const uint8_t* const* planes,
                  int64_t begin, int64_t length, int64_t token) {
  const GroupedFormat& f = *args.format;
  const Activations& x = *args.x;
  const int64_t count = least(kTileGroup, args.num_tokens - token);
  TileSegment<B> work;
  work.format = &f;
  work.scratch = &scratch;
  work.x = x.tiles + (args.first_token + token) / kTileGroup * x.tile_group_bytes +
           begin / kTileDepth * kTileBytes;
  for (int b = 0; b < B; ++b) work.planes[b] = planes[b];
  float a[kTileGroup];
  for (int64_t t = 0; t < kTileGroup; ++t) {
    // Rows that are not there repeat the last one; their results are dropped.
    const int64_t there = t < count ? t : count - 1;
    const uint8_t* row = x.rows + (args.first_token + token + there) * x.layout.row_bytes;
    const int64_t group = begin / f.group_size;
    work.sums[t] = reinterpret_cast<const int32_t*>(row + x.layout.sums[f.group_level]) + group;
    work.sums_f[t] = reinterpret_cast<const float*>(row + x.layout.sums_f[f.group_level]) + group;
    a[t] = reinterpret_cast<const float*>(row + x.layout.scales)[begin / kSegment];
    for (int b = 0; b < B; ++b) work.segment[b][t] = zero_f();
  }
  const int64_t groups = length / f.group_size;
  // Tile loads do not say that they read memory: all that was written must be there.
  __asm__ volatile("" : : : "memory");
  work.multiply(0);
  for (int64_t g = 0; g < groups; ++g) {
    // The tiles of the next group work while the vector unit finishes this one.
    if (g + 1 < groups) work.multiply(g + 1);
    work.accumulate(g);
  }
  for (int b = 0; b < B; ++b) {
    for (int64_t t = 0; t < count; ++t) {
      float* span = scratch.sums[b].spans + (token + t) * kBlockRows;
      add_to_span(span, set1_f(a[t]), work.segment[b][t], begin);
    }
  }
}

template <int B>
void tile_blocks(const GroupedArgs& args, const TileScratch& scratch, int64_t block) {
  const GroupedFormat& f = *args.format;
  const int64_t cols = args.x->layout.cols;
  const uint8_t* segments[B];
  for (int b = 0; b < B; ++b) {
    segments[b] = args.blocks + (block + b) * args.block_bytes;
  }
  for (int64_t begin = 0; begin < cols; begin += kSegment) {
    const int64_t length = least(kSegment, cols - begin);
    const uint8_t* planes[B];
    for (int b = 0; b < B; ++b) {
      planes[b] = byte_plane(f, segments[b], length, scratch.panels[b]);
      segment_scales(f, segments[b] + code_bytes(f, length), length / f.group_size,
                     scratch.scales[b]);
      segments[b] += segment_bytes(f, length);
    }
    for (int64_t token = 0; token < args.num_tokens; token += kTileGroup) {
      tile_segment<B>(args, scratch, planes, begin, length, token);
    }
    for (int b = 0; b < B; ++b) end_segment(scratch.sums[b], args.num_tokens, begin, cols);
  }
  for (int b = 0; b < B; ++b) {
    const int64_t row = (block + b) * kBlockRows;
    store_sums(scratch.sums[b], args.num_tokens, cols > kSpan, args.y + row, args.y_stride,
               args.num_rows - row);
  }
}

void tile_product(const GroupedArgs& args) {
  const TileScratch scratch = carve_tiles(args.scratch);
  configure_tiles(least(args.format->group_size, kTileDepth));
  int64_t block = 0;
  for (; block + kTileBlocks <= args.num_blocks; block += kTileBlocks) {
    tile_blocks<kTileBlocks>(args, scratch, block);
  }
  if (block < args.num_blocks) tile_blocks<1>(args, scratch, block);
  _tile_release();
}

}  // namespace
}  // namespace markbase::backends::cpu
