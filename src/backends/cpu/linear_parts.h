// What the products of the CPU backend are put together from: quantised rows of x, and the cutting
// of a weight into chunks. Private to this room.
#pragma once

#include <cstdint>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/kernels/linear_kernels.h"
#include "backends/cpu/pack.h"

namespace markbase::backends::cpu {

// Chunks that each thread should get at least, so that a thread held up can be helped out.
inline constexpr int64_t kChunksPerThread = 4;
// Below this many elements x is quantised by the calling thread.
inline constexpr int64_t kInlineElements = 8192;

// A row of `cols` elements quantised.
ActivationLayout activation_layout(int64_t cols);
// The AMX tiles of 8 of them.
int64_t tile_group_bytes(int64_t cols);
// The largest code of an activation.
int32_t code_limit(ActivationPrecision precision);

// How a product is cut: token tiles outside, runs of row blocks inside.
struct Cut {
  int64_t token_tiles;
  int64_t chunk_blocks;
  int64_t block_chunks;
  int64_t num_chunks() const { return token_tiles * block_chunks; }
};
Cut cut_product(const CpuPackedWeight& weight, int64_t tokens, int num_threads);

// Row blocks of a weight times some rows of x.
struct ProductPart {
  const CpuPackedWeight* weight;
  int64_t block;
  int64_t num_blocks;
  const Activations* x16;  // grouped formats: rows from first_token on
  int64_t first_token;
  int64_t num_tokens;  // <= kTileTokens
  const float* x;      // plain floats: the first of the rows
  int64_t x_stride;
  float* y;  // of the first token, row 0 of the weight
  int64_t y_stride;
  uint8_t* scratch;  // this thread's
};
void multiply(const LinearKernels& kernels, const ProductPart& part);

}  // namespace markbase::backends::cpu
