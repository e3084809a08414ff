#include "backends/cpu/experts.h"

#include <algorithm>

#include "backends/cpu/kernels/vector_kernels.h"
#include "backends/cpu/linear_parts.h"
#include "backends/cpu/pack.h"
#include "base/buffer.h"
#include "base/check.h"

namespace markbase::backends::cpu {
namespace {

// Rows that are sorted and computed at a time. Beyond this many, arithmetic takes far longer than
// reading the weights once more, and the scratch stays small.
constexpr int64_t kMostRows = 1024;
// Multiply-adds below which the calling thread sums up alone.
constexpr int64_t kInlineSums = 64 * 1024;

struct Sizes {
  int64_t rows;
  int64_t top_k;
  int64_t num_experts;
  int64_t inputs;
  int64_t width;

  int64_t pairs() const { return rows * top_k; }
};

// A pair of a row and one of its experts stands in a slot; the pairs of an expert stand together.
// Where AMX tiles are used they begin at a multiple of 8, at which at most 7 slots are lost.
int64_t most_slots(const Sizes& sizes, const LinearKernels& kernels) {
  if (!kernels.wants_tiles) return sizes.pairs();
  const int64_t experts = std::min(sizes.num_experts, sizes.pairs() / kernels.tiles_from_tokens);
  return sizes.pairs() + (kTileGroup - 1) * experts;
}

// An expert that some row goes to.
struct Used {
  int32_t id;
  int32_t first_slot;
  int32_t num_rows;
  bool tiles;
  // Chunks of this product up to and with this expert.
  int64_t gate_up_end;
  int64_t down_end;
};

// Quantised rows, one a slot.
struct SlotRows {
  uint8_t* rows = nullptr;
  int8_t* tiles = nullptr;
};

struct Scratch {
  uint8_t* threads;
  int32_t* cursors;  // [E] rows of each expert, then its next slot
  Used* used;        // [min(E, pairs)]
  int32_t* slots;    // [pairs] slot of each pair
  int32_t* row_of;   // [slots]
  SlotRows x;
  SlotRows product;
  float* gate;  // [slots, width], then the product
  float* up;    // [slots, width]
  float* down;  // [slots, inputs]
};

Scratch carve(base::Arena& arena, const Sizes& sizes, int num_threads,
              const LinearKernels& kernels) {
  const auto take_floats = [&](int64_t rows, int64_t width) {
    return arena.take_array<float>(static_cast<size_t>(rows * width));
  };
  const auto ints = [&](int64_t n) { return arena.take_array<int32_t>(static_cast<size_t>(n)); };
  const int64_t slots = most_slots(sizes, kernels);
  const auto slot_rows = [&](int64_t cols) {
    SlotRows out;
    const int64_t row_bytes = (slots + kRowsReadBeyond) * activation_layout(cols).row_bytes;
    const int64_t groups = (slots + kTileGroup - 1) / kTileGroup;
    out.rows = arena.take_array<uint8_t>(static_cast<size_t>(row_bytes));
    if (!kernels.wants_tiles) return out;
    out.tiles = arena.take_array<int8_t>(static_cast<size_t>(groups * tile_group_bytes(cols)));
    return out;
  };
  Scratch s{};
  s.threads = arena.take_array<uint8_t>(static_cast<size_t>(num_threads * kLinearScratchBytes));
  s.cursors = ints(sizes.num_experts);
  s.used = arena.take_array<Used>(static_cast<size_t>(std::min(sizes.num_experts, sizes.pairs())));
  s.slots = ints(sizes.pairs());
  s.row_of = ints(slots);
  s.x = slot_rows(sizes.inputs);
  s.product = slot_rows(sizes.width);
  s.gate = take_floats(slots, sizes.width);
  s.up = take_floats(slots, sizes.width);
  s.down = take_floats(slots, sizes.inputs);
  return s;
}

using Weights = std::span<const std::unique_ptr<ops::PackedWeight>>;

const CpuPackedWeight& weight_of(Weights weights, const Used& used) {
  return static_cast<const CpuPackedWeight&>(*weights[static_cast<size_t>(used.id)]);
}

class Mixture {
 public:
  Mixture(const ExpertsContext& context, const ops::ExpertsArgs& args)
      : context_(context),
        args_(args),
        sizes_{.rows = args.x.dim(0),
               .top_k = args.ids.dim(1),
               .num_experts = static_cast<int64_t>(args.gate.size()),
               .inputs = args.x.dim(1),
               .width = args.gate[0]->rows()} {
    base::Arena arena(context.scratch);
    scratch_ = carve(arena, sizes_, context.pool->num_threads(), *context.linear);
  }

