// What a set of linear kernels is given: plain data only, since units compiled for wide
// instructions include this. Helpers are `static` so that no two units ever share a compiled copy.
//
// Packed layout, the same for every level. Rows stand in blocks of 16, one row a 32-bit lane;
// missing rows are zero codes with zero scales. Grouped formats: per segment of 256 along K (the
// last one shorter) code planes, then scales, each segment 64-byte aligned.
//   8-bit plane  per 4 k, 64 bytes:  byte 4r + i = code of row r, k = i
//   4-bit plane  per 8 k, 64 bytes:  byte 4r + i = k = i low nibble, k = 4 + i high nibble
//   2-bit plane  per 16 k, 64 bytes: byte 4r + i, bits 2s..2s+1 = k = 4s + i
//   1-bit plane  per 32 k, 64 bytes: byte 4r + i, bit s = k = 4s + i
// 3 bits are a 2-bit plane and a 1-bit plane of the top bits, 5 are 4 + 1, 6 are 4 + 2.
// Scales per segment of G groups: kF16/kBF16/kF32 [G][16] scales, then [G][16] offsets; kE8M0 and
// kE4M3 [G][16] bytes; kSub [G][16] sub bytes, [G][16] submin bytes, [16] d halves, [16] dmin
// halves (offset parts only where the format has offsets). Plain floats: [K][16] elements in the
// file's own type; kMxfp8 per 32 k: [32][16] E4M3 codes, then [16] E8M0 bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace markbase::backends::cpu {

enum : int64_t {
  kBlockRows = 16,
  kSegment = 256,
  kSpanSegments = 4,                // segments in a span of 1,024
  kUnit = 32,                       // K of every grouped format is a multiple of this
  kGroupLevels = 4,                 // group sizes 16, 32, 64, 128
  kTileTokens = 256,                // most rows of x that one kernel call keeps sums for
  kTileGroup = 8,                   // rows of x in one AMX tile (as 8 rows of hi, 8 of lo)
  kTileDepth = 64,                  // K of one AMX tile
  kRowsReadBeyond = 3,              // rows of x after the last that kernels may read, not use
  kLinearScratchBytes = 128 << 10,  // of one thread
};

enum class CodeKind : uint8_t { k2, k3, k4, k5, k6, k8, kTable4 };
enum class ScaleCode : uint8_t { kF16, kBF16, kF32, kE8M0, kE4M3, kSubSigned, kSubUnsigned };
enum class FloatCode : uint8_t { kF32, kF16, kBF16, kE4M3, kMxfp8 };

// w = scale * (code - zero_point) (+ offset); kTable4 codes are looked up in `table` first, which
// holds value + 128 (zero_point is then 128).
struct GroupedFormat {
  CodeKind codes;
  ScaleCode scales;
  bool has_offset;
  int32_t bits;
  int32_t group_size;
  int32_t group_level;  // log2(group_size / 16)
  int32_t zero_point;
  uint8_t table[16];
};

// Where the parts of a quantised row of x stand, byte offsets from its beginning.
struct ActivationLayout {
  int64_t cols;
  int64_t row_bytes;
  int64_t scales;                // float a per segment
  int64_t sums[kGroupLevels];    // int32 sum of x16 per group of 16, 32, 64, 128
  int64_t sums_f[kGroupLevels];  // the same as float (exact: below 2^24)
  // At 0: int16 x16, per 4 k in the order 0, 2, 1, 3, as 16-bit pair products want them.
  // The same of 8 rows side by side, from the beginning of their AMX tiles.
  int64_t tile_group_bytes;
  int64_t tile_scales;              // float [segment][8 rows]
  int64_t tile_sums[kGroupLevels];  // float [group][8 rows]
};

// x quantised, with room for kRowsReadBeyond rows after the last. tiles: only for AMX, for 8 rows
// of x each [ceil(cols / 64)][16][64] int8, rows 0..7 of a tile hi and 8..15 lo of the 8 rows, then
// their scales and sums; null otherwise.
struct Activations {
  ActivationLayout layout;
  uint8_t* rows;
  int8_t* tiles;
};

struct GroupedArgs {
  const GroupedFormat* format;
  const uint8_t* blocks;  // first row block
  int64_t block_bytes;
  int64_t num_blocks;
  int64_t num_rows;  // rows of the weight from the first block on that y takes (<= 16 * num_blocks)
  const Activations* x;
  int64_t first_token;  // a multiple of 8
  int64_t num_tokens;   // <= kTileTokens
  float* y;             // of first_token, first row
  int64_t y_stride;     // floats between tokens
  uint8_t* scratch;     // kLinearScratchBytes, 64-byte aligned, this thread's own
};

