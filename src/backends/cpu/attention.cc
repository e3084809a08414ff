// Shares attention out over the pool: tiles of queries that read the same keys, and for few queries
// with a deep context single spans of keys, whose results are merged in order of position either
// way.
#include <algorithm>
#include <cstring>

#include "backends/cpu/attention_layout.h"
#include "backends/cpu/kernels/vector_kernels.h"
#include "backends/cpu/vector_ops.h"
#include "base/check.h"

namespace markbase::backends::cpu {
namespace {

constexpr size_t kLine = 64;
// Room for the results of single spans beyond what one row needs; more rows go in waves.
constexpr size_t kPartialBytes = size_t{16} << 20;
// Multiply-adds below which waking the pool costs more than it brings (about 10 us).
constexpr int64_t kInlineWork = 256 * 1024;

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

size_t padded_floats(int64_t n) { return round_up(static_cast<size_t>(n), kLine / sizeof(float)); }

// What a thread needs for its tile: packed queries, one span's and the running output, scores.
size_t thread_floats(int64_t head_dim) {
  return size_t{kMaxTileQueries} * (3 * padded_floats(head_dim) + kScoreStride);
}

// One span's result for a tile: out, max, sum.
size_t partial_floats(int64_t num_queries, int64_t head_dim) {
  return padded_floats(num_queries * head_dim) + 2 * padded_floats(num_queries);
}

// Spans that a context of this many keys can touch, unaligned at both ends.
int64_t spans_in(int64_t num_keys) { return num_keys / kSpanKeys + 2; }

// The queries of some rows of one sequence and some heads of one KV head.
struct Item {
  int64_t first_row;
  int64_t num_rows;
  int64_t kv_head;
  int64_t first_head;
  int64_t num_heads;
};

// The queries of an item laid out for the kernels.
struct Tile {
  int num_queries = 0;
  int64_t first_span = 0;
  int64_t last_span = 0;
  const float* queries[kMaxTileQueries];
  float* y[kMaxTileQueries];
  int64_t first_key[kMaxTileQueries];
  int64_t last_key[kMaxTileQueries];
};

struct ThreadScratch {
  float* packed;
  float* span_out;
  float* out;
  float* scores;
};

struct Partial {
  float* out;
  float* max;
  float* sum;
};

class AttentionStep {
 public:
  AttentionStep(const VectorKernels& kernels, base::ThreadPool& pool, std::span<std::byte> scratch,
                const ops::AttentionArgs& args)
      : kernels_(kernels),
        pool_(pool),
        args_(args),
        head_(kv_head_layout(args.cache.layout)),
        block_bytes_(kv_block_bytes(args.cache.layout)),
        head_dim_(padded_head_dim(args.q.dim(2))),
        real_dim_(args.q.dim(2)),
        heads_per_kv_(args.q.dim(1) / args.cache.layout.num_kv_heads),
        tile_heads_(std::min<int64_t>(heads_per_kv_, kMaxTileQueries)),
        head_chunks_((heads_per_kv_ + tile_heads_ - 1) / tile_heads_) {
    carve(scratch);
    cut_tiles();
  }

  void run() {
    const int64_t num_items = num_tiles_ * items_per_tile();
    if (pool_.num_threads() == 1 || work_ < kInlineWork) {
      for (int64_t i = 0; i < num_items; ++i) attend(item_at(i), 0);
    } else if (num_items < 2 * pool_.num_threads() && max_spans_ > 1 && slots_per_wave() > 0) {
      run_by_spans(num_items);
    } else {
      pool_.run(num_items, [this](int64_t i, int thread) { attend(item_at(i), thread); });
    }
  }

 private:
  int64_t items_per_tile() const { return args_.cache.layout.num_kv_heads * head_chunks_; }

  void carve(std::span<std::byte> scratch) {
    const size_t threads_bytes =
        static_cast<size_t>(pool_.num_threads()) * thread_floats(head_dim_) * sizeof(float);
    const size_t rows = static_cast<size_t>(args_.q.dim(0));
    const size_t tiles_bytes = round_up((rows + 1) * sizeof(int32_t), kLine);
    MB_CHECK_MSG(scratch.size() >= threads_bytes + tiles_bytes, "the step is larger than planned");
    thread_scratch_ = reinterpret_cast<float*>(scratch.data());
    tile_starts_ = reinterpret_cast<int32_t*>(scratch.data() + threads_bytes);
    const std::span<std::byte> rest = scratch.subspan(threads_bytes + tiles_bytes);
    partials_ = reinterpret_cast<float*>(rest.data());
    partials_floats_ = rest.size() / sizeof(float);
  }

