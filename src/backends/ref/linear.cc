#include <algorithm>

#include "backends/ref/ref_backend_impl.h"

namespace markbase::backends {
namespace {

// Outputs a chunk: enough work to outweigh handing it out.
constexpr int64_t kOutputsPerChunk = 16;

// sums[i] = sum over k of weight[k] * x[k][i], each in order of k: a row's result does not depend
// on how many rows stand beside it.
template <int64_t kRows>
void dot_rows(const float* weight, const double* x, int64_t cols, double* sums) {
  double acc[kRows] = {};
  for (int64_t k = 0; k < cols; ++k) {
    const double w = weight[k];
    for (int64_t i = 0; i < kRows; ++i) acc[i] += w * x[k * kRows + i];
  }
  for (int64_t i = 0; i < kRows; ++i) sums[i] = acc[i];
}

// A tile of rows as [K, tile_rows] doubles, rows beyond the end zero.
void transpose_tile(const tensor::TensorView& x, int64_t begin, int64_t tile_rows, double* out) {
  for (int64_t i = 0; i < tile_rows; ++i) {
    const bool inside = begin + i < x.dim(0);
    const float* row = inside ? x.row(begin + i) : nullptr;
    for (int64_t k = 0; k < x.dim(1); ++k) out[k * tile_rows + i] = inside ? row[k] : 0.0;
  }
}

}  // namespace

void RefBackend::linear(const ops::LinearArgs& args) {
  check(args);
  const int64_t num_rows = args.x.dim(0);
  if (num_rows == 0) return;
  MB_CHECK_MSG(num_rows <= capacity_.max_rows && args.x.dim(1) <= capacity_.max_linear_cols,
               "linear is larger than planned");
  const int64_t tile_rows = num_rows == 1 ? 1 : kLinearTileRows;
  const int64_t num_tiles = (num_rows + tile_rows - 1) / tile_rows;
  pool_.run(num_tiles, [&](int64_t tile, int) {
    transpose_tile(args.x, tile * tile_rows, tile_rows,
                   x_columns_ + tile * tile_rows * args.x.dim(1));
  });
  for (const ops::LinearTarget& target : args.targets) linear_target(args.x, target);
}

void RefBackend::linear_target(const tensor::TensorView& x, const ops::LinearTarget& target) {
  const auto& weight = static_cast<const RefWeight&>(*target.weight);
  const int64_t num_rows = x.dim(0);
  const int64_t cols = x.dim(1);
  const int64_t tile_rows = num_rows == 1 ? 1 : kLinearTileRows;
  const int64_t num_chunks = (weight.rows() + kOutputsPerChunk - 1) / kOutputsPerChunk;
  pool_.run(num_chunks, [&](int64_t chunk, int) {
    const int64_t end = std::min(weight.rows(), (chunk + 1) * kOutputsPerChunk);
    for (int64_t tile = 0; tile * tile_rows < num_rows; ++tile) {
      const double* tile_x = x_columns_ + tile * tile_rows * cols;
      const int64_t tile_end = std::min(num_rows, (tile + 1) * tile_rows);
      for (int64_t n = chunk * kOutputsPerChunk; n < end; ++n) {
        double sums[kLinearTileRows];
        if (tile_rows == 1) {
          dot_rows<1>(weight.row(n), tile_x, cols, sums);
        } else {
          dot_rows<kLinearTileRows>(weight.row(n), tile_x, cols, sums);
        }
        for (int64_t t = tile * tile_rows; t < tile_end; ++t) {
          target.y.row(t)[n] = static_cast<float>(sums[t - tile * tile_rows]);
        }
      }
    }
  });
}

}  // namespace markbase::backends