struct FloatArgs {
  FloatCode code;
  const uint8_t* blocks;
  int64_t block_bytes;
  int64_t num_blocks;
  int64_t num_rows;
  int64_t cols;
  const float* x;  // of the first token
  int64_t x_stride;
  int64_t num_tokens;  // <= kTileTokens
  float* y;
  int64_t y_stride;
  uint8_t* scratch;
};

struct QuantiseArgs {
  const float* x;
  int64_t token;  // row of `out`
  int32_t limit;  // 32512, or 127 for 8-bit activations
  const Activations* out;
};

// One instruction set's kernels.
struct LinearKernels {
  void (*quantise)(const QuantiseArgs&);
  void (*grouped)(const GroupedArgs&);
  void (*floats)(const FloatArgs&);
  bool wants_tiles;  // fill Activations::tiles for steps of this many rows or more
  int64_t tiles_from_tokens;
};

const LinearKernels& linear_kernels_generic();
const LinearKernels& linear_kernels_avx2();
const LinearKernels& linear_kernels_avxvnni();
const LinearKernels& linear_kernels_avx512();
const LinearKernels& linear_kernels_avx512vnni();
const LinearKernels& linear_kernels_amx();

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Bytes of the code planes, of the first plane alone, and of the scales of a segment of `length`
// columns.
static inline int64_t code_bytes(const GroupedFormat& f, int64_t length) {
  return 2 * f.bits * length;
}
static inline int64_t first_plane_bytes(const GroupedFormat& f, int64_t length) {
  const int64_t bits = f.bits == 3 ? 2 : f.bits == 5 || f.bits == 6 ? 4 : f.bits;
  return 2 * bits * length;
}
static inline int64_t scale_bytes(const GroupedFormat& f, int64_t length) {
  const int64_t entries = length / f.group_size * kBlockRows;
  const int64_t parts = f.has_offset ? 2 : 1;
  switch (f.scales) {
    case ScaleCode::kF16:
    case ScaleCode::kBF16:
      return 2 * entries * parts;
    case ScaleCode::kF32:
      return 4 * entries * parts;
    case ScaleCode::kE8M0:
    case ScaleCode::kE4M3:
      return entries;
    case ScaleCode::kSubSigned:
    case ScaleCode::kSubUnsigned:
      return (entries + 2 * kBlockRows) * parts;
  }
  return 0;
}
static inline int64_t segment_bytes(const GroupedFormat& f, int64_t length) {
  return code_bytes(f, length) + round_up(scale_bytes(f, length), 64);
}

// Bytes of `count` columns of 16 rows of plain floats; `count` is a multiple of kUnit for kMxfp8.
static inline int64_t float_bytes(FloatCode code, int64_t count) {
  switch (code) {
    case FloatCode::kF32:
      return count * kBlockRows * 4;
    case FloatCode::kF16:
    case FloatCode::kBF16:
      return count * kBlockRows * 2;
    case FloatCode::kE4M3:
      return count * kBlockRows;
    case FloatCode::kMxfp8:
      return count / kUnit * (kUnit + 1) * kBlockRows;
  }
  return 0;
}

// One code of a plane of `bits` bits (1, 2, 4 or 8): row r of the block, k inside the segment.
static inline int32_t plane_code(const uint8_t* plane, int bits, int64_t k, int64_t r) {
  const int64_t per_byte = 8 / bits;
  const int64_t step = k / 4;
  const uint8_t byte = plane[step / per_byte * 64 + 4 * r + k % 4];
  return (byte >> (step % per_byte * bits)) & ((1 << bits) - 1);
}
// The same for a segment's planes together, with the table applied and the zero point taken away.
static inline int32_t segment_code(const GroupedFormat& f, const uint8_t* segment, int64_t length,
                                   int64_t k, int64_t r) {
  const int low_bits = f.bits == 3 ? 2 : f.bits == 5 || f.bits == 6 ? 4 : f.bits;
  int32_t code = plane_code(segment, low_bits, k, r);
  if (low_bits != f.bits) {
    code |= plane_code(segment + first_plane_bytes(f, length), f.bits - low_bits, k, r) << low_bits;
  }
  if (f.codes == CodeKind::kTable4) code = f.table[code];
  return code - f.zero_point;
}

}  // namespace markbase::backends::cpu
