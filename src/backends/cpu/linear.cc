#include "backends/cpu/linear.h"

#include <algorithm>

#include "backends/cpu/linear_parts.h"
#include "backends/cpu/pack.h"
#include "base/buffer.h"
#include "base/check.h"
#include "ops/mapped_table.h"

namespace markbase::backends::cpu {
namespace {

// Weights of a chunk when few rows of x make the memory the limit: enough to stream, few enough to
// steal.
constexpr int64_t kChunkBytes = 96 << 10;
// Multiplications of a chunk when there are many: some tens of microseconds.
constexpr int64_t kChunkProducts = int64_t{3} << 20;

}  // namespace

ActivationLayout activation_layout(int64_t cols) {
  ActivationLayout layout{};
  layout.cols = cols;
  int64_t at = round_up(2 * cols, 64);
  layout.scales = at;
  at += 4 * ((cols + kSegment - 1) / kSegment);
  for (int level = 0; level < kGroupLevels; ++level) {
    const int64_t groups = cols >> (4 + level);
    layout.sums[level] = at;
    layout.sums_f[level] = at + 4 * groups;
    at += 8 * groups;
  }
  int64_t in_tiles = (cols + kTileDepth - 1) / kTileDepth * 2 * kTileGroup * kTileDepth;
  layout.tile_scales = in_tiles;
  in_tiles += 4 * kTileGroup * ((cols + kSegment - 1) / kSegment);
  for (int level = 0; level < kGroupLevels; ++level) {
    layout.tile_sums[level] = in_tiles;
    in_tiles += 4 * kTileGroup * (cols >> (4 + level));
  }
  layout.tile_group_bytes = round_up(in_tiles, 64);
  // An odd number of cache lines, so that rows do not meet in the same sets.
  layout.row_bytes = (round_up(at, 64) / 64 | 1) * 64;
  return layout;
}

int32_t code_limit(ActivationPrecision precision) {
  // 127 * 256: what int16 pairs, and hi and lo in int8, can hold.
  return precision == ActivationPrecision::k16 ? 32512 : 127;
}

int64_t tile_group_bytes(int64_t cols) { return activation_layout(cols).tile_group_bytes; }

Cut cut_product(const CpuPackedWeight& weight, int64_t tokens, int num_threads) {
  // Plain floats are computed eight row blocks at once.
  constexpr int64_t kFloatUnit = 8;
  Cut cut{};
  cut.token_tiles = (tokens + kTileTokens - 1) / kTileTokens;
  const int64_t tile = std::min<int64_t>(tokens, kTileTokens);
  const int64_t by_bytes = kChunkBytes / weight.block_bytes();
  const int64_t by_products = kChunkProducts / (kBlockRows * weight.cols() * tile);
  const int64_t shares = kChunksPerThread * num_threads;
  const int64_t by_share = (weight.num_blocks() * cut.token_tiles + shares - 1) / shares;
  cut.chunk_blocks = std::clamp<int64_t>(
      std::min({by_bytes, std::max<int64_t>(by_products, 1), by_share}), 1, weight.num_blocks());
  // Kernels for more than a few rows of x take row blocks in pairs, which share what is fetched of
  // x.
  constexpr int64_t kPairsFrom = 3;
  if (tokens >= kPairsFrom) cut.chunk_blocks = round_up(cut.chunk_blocks, 2);
  if (!weight.format().is_grouped && tokens == 1)
    cut.chunk_blocks = round_up(cut.chunk_blocks, kFloatUnit);
  cut.block_chunks = (weight.num_blocks() + cut.chunk_blocks - 1) / cut.chunk_blocks;
  return cut;
}

void multiply(const LinearKernels& kernels, const ProductPart& part) {
  const CpuPackedWeight& weight = *part.weight;
  const int64_t rows = weight.rows() - part.block * kBlockRows;
  float* y = part.y + part.block * kBlockRows;
  if (weight.format().is_grouped) {
    kernels.grouped({&weight.format().grouped, weight.block(part.block), weight.block_bytes(),
                     part.num_blocks, rows, part.x16, part.first_token, part.num_tokens, y,
                     part.y_stride, part.scratch});
  } else {
    kernels.floats({weight.format().floats, weight.block(part.block), weight.block_bytes(),
                    part.num_blocks, rows, weight.cols(), part.x, part.x_stride, part.num_tokens, y,
                    part.y_stride, part.scratch});
  }
}

namespace {

// The parts of the scratch.
struct Scratch {
  uint8_t* rows;
  int8_t* tiles;
  uint8_t* threads;

  static Scratch carve(base::Arena& arena, int64_t rows, int64_t cols, int num_threads,
                       bool with_tiles) {
    const int64_t groups = (rows + kTileGroup - 1) / kTileGroup;
    Scratch s{};
    s.threads = arena.take_array<uint8_t>(static_cast<size_t>(num_threads) * kLinearScratchBytes);
    s.rows = arena.take_array<uint8_t>(
        static_cast<size_t>((rows + kRowsReadBeyond) * activation_layout(cols).row_bytes));
    if (with_tiles) {
      s.tiles = arena.take_array<int8_t>(static_cast<size_t>(groups * tile_group_bytes(cols)));
    }
    return s;
  }
};

const CpuPackedWeight& weight_of(const ops::LinearTarget& target) {
  return static_cast<const CpuPackedWeight&>(*target.weight);
}

class Product {
 public:
  Product(const LinearContext& context, const ops::LinearArgs& args)
      : context_(context), args_(args) {
    const int64_t tokens = args.x.dim(0);
    const int64_t cols = args.x.dim(1);
    base::Arena arena(context.scratch);
    const LinearKernels& kernels = *context.kernels;
    scratch_ =
        Scratch::carve(arena, tokens, cols, context.pool->num_threads(), kernels.wants_tiles);
    const bool use_tiles = kernels.wants_tiles && tokens >= kernels.tiles_from_tokens;
    x_ = {activation_layout(cols), scratch_.rows, use_tiles ? scratch_.tiles : nullptr};
  }