  ThreadScratch thread_scratch(int thread) const {
    const size_t side = size_t{kMaxTileQueries} * padded_floats(head_dim_);
    float* base = thread_scratch_ + static_cast<size_t>(thread) * thread_floats(head_dim_);
    return {base, base + side, base + 2 * side, base + 3 * side};
  }

  int64_t position(int64_t row) const { return args_.positions.as<int32_t>()[row]; }
  int32_t sequence(int64_t row) const { return args_.sequences.as<int32_t>()[row]; }
  int64_t first_visible(int64_t row) const {
    const int64_t p = position(row);
    return args_.window > 0 ? std::max<int64_t>(0, p - args_.window + 1) : 0;
  }

  // Rows that share a tile: as many as fit, fewer when the threads would otherwise go idle.
  int64_t rows_per_tile() const {
    const int64_t fitting = kMaxTileQueries / tile_heads_;
    const int64_t fair = args_.q.dim(0) * items_per_tile() / (4 * pool_.num_threads());
    const int64_t worthwhile = std::max<int64_t>(1, 12 / tile_heads_);  // one register tile
    return std::min(fitting, std::max(fair, worthwhile));
  }

  // Tiles of consecutive rows of one sequence; also the step's work and its deepest row.
  void cut_tiles() {
    const int64_t num_rows = args_.q.dim(0);
    const int64_t limit = rows_per_tile();
    int64_t num_keys = 0;
    for (int64_t row = 0; row < num_rows; ++row) {
      const bool starts = row == 0 || sequence(row) != sequence(row - 1) ||
                          row - tile_starts_[num_tiles_ - 1] >= limit;
      if (starts) tile_starts_[num_tiles_++] = static_cast<int32_t>(row);
      num_keys += position(row) - first_visible(row) + 1;
      const int64_t tile_first = first_visible(tile_starts_[num_tiles_ - 1]);
      max_spans_ = std::max(max_spans_, position(row) / kSpanKeys - tile_first / kSpanKeys + 1);
      max_tile_rows_ = std::max<int64_t>(max_tile_rows_, row - tile_starts_[num_tiles_ - 1] + 1);
    }
    tile_starts_[num_tiles_] = static_cast<int32_t>(num_rows);
    work_ = 2 * num_keys * args_.q.dim(1) * head_dim_;
  }

  Item item_at(int64_t i) const {
    const int64_t tile = i / items_per_tile();
    const int64_t part = i % items_per_tile();
    Item item;
    item.first_row = tile_starts_[tile];
    item.num_rows = tile_starts_[tile + 1] - item.first_row;
    item.kv_head = part / head_chunks_;
    const int64_t head_in_group = part % head_chunks_ * tile_heads_;
    item.first_head = item.kv_head * heads_per_kv_ + head_in_group;
    item.num_heads = std::min(tile_heads_, heads_per_kv_ - head_in_group);
    return item;
  }

  void lay_out(const Item& item, Tile* tile) const {
    tile->first_span = first_visible(item.first_row) / kSpanKeys;
    tile->last_span = position(item.first_row + item.num_rows - 1) / kSpanKeys;
    int n = 0;
    for (int64_t row = item.first_row; row < item.first_row + item.num_rows; ++row) {
      for (int64_t h = item.first_head; h < item.first_head + item.num_heads; ++h, ++n) {
        tile->queries[n] = args_.q.f32() + row * args_.q.stride[0] + h * real_dim_;
        tile->y[n] = args_.y.f32() + row * args_.y.stride[0] + h * real_dim_;
        tile->first_key[n] = first_visible(row);
        tile->last_key[n] = position(row);
      }
    }
    tile->num_queries = n;
  }

  // Whether query q sees a key of the span.
  static bool sees(const Tile& tile, int q, int64_t span) {
    return tile.first_key[q] < (span + 1) * kSpanKeys && tile.last_key[q] >= span * kSpanKeys;
  }

