// Products with weights that are plain floats: widened to float32, one fma a k, no quantisation.
#pragma once

#include "backends/cpu/kernels/linear_panel-inl.h"

namespace markbase::backends::cpu {
namespace {

// Row blocks at once with one row of x: eight chains hide the latency of fma.
constexpr int kFloatBlocks = 8 / kVecs;

template <FloatCode F>
constexpr int kFloatBytes = F == FloatCode::kF32                              ? 4
                            : F == FloatCode::kE4M3 || F == FloatCode::kMxfp8 ? 1
                                                                              : 2;

template <FloatCode F>
inline FVec load_weights(const uint8_t* p) {
  if constexpr (F == FloatCode::kF32) return load_float_scale(p);
  if constexpr (F == FloatCode::kF16) return load_half(p);
  if constexpr (F == FloatCode::kBF16) return load_bf16(p);
  if constexpr (F == FloatCode::kE4M3 || F == FloatCode::kMxfp8) return load_e4m3(p);
}

// 2^(code - 127), from which the code's own scale of half that is doubled without rounding.
inline FVec load_power(const uint8_t* p) {
  const FVec half = load_e8m0(p);
  return add_f(half, half);
}

// Lanes v of column k of a row block.
template <FloatCode F>
inline FVec column(const uint8_t* block, int64_t k, int v) {
  if constexpr (F == FloatCode::kMxfp8) {
    const uint8_t* unit = block + float_bytes(F, k / kUnit * kUnit) + v * kLanes;
    return mul_f(load_e4m3(unit + k % kUnit * kBlockRows), load_power(unit + kUnit * kBlockRows));
  } else {
    return load_weights<F>(block + (k * kBlockRows + v * kLanes) * kFloatBytes<F>);
  }
}

// R row blocks, one row of x.
template <FloatCode F, int R>
void float_row(const FloatArgs& args, int64_t block) {
  constexpr int64_t kStride = kBlockRows * kFloatBytes<F>;
  const uint8_t* weights = args.blocks + block * args.block_bytes;
  FVec span[R][kVecs];
  FVec total[R][kVecs];
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kVecs; ++v) total[r][v] = span[r][v] = zero_f();
  }
  for (int64_t begin = 0; begin < args.cols; begin += kSegment) {
    const int64_t end = least(begin + kSegment, args.cols);
    FVec acc[R][kVecs];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) acc[r][v] = zero_f();
    }
    for (int64_t k = begin; k < end; ++k) {
      const FVec x = set1_f(args.x[k]);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const uint8_t* rows = weights + r * args.block_bytes;
        if (kStride == 64 || (k & (64 / kStride - 1)) == 0) prefetch(rows + k * kStride);
#pragma GCC unroll 2
        for (int v = 0; v < kVecs; ++v) acc[r][v] = fma_f(column<F>(rows, k, v), x, acc[r][v]);
      }
    }
    const bool span_ends = end == args.cols || (begin / kSegment + 1) % kSpanSegments == 0;
    for (int r = 0; r < R; ++r) {
      for (int v = 0; v < kVecs; ++v) {
        span[r][v] = add_f(span[r][v], acc[r][v]);
        if (!span_ends) continue;
        total[r][v] = add_f(total[r][v], span[r][v]);
        span[r][v] = zero_f();
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    const int64_t row = (block + r) * kBlockRows;
    store_rows(args.y + row, args.num_rows - row, total[r]);
  }
}

template <FloatCode F>
void float_rows(const FloatArgs& args) {
  int64_t block = 0;
  for (; block + kFloatBlocks <= args.num_blocks; block += kFloatBlocks)
    float_row<F, kFloatBlocks>(args, block);
  for (; block < args.num_blocks; ++block) float_row<F, 1>(args, block);
}

// One segment for T rows of x, weights as float32 [length][16].
template <int T>
void float_tile(const FloatArgs& args, const float* panel, float* spans, int64_t begin,
                int64_t length, int64_t token) {
  const float* x[T];
  FVec acc[T][kVecs];
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) {
    x[t] = args.x + (token + t) * args.x_stride + begin;
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) acc[t][v] = zero_f();
  }
  for (int64_t k = 0; k < length; ++k, panel += kBlockRows) {
    FVec w[kVecs];
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) w[v] = load_f(panel + v * kLanes);
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      const FVec factor = set1_f(x[t][k]);
#pragma GCC unroll 2
      for (int v = 0; v < kVecs; ++v) acc[t][v] = fma_f(w[v], factor, acc[t][v]);
    }
  }
#pragma GCC unroll 12
  for (int t = 0; t < T; ++t) {
    float* span = spans + (token + t) * kBlockRows;
#pragma GCC unroll 2
    for (int v = 0; v < kVecs; ++v) {
      const FVec before = begin % kSpan == 0 ? zero_f() : load_f(span + v * kLanes);
      store_f(span + v * kLanes, add_f(before, acc[t][v]));
    }
  }
}

using FloatTileFunction = void (*)(const FloatArgs&, const float*, float*, int64_t, int64_t,
                                   int64_t);
constexpr FloatTileFunction kFloatTileFunctions[13] = {
    nullptr,       float_tile<1>, float_tile<2>, float_tile<3>,  float_tile<4>,  float_tile<5>,
    float_tile<6>,
#if defined(__AVX512F__)
    float_tile<7>, float_tile<8>, float_tile<9>, float_tile<10>, float_tile<11>, float_tile<12>,
#endif
};

template <FloatCode F>
void float_panels(const FloatArgs& args) {
  float* panel = reinterpret_cast<float*>(args.scratch);
  PanelScratch sums{};
  sums.spans = panel + kSegment * kBlockRows;
  sums.totals = sums.spans + kTileTokens * kBlockRows;
  for (int64_t block = 0; block < args.num_blocks; ++block) {
    const uint8_t* weights = args.blocks + block * args.block_bytes;
    for (int64_t begin = 0; begin < args.cols; begin += kSegment) {
      const int64_t length = least(kSegment, args.cols - begin);
      for (int64_t k = 0; k < length; ++k) {
        for (int v = 0; v < kVecs; ++v)
          store_f(panel + k * kBlockRows + v * kLanes, column<F>(weights, begin + k, v));
      }
      for (int64_t token = 0; token < args.num_tokens; token += kTile) {
        const int64_t count = least(kTile, args.num_tokens - token);
        kFloatTileFunctions[count](args, panel, sums.spans, begin, length, token);
      }
      end_segment(sums, args.num_tokens, begin, args.cols);
    }
    store_sums(sums, args.num_tokens, args.cols > kSpan, args.y + block * kBlockRows, args.y_stride,
               args.num_rows - block * kBlockRows);
  }
}

template <FloatCode F>
void float_product(const FloatArgs& args) {
  if (args.num_tokens == 1) return float_rows<F>(args);
  float_panels<F>(args);
}

void floats(const FloatArgs& args) {
  switch (args.code) {
    case FloatCode::kF32:
      return float_product<FloatCode::kF32>(args);
    case FloatCode::kF16:
      return float_product<FloatCode::kF16>(args);
    case FloatCode::kBF16:
      return float_product<FloatCode::kBF16>(args);
    case FloatCode::kE4M3:
      return float_product<FloatCode::kE4M3>(args);
    case FloatCode::kMxfp8:
      return float_product<FloatCode::kMxfp8>(args);
  }
}

}  // namespace
}  // namespace markbase::backends::cpu
