// The linear kernels in portable C++: what every other level must equal, bit for bit.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cpu/kernels/linear_kernels.h"
#include "backends/cpu/pack_scales.h"
#include "base/half.h"

namespace markbase::backends::cpu {
namespace {

// Rounds to the nearest integer, ties to even, for |value| < 2^22.
float round_half_even(float value) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: the last bit of the sum is worth one
  return (value + kMagic) - kMagic;
}

// Position of k among the four that stand together in the order 0, 2, 1, 3.
int64_t place(int64_t k) {
  constexpr int kOrder[4] = {0, 2, 1, 3};
  return k / 4 * 4 + kOrder[k % 4];
}

float segment_scale(const float* x, int64_t length, float limit) {
  uint32_t largest = 0;
  for (int64_t k = 0; k < length; ++k) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[k]) & 0x7fffffffu;
    if (bits > largest) largest = bits;
  }
  if (largest >= 0x7f800000u) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(largest) / limit;
}

void quantise_row(const QuantiseArgs& args) {
  const ActivationLayout& layout = args.out->layout;
  uint8_t* row = args.out->rows + args.token * layout.row_bytes;
  auto* codes = reinterpret_cast<int16_t*>(row);
  auto* scales = reinterpret_cast<float*>(row + layout.scales);
  const auto limit = static_cast<float>(args.limit);
  for (int64_t begin = 0; begin < layout.cols; begin += kSegment) {
    const int64_t length = least(kSegment, layout.cols - begin);
    const float a = segment_scale(args.x + begin, length, limit);
    scales[begin / kSegment] = a;
    const bool all_zero = !(a > 0.0f);
    for (int64_t k = begin; k < begin + length; ++k) {
      float q = all_zero ? 0.0f : args.x[k] / a;
      q = q < -limit ? -limit : q > limit ? limit : q;
      codes[place(k)] = static_cast<int16_t>(round_half_even(q));
    }
  }
  for (int level = 0; level < kGroupLevels; ++level) {
    auto* sums = reinterpret_cast<int32_t*>(row + layout.sums[level]);
    auto* sums_f = reinterpret_cast<float*>(row + layout.sums_f[level]);
    const int64_t size = int64_t{16} << level;
    for (int64_t g = 0; g < layout.cols / size; ++g) {
      int32_t sum = 0;
      for (int64_t k = g * size; k < (g + 1) * size; ++k) sum += codes[k];
      sums[g] = sum;
      sums_f[g] = static_cast<float>(sum);
    }
  }
}

// A segment of 16 rows taken apart.
struct Segment {
  int16_t codes[kSegment][kBlockRows];
  float scales[16][kBlockRows];
  float offsets[16][kBlockRows];
};

void load_segment(const GroupedFormat& f, const uint8_t* bytes, int64_t length, Segment* segment) {
  for (int64_t k = 0; k < length; ++k) {
    for (int64_t r = 0; r < kBlockRows; ++r) {
      segment->codes[k][r] = static_cast<int16_t>(segment_code(f, bytes, length, k, r));
    }
  }
  const uint8_t* scales = bytes + code_bytes(f, length);
  for (int64_t g = 0; g < length / f.group_size; ++g) {
    for (int64_t r = 0; r < kBlockRows; ++r) {
      segment->scales[g][r] = packed_scale(f, scales, length, g, r);
      segment->offsets[g][r] = f.has_offset ? packed_offset(f, scales, length, g, r) : 0.0f;
    }
  }
}

// Adds a segment's part to the spans of one row of x.
void add_segment(const GroupedFormat& f, const Segment& segment, int64_t begin, int64_t length,
                 const uint8_t* row, const ActivationLayout& layout, float* spans) {
  const auto* codes = reinterpret_cast<const int16_t*>(row);
  const auto* sums_f =
      reinterpret_cast<const float*>(row + layout.sums_f[f.group_level]) + begin / f.group_size;
  const float a = reinterpret_cast<const float*>(row + layout.scales)[begin / kSegment];
  float sums[kBlockRows] = {};
  for (int64_t g = 0; g < length / f.group_size; ++g) {
    int32_t dots[kBlockRows] = {};
    for (int64_t k = g * f.group_size; k < (g + 1) * f.group_size; ++k) {
      const int32_t x16 = codes[place(begin + k)];
      for (int64_t r = 0; r < kBlockRows; ++r) dots[r] += segment.codes[k][r] * x16;
    }
    for (int64_t r = 0; r < kBlockRows; ++r) {
      sums[r] = std::fma(segment.scales[g][r], static_cast<float>(dots[r]), sums[r]);
      if (f.has_offset) sums[r] = std::fma(segment.offsets[g][r], sums_f[g], sums[r]);
    }
  }
  for (int64_t r = 0; r < kBlockRows; ++r) spans[r] = std::fma(a, sums[r], spans[r]);
}