  void run() {
    sort_rows();
    cut();
    const bool any_tiles = std::ranges::any_of(used_, &Used::tiles);
    x_ = activations(scratch_.x, sizes_.inputs, any_tiles);
    x_without_tiles_ = activations(scratch_.x, sizes_.inputs, false);
    product_ = activations(scratch_.product, sizes_.width, any_tiles);
    product_without_tiles_ = activations(scratch_.product, sizes_.width, false);
    if (any_grouped(args_.gate) || any_grouped(args_.up)) {
      quantise(x_, [&](int64_t pair) { return args_.x.row(pair / sizes_.top_k); });
    }
    context_.pool->run(used_.back().gate_up_end, [&](int64_t chunk, int thread) {
      const Used& used = used_of(chunk, &Used::gate_up_end);
      gate_and_up(used, chunk - begin_of(used, &Used::gate_up_end), thread);
    });
    if (any_grouped(args_.down)) {
      quantise(product_,
               [&](int64_t pair) { return scratch_.gate + scratch_.slots[pair] * sizes_.width; });
    }
    context_.pool->run(used_.back().down_end, [&](int64_t chunk, int thread) {
      const Used& used = used_of(chunk, &Used::down_end);
      down(used, chunk - begin_of(used, &Used::down_end), thread);
    });
    sum_up();
  }

 private:
  static Activations activations(const SlotRows& rows, int64_t cols, bool tiles) {
    return {activation_layout(cols), rows.rows, tiles ? rows.tiles : nullptr};
  }

  bool any_grouped(Weights weights) const {
    return std::ranges::any_of(
        used_, [&](const Used& used) { return weight_of(weights, used).format().is_grouped; });
  }

  // Gives every pair its slot. Experts stand in the order in which rows first ask for them, the
  // rows of an expert in their own order; no result depends on either.
  void sort_rows() {
    const int32_t* ids = args_.ids.as<int32_t>();
    std::fill_n(scratch_.cursors, sizes_.num_experts, 0);
    int64_t num_used = 0;
    for (int64_t pair = 0; pair < sizes_.pairs(); ++pair) {
      MB_CHECK(ids[pair] >= 0 && ids[pair] < sizes_.num_experts);
      if (scratch_.cursors[ids[pair]]++ != 0) continue;
      ops::check_expert(args_, ids[pair]);
      scratch_.used[num_used++].id = ids[pair];
    }
    used_ = {scratch_.used, static_cast<size_t>(num_used)};
    int64_t next = 0;
    for (Used& used : used_) {
      used.num_rows = scratch_.cursors[used.id];
      used.tiles =
          context_.linear->wants_tiles && used.num_rows >= context_.linear->tiles_from_tokens;
      if (used.tiles) next = round_up(next, kTileGroup);
      used.first_slot = static_cast<int32_t>(next);
      scratch_.cursors[used.id] = used.first_slot;
      next += used.num_rows;
    }
    for (int64_t pair = 0; pair < sizes_.pairs(); ++pair) {
      const int32_t slot = scratch_.cursors[ids[pair]]++;
      scratch_.slots[pair] = slot;
      scratch_.row_of[slot] = static_cast<int32_t>(pair / sizes_.top_k);
    }
  }