  void attend_span(const Item& item, const Tile& tile, int64_t span, const ThreadScratch& scratch,
                   const Partial& result) const {
    int first[kMaxTileQueries];
    int last[kMaxTileQueries];
    int64_t lowest = kSpanKeys;
    int64_t highest = -1;
    for (int q = 0; q < tile.num_queries; ++q) {
      first[q] = kSpanKeys;
      last[q] = -1;
      if (!sees(tile, q, span)) continue;
      first[q] = static_cast<int>(std::max<int64_t>(0, tile.first_key[q] - span * kSpanKeys));
      last[q] =
          static_cast<int>(std::min<int64_t>(kSpanKeys - 1, tile.last_key[q] - span * kSpanKeys));
      lowest = std::min<int64_t>(lowest, first[q]);
      highest = std::max<int64_t>(highest, last[q]);
    }
    if (highest < 0) return;
    const uint8_t* blocks[kSpanBlocks] = {};
    for (int64_t b = lowest / kBlockKeys; b <= highest / kBlockKeys; ++b) {
      blocks[b] = head_block(sequence(item.first_row), span * kSpanBlocks + b, item.kv_head);
    }
    SpanArgs span_args;
    span_args.type = head_.type;
    span_args.head_dim = static_cast<int>(head_dim_);
    span_args.num_queries = tile.num_queries;
    span_args.scale = args_.scale;
    span_args.queries = scratch.packed;
    span_args.first = first;
    span_args.last = last;
    span_args.blocks = blocks;
    span_args.offsets = head_.offsets;
    span_args.scores = scratch.scores;
    span_args.max = result.max;
    span_args.sum = result.sum;
    span_args.out = result.out;
    kernels_.attend_span(span_args);
  }

  const uint8_t* head_block(int32_t sequence, int64_t block_idx, int64_t kv_head) const {
    const tensor::TensorView& table = args_.cache.block_table;
    const int32_t block =
        table.as<int32_t>()[sequence * table.stride[0] + block_idx % table.dim(1)];
    return static_cast<const uint8_t*>(args_.cache.blocks) +
           static_cast<size_t>(block) * block_bytes_ +
           static_cast<size_t>(kv_head) * head_.head_bytes;
  }

  // Takes span results in ascending order: the first is copied, the others merged.
  struct Running {
    bool started[kMaxTileQueries] = {};
    float max[kMaxTileQueries];
    float sum[kMaxTileQueries];
  };
  void take(const Tile& tile, int64_t span, const Partial& partial, Running* running,
            float* out) const {
    for (int q = 0; q < tile.num_queries; ++q) {
      if (!sees(tile, q, span)) continue;
      float* sum_out = out + q * head_dim_;
      const float* span_out = partial.out + q * head_dim_;
      if (running->started[q]) {
        kernels_.merge_span(partial.max[q], partial.sum[q], span_out, &running->max[q],
                            &running->sum[q], sum_out, head_dim_);
        continue;
      }
      running->started[q] = true;
      running->max[q] = partial.max[q];
      running->sum[q] = partial.sum[q];
      std::memcpy(sum_out, span_out, static_cast<size_t>(head_dim_) * sizeof(float));
    }
  }

  void finish(const Tile& tile, const Running& running, const float* out) const {
    for (int q = 0; q < tile.num_queries; ++q) {
      kernels_.finish(out + q * head_dim_, running.sum[q], tile.y[q], real_dim_);
    }
  }

  // A whole item on one thread.
  void attend(const Item& item, int thread) const {
    Tile tile;
    lay_out(item, &tile);
    const ThreadScratch scratch = thread_scratch(thread);
    kernels_.pack_queries(tile.queries, tile.num_queries, static_cast<int>(real_dim_),
                          static_cast<int>(head_dim_), scratch.packed);
    Running running;
    float max[kMaxTileQueries];
    float sum[kMaxTileQueries];
    const Partial partial = {scratch.span_out, max, sum};
    for (int64_t span = tile.first_span; span <= tile.last_span; ++span) {
      attend_span(item, tile, span, scratch, partial);
      take(tile, span, partial, &running, scratch.out);
    }
    finish(tile, running, scratch.out);
  }

  // --- single spans over the pool ---