// totals and spans of up to kTileTokens rows of x.
struct Sums {
  float spans[kTileTokens][kBlockRows];
  float totals[kTileTokens][kBlockRows];

  void clear(int64_t num_tokens) {
    std::memset(spans, 0, static_cast<size_t>(num_tokens) * sizeof(spans[0]));
    std::memset(totals, 0, static_cast<size_t>(num_tokens) * sizeof(totals[0]));
  }
  void end_span(int64_t num_tokens) {
    for (int64_t t = 0; t < num_tokens; ++t) {
      for (int64_t r = 0; r < kBlockRows; ++r) {
        totals[t][r] += spans[t][r];
        spans[t][r] = 0.0f;
      }
    }
  }
  void store(int64_t num_tokens, int64_t num_rows, float* y, int64_t y_stride) const {
    for (int64_t t = 0; t < num_tokens; ++t) {
      for (int64_t r = 0; r < least(num_rows, kBlockRows); ++r) y[t * y_stride + r] = totals[t][r];
    }
  }
};

bool ends_span(int64_t begin, int64_t cols) {
  return begin + kSegment >= cols || (begin / kSegment + 1) % kSpanSegments == 0;
}

void grouped(const GroupedArgs& args) {
  static_assert(sizeof(Segment) + sizeof(Sums) <= kLinearScratchBytes);
  const GroupedFormat& f = *args.format;
  const ActivationLayout& layout = args.x->layout;
  auto* segment = reinterpret_cast<Segment*>(args.scratch);
  auto* sums = reinterpret_cast<Sums*>(args.scratch + sizeof(Segment));
  for (int64_t block = 0; block < args.num_blocks; ++block) {
    const uint8_t* bytes = args.blocks + block * args.block_bytes;
    sums->clear(args.num_tokens);
    for (int64_t begin = 0; begin < layout.cols; begin += kSegment) {
      const int64_t length = least(kSegment, layout.cols - begin);
      load_segment(f, bytes, length, segment);
      bytes += segment_bytes(f, length);
      for (int64_t t = 0; t < args.num_tokens; ++t) {
        const uint8_t* row = args.x->rows + (args.first_token + t) * layout.row_bytes;
        add_segment(f, *segment, begin, length, row, layout, sums->spans[t]);
      }
      if (ends_span(begin, layout.cols)) sums->end_span(args.num_tokens);
    }
    sums->store(args.num_tokens, args.num_rows - block * kBlockRows, args.y + block * kBlockRows,
                args.y_stride);
  }
}

void floats(const FloatArgs& args) {
  auto* sums = reinterpret_cast<Sums*>(args.scratch);
  auto* weights = reinterpret_cast<float*>(args.scratch + sizeof(Sums));
  for (int64_t block = 0; block < args.num_blocks; ++block) {
    const uint8_t* bytes = args.blocks + block * args.block_bytes;
    sums->clear(args.num_tokens);
    for (int64_t begin = 0; begin < args.cols; begin += kSegment) {
      const int64_t length = least(kSegment, args.cols - begin);
      for (int64_t i = 0; i < length * kBlockRows; ++i) {
        weights[i] = packed_float(args.code, bytes, begin * kBlockRows + i);
      }
      for (int64_t t = 0; t < args.num_tokens; ++t) {
        const float* x = args.x + t * args.x_stride + begin;
        float acc[kBlockRows] = {};
        for (int64_t k = 0; k < length; ++k) {
          for (int64_t r = 0; r < kBlockRows; ++r)
            acc[r] = std::fma(weights[k * kBlockRows + r], x[k], acc[r]);
        }
        for (int64_t r = 0; r < kBlockRows; ++r) sums->spans[t][r] += acc[r];
      }
      if (ends_span(begin, args.cols)) sums->end_span(args.num_tokens);
    }
    sums->store(args.num_tokens, args.num_rows - block * kBlockRows, args.y + block * kBlockRows,
                args.y_stride);
  }
}

}  // namespace

const LinearKernels& linear_kernels_generic() {
  static constexpr LinearKernels kKernels = {quantise_row, grouped, floats, false, 0};
  return kKernels;
}

}  // namespace markbase::backends::cpu