  void cut() {
    const int num_threads = context_.pool->num_threads();
    int64_t gate_up = 0;
    int64_t down = 0;
    for (Used& used : used_) {
      gate_up += cut_product(weight_of(args_.gate, used), used.num_rows, num_threads).num_chunks();
      down += cut_product(weight_of(args_.down, used), used.num_rows, num_threads).num_chunks();
      used.gate_up_end = gate_up;
      used.down_end = down;
    }
  }

  const Used& used_of(int64_t chunk, int64_t Used::*end) const {
    return *std::upper_bound(used_.begin(), used_.end(), chunk,
                             [&](int64_t c, const Used& used) { return c < used.*end; });
  }
  int64_t begin_of(const Used& used, int64_t Used::*end) const {
    return &used == used_.data() ? 0 : (&used - 1)->*end;
  }

  // row_at(pair) of every pair into its slot.
  template <class RowAt>
  void quantise(const Activations& out, const RowAt& row_at) {
    const int32_t limit = code_limit(context_.activations);
    const auto quantise_pairs = [&](int64_t begin, int64_t end) {
      for (int64_t pair = begin; pair < end; ++pair) {
        context_.linear->quantise({row_at(pair), scratch_.slots[pair], limit, &out});
      }
    };
    const int64_t pairs = sizes_.pairs();
    if (pairs * out.layout.cols <= kInlineElements) return quantise_pairs(0, pairs);
    const int64_t shares = kChunksPerThread * context_.pool->num_threads();
    const int64_t count = (pairs + shares - 1) / shares;
    context_.pool->run((pairs + count - 1) / count, [&](int64_t chunk, int) {
      quantise_pairs(chunk * count, std::min((chunk + 1) * count, pairs));
    });
  }

  // Some row blocks of gate and up for a tile of the expert's rows, and their product.
  void gate_and_up(const Used& used, int64_t chunk, int thread) {
    const CpuPackedWeight& weight = weight_of(args_.gate, used);
    const Piece piece = piece_of(weight, used, chunk, thread);
    multiply_inputs(weight, piece, scratch_.gate);
    multiply_inputs(weight_of(args_.up, used), piece, scratch_.up);
    const int64_t begin = piece.block * kBlockRows;
    const int64_t end = std::min(begin + piece.num_blocks * kBlockRows, sizes_.width);
    for (int64_t slot = piece.slot; slot < piece.slot + piece.num_slots; ++slot) {
      float* gate = scratch_.gate + slot * sizes_.width + begin;
      const float* up = scratch_.up + slot * sizes_.width + begin;
      context_.vector->gelu_mul(gate, up, gate, end - begin);
    }
  }

  void down(const Used& used, int64_t chunk, int thread) {
    const CpuPackedWeight& weight = weight_of(args_.down, used);
    const Piece piece = piece_of(weight, used, chunk, thread);
    multiply(*context_.linear, {.weight = &weight,
                                .block = piece.block,
                                .num_blocks = piece.num_blocks,
                                .x16 = used.tiles ? &product_ : &product_without_tiles_,
                                .first_token = piece.slot,
                                .num_tokens = piece.num_slots,
                                .x = scratch_.gate + piece.slot * sizes_.width,
                                .x_stride = sizes_.width,
                                .y = scratch_.down + piece.slot * sizes_.inputs,
                                .y_stride = sizes_.inputs,
                                .scratch = piece.scratch});
  }