  void run() {
    if (std::ranges::any_of(args_.targets,
                            [](const auto& t) { return weight_of(t).format().is_grouped; })) {
      quantise();
    }
    const int num_threads = context_.pool->num_threads();
    int64_t num_chunks = 0;
    for (const ops::LinearTarget& target : args_.targets) {
      num_chunks += cut_product(weight_of(target), args_.x.dim(0), num_threads).num_chunks();
    }
    context_.pool->run(num_chunks, [&](int64_t chunk, int thread) {
      for (const ops::LinearTarget& target : args_.targets) {
        const Cut cut = cut_product(weight_of(target), args_.x.dim(0), num_threads);
        if (chunk < cut.num_chunks()) return multiply(target, cut, chunk, thread);
        chunk -= cut.num_chunks();
      }
    });
  }

 private:
  void quantise() {
    const int64_t tokens = args_.x.dim(0);
    if (tokens * args_.x.dim(1) <= kInlineElements) return quantise_rows(0, tokens);
    // Whole tile groups, so that no two threads write the same tile.
    const int64_t shares = kChunksPerThread * context_.pool->num_threads();
    const int64_t rows = round_up((tokens + shares - 1) / shares, kTileGroup);
    context_.pool->run((tokens + rows - 1) / rows, [&](int64_t chunk, int) {
      quantise_rows(chunk * rows, std::min((chunk + 1) * rows, tokens));
    });
  }

  void quantise_rows(int64_t begin, int64_t end) {
    const int32_t limit = code_limit(context_.activations);
    for (int64_t t = begin; t < end; ++t)
      context_.kernels->quantise({args_.x.row(t), t, limit, &x_});
  }

  void multiply(const ops::LinearTarget& target, const Cut& cut, int64_t chunk, int thread) {
    const CpuPackedWeight& weight = weight_of(target);
    const int64_t token = chunk / cut.block_chunks * kTileTokens;
    const int64_t tokens = std::min<int64_t>(kTileTokens, args_.x.dim(0) - token);
    const int64_t block = chunk % cut.block_chunks * cut.chunk_blocks;
    const int64_t blocks = std::min(cut.chunk_blocks, weight.num_blocks() - block);
    cpu::multiply(*context_.kernels, {.weight = &weight,
                                      .block = block,
                                      .num_blocks = blocks,
                                      .x16 = &x_,
                                      .first_token = token,
                                      .num_tokens = tokens,
                                      .x = args_.x.row(token),
                                      .x_stride = args_.x.stride[0],
                                      .y = target.y.row(token),
                                      .y_stride = target.y.stride[0],
                                      .scratch = scratch_.threads + thread * kLinearScratchBytes});
  }

  const LinearContext& context_;
  const ops::LinearArgs& args_;
  Scratch scratch_{};
  Activations x_{};
};

}  // namespace

const LinearKernels& linear_kernels(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kGeneric:
      break;
    case CpuIsa::kAvx2:
      return linear_kernels_avx2();
    case CpuIsa::kAvxVnni:
      return linear_kernels_avxvnni();
    case CpuIsa::kAvx512:
      return linear_kernels_avx512();
    case CpuIsa::kAvx512Vnni:
      return linear_kernels_avx512vnni();
    case CpuIsa::kAmx:
      return linear_kernels_amx();
  }
  return linear_kernels_generic();
}

size_t linear_scratch_bytes(const LinearKernels& kernels, const ops::StepCapacity& capacity,
                            int num_threads) {
  base::Arena counter;
  Scratch::carve(counter, capacity.max_rows, capacity.max_linear_cols, num_threads,
                 kernels.wants_tiles);
  return counter.used_bytes();
}

void linear(const LinearContext& context, const ops::LinearArgs& args) {
  if (args.x.dim(0) == 0) return;
  MB_CHECK_MSG(!context.scratch.empty(), "plan() comes before the first step");
  Product(context, args).run();
}

void embedding(base::ThreadPool& pool, const ops::EmbeddingArgs& args) {
  const auto* ids = args.ids.as<const int32_t>();
  pool.run(args.ids.dim(0), [&](int64_t t, int) {
    if (args.table->is_lookup_only()) {
      static_cast<const ops::MappedTable&>(*args.table)
          .look_up(ids[t], args.scale, {args.y.row(t), static_cast<size_t>(args.y.dim(1))});
    } else {
      decode_packed_row(static_cast<const CpuPackedWeight&>(*args.table), ids[t], args.scale,
                        args.y.row(t));
    }
  });
}

}  // namespace markbase::backends::cpu