  size_t slot_floats() const { return partial_floats(max_tile_rows_ * tile_heads_, head_dim_); }
  // Items whose spans all fit the room for partial results.
  int64_t slots_per_wave() const {
    return static_cast<int64_t>(partials_floats_ /
                                (slot_floats() * static_cast<size_t>(max_spans_)));
  }
  Partial slot(int64_t i) const {
    const int64_t num_queries = max_tile_rows_ * tile_heads_;
    float* base = partials_ + static_cast<size_t>(i) * slot_floats();
    float* max = base + padded_floats(num_queries * head_dim_);
    return {base, max, max + padded_floats(num_queries)};
  }

  void run_by_spans(int64_t num_items) const {
    const int64_t wave = slots_per_wave();
    for (int64_t begin = 0; begin < num_items; begin += wave) {
      const int64_t count = std::min(wave, num_items - begin);
      pool_.run(count * max_spans_, [&](int64_t i, int thread) {
        attend_one_span(item_at(begin + i / max_spans_), i % max_spans_, thread, slot(i));
      });
      for (int64_t i = 0; i < count; ++i) merge_item(item_at(begin + i), i * max_spans_);
    }
  }

  void attend_one_span(const Item& item, int64_t span_idx, int thread,
                       const Partial& result) const {
    Tile tile;
    lay_out(item, &tile);
    const int64_t span = tile.first_span + span_idx;
    if (span > tile.last_span) return;
    const ThreadScratch scratch = thread_scratch(thread);
    kernels_.pack_queries(tile.queries, tile.num_queries, static_cast<int>(real_dim_),
                          static_cast<int>(head_dim_), scratch.packed);
    attend_span(item, tile, span, scratch, result);
  }

  void merge_item(const Item& item, int64_t first_slot) const {
    Tile tile;
    lay_out(item, &tile);
    Running running;
    float* out = thread_scratch(0).out;
    for (int64_t span = tile.first_span; span <= tile.last_span; ++span) {
      take(tile, span, slot(first_slot + span - tile.first_span), &running, out);
    }
    finish(tile, running, out);
  }

  const VectorKernels& kernels_;
  base::ThreadPool& pool_;
  const ops::AttentionArgs& args_;
  const KvHeadLayout head_;
  const size_t block_bytes_;
  const int64_t head_dim_;  // padded, as keys, values and packed queries are
  const int64_t real_dim_;
  const int64_t heads_per_kv_;
  const int64_t tile_heads_;   // heads of one KV head that share a tile
  const int64_t head_chunks_;  // more than one only with more heads than a tile holds
  float* thread_scratch_ = nullptr;
  int32_t* tile_starts_ = nullptr;
  float* partials_ = nullptr;
  size_t partials_floats_ = 0;
  int64_t num_tiles_ = 0;
  int64_t max_tile_rows_ = 1;
  int64_t max_spans_ = 1;
  int64_t work_ = 0;
};

}  // namespace

size_t vector_scratch_bytes(const ops::StepCapacity& capacity, int num_threads) {
  const int64_t head_dim = padded_head_dim(std::max<int64_t>(capacity.max_head_dim, 1));
  const int64_t num_heads = std::max<int64_t>(capacity.max_heads, 1);
  const int64_t num_rows = std::max<int64_t>(capacity.max_rows, 1);
  const size_t threads = static_cast<size_t>(num_threads) * thread_floats(head_dim) * sizeof(float);
  const size_t tiles = round_up(static_cast<size_t>(num_rows + 1) * sizeof(int32_t), kLine);
  const size_t spans = static_cast<size_t>(spans_in(capacity.max_context));
  const size_t one_row = spans * sizeof(float) *
                         partial_floats(std::min<int64_t>(num_heads, kMaxTileQueries), head_dim);
  const size_t all_rows = one_row * static_cast<size_t>(num_heads * num_rows);
  return threads + tiles + std::max(one_row, std::min(all_rows, kPartialBytes));
}

void attention(const VectorKernels& kernels, base::ThreadPool& pool, std::span<std::byte> scratch,
               const ops::AttentionArgs& args) {
  if (args.q.dim(0) == 0) return;
  AttentionStep(kernels, pool, scratch, args).run();
}

}  // namespace markbase::backends::cpu