  // What a chunk of one expert's product is about.
  struct Piece {
    int64_t block;
    int64_t num_blocks;
    int64_t slot;
    int64_t num_slots;
    bool tiles;
    uint8_t* scratch;
  };
  Piece piece_of(const CpuPackedWeight& weight, const Used& used, int64_t chunk, int thread) const {
    const Cut cut = cut_product(weight, used.num_rows, context_.pool->num_threads());
    const int64_t row = chunk / cut.block_chunks * kTileTokens;
    const int64_t block = chunk % cut.block_chunks * cut.chunk_blocks;
    return {.block = block,
            .num_blocks = std::min(cut.chunk_blocks, weight.num_blocks() - block),
            .slot = used.first_slot + row,
            .num_slots = std::min<int64_t>(kTileTokens, used.num_rows - row),
            .tiles = used.tiles,
            .scratch = scratch_.threads + thread * kLinearScratchBytes};
  }

  // y[slot] = weight . x[row of the slot]. Rows of plain floats are used where they stand, one by
  // one: the chunk of weights is in the cache by then.
  void multiply_inputs(const CpuPackedWeight& weight, const Piece& piece, float* y) const {
    const bool grouped = weight.format().is_grouped;
    const int64_t at_once = grouped ? piece.num_slots : 1;
    for (int64_t slot = piece.slot; slot < piece.slot + piece.num_slots; slot += at_once) {
      multiply(*context_.linear, {.weight = &weight,
                                  .block = piece.block,
                                  .num_blocks = piece.num_blocks,
                                  .x16 = piece.tiles ? &x_ : &x_without_tiles_,
                                  .first_token = slot,
                                  .num_tokens = at_once,
                                  .x = args_.x.row(scratch_.row_of[slot]),
                                  .x_stride = args_.x.stride[0],
                                  .y = y + slot * sizes_.width,
                                  .y_stride = sizes_.width,
                                  .scratch = piece.scratch});
    }
  }

  void sum_up() {
    if (sizes_.pairs() * sizes_.inputs <= kInlineSums) {
      for (int64_t t = 0; t < sizes_.rows; ++t) sum_row(t);
      return;
    }
    context_.pool->run(sizes_.rows, [&](int64_t t, int) { sum_row(t); });
  }

  void sum_row(int64_t t) {
    float* y = args_.y.row(t);
    std::fill_n(y, sizes_.inputs, 0.0F);
    for (int64_t k = 0; k < sizes_.top_k; ++k) {
      const int64_t slot = scratch_.slots[t * sizes_.top_k + k];
      context_.vector->add_scaled(scratch_.down + slot * sizes_.inputs, args_.weights.row(t)[k], y,
                                  sizes_.inputs);
    }
  }

  const ExpertsContext& context_;
  const ops::ExpertsArgs& args_;
  const Sizes sizes_;
  Scratch scratch_{};
  std::span<Used> used_;
  Activations x_{};
  Activations x_without_tiles_{};
  Activations product_{};
  Activations product_without_tiles_{};
};

}  // namespace

size_t experts_scratch_bytes(const LinearKernels& kernels, const ops::StepCapacity& capacity,
                             int num_threads) {
  if (capacity.num_experts == 0) return 0;
  base::Arena counter;
  carve(counter,
        {.rows = std::min(capacity.max_rows, kMostRows),
         .top_k = capacity.top_k_experts,
         .num_experts = capacity.num_experts,
         .inputs = capacity.expert_inputs,
         .width = capacity.expert_width},
        num_threads, kernels);
  return counter.used_bytes();
}

void experts(const ExpertsContext& context, const ops::ExpertsArgs& args) {
  if (args.x.dim(0) == 0) return;
  MB_CHECK_MSG(!context.scratch.empty(), "plan() comes before the first step");
  for (int64_t begin = 0; begin < args.x.dim(0); begin += kMostRows) {
    const int64_t rows = std::min(kMostRows, args.x.dim(0) - begin);
    ops::ExpertsArgs part = args;
    part.x = args.x.slice(begin, rows);
    part.ids = args.ids.slice(begin, rows);
    part.weights = args.weights.slice(begin, rows);
    part.y = args.y.slice(begin, rows);
    Mixture(context, part).run();
  }
}

}  // namespace markbase::backends::cpu
