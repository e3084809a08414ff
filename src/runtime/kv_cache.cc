#include "runtime/kv_cache.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "base/check.h"

namespace markbase::runtime {
namespace {

constexpr int64_t blocks_for(int64_t tokens) {
  return (tokens + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
}

// Most blocks of a sliding layer that a sequence holds: those that the border below its next row
// sees, and those of the rows of a chunk, which begins anywhere in a block.
int64_t sliding_blocks(int64_t window, int64_t chunk_tokens) {
  const int64_t seen = blocks_for(window - 1);
  return seen + blocks_for(ops::kKvBlockTokens - 1 + chunk_tokens);
}

int64_t pool_blocks(const RunnerOptions& options) {
  const int64_t context = blocks_for(options.context_tokens);
  const int64_t most = options.max_sequences * context;
  if (options.kv_pool_tokens == 0) return most;
  return std::clamp(blocks_for(options.kv_pool_tokens), context, most);
}

// The pools stay where they are as long as the cache lives.
template <class Kinds>
std::vector<PrefixCache::Kind> prefix_kinds(Kinds& kinds) {
  std::vector<PrefixCache::Kind> out;
  out.reserve(kinds.size());
  for (auto& kind : kinds) out.push_back({&kind.pool, kind.shape.window});
  return out;
}

}  // namespace

std::vector<KvCache::Shape> KvCache::shapes_of(const model::TextConfig& config,
                                               const ops::Backend& backend,
                                               const RunnerOptions& options) {
  std::vector<Shape> shapes;
  const int64_t context = blocks_for(options.context_tokens);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const model::LayerConfig& layer = config.layers[i];
    if (!layer.owns_kv()) continue;
    const auto same = [&](const Shape& shape) {
      return shape.window == layer.sliding_window && shape.layout.head_dim == layer.head_dim &&
             shape.layout.num_kv_heads == layer.num_key_value_heads;
    };
    const auto found = std::find_if(shapes.begin(), shapes.end(), same);
    if (found != shapes.end()) {
      found->layers.push_back(i);
      continue;
    }
    Shape shape;
    shape.layout = {options.kv, layer.num_key_value_heads, layer.head_dim};
    shape.window = layer.sliding_window;
    shape.table_blocks = context;
    shape.sequence_blocks = context;
    shape.num_blocks = pool_blocks(options);
    if (shape.window > 0) {
      shape.sequence_blocks =
          std::min(context, sliding_blocks(shape.window, options.prefill_chunk_tokens));
      shape.num_blocks = options.max_sequences * shape.sequence_blocks +
                         options.kept_windows * (blocks_for(shape.window) + 1);
    }
    shape.layers = {i};
    shape.block_bytes = backend.kv_block_bytes(shape.layout);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

uint64_t KvCache::bytes(const model::TextConfig& config, const ops::Backend& backend,
                        const RunnerOptions& options) {
  uint64_t bytes = 0;
  for (const Shape& shape : shapes_of(config, backend, options)) {
    bytes += static_cast<uint64_t>(shape.num_blocks) * shape.block_bytes * shape.layers.size() +
             static_cast<uint64_t>(options.max_sequences * shape.table_blocks) * sizeof(int32_t);
  }
  return bytes;
}

KvCache::Kind::Kind(Shape s, int64_t max_sequences)
    : shape(std::move(s)),
      pool(shape.num_blocks),
      table(static_cast<size_t>(max_sequences * shape.table_blocks), kNoBlock),
      held(static_cast<size_t>(max_sequences)),
      changed(static_cast<size_t>(max_sequences), true) {}

KvCache::KvCache(const model::TextConfig& config, ops::Backend& backend,
                 const RunnerOptions& options)
    : backend_(backend),
      chunk_tokens_(options.prefill_chunk_tokens),
      context_tokens_(options.context_tokens),
      kinds_([&] {
        std::vector<Kind> kinds;
        for (Shape& shape : shapes_of(config, backend, options)) {
          kinds.emplace_back(std::move(shape), options.max_sequences);
        }
        return kinds;
      }()),
      prefixes_(prefix_kinds(kinds_), options.kept_windows,
                [this](size_t kind_idx, int32_t block) { fill_freed(kind_idx, block); }),
      taken_(static_cast<size_t>(options.max_sequences), false),
      places_(taken_.size()) {
  for (const Kind& kind : kinds_) {
    gone_.resize(std::max(gone_.size(), static_cast<size_t>(kind.shape.num_blocks)));
    spare_row_.resize(static_cast<size_t>(kind.shape.table_blocks));
  }
  if (!options.fill_freed_blocks) return;
  size_t largest = 0;
  for (const Kind& kind : kinds_) largest = std::max(largest, kind.shape.block_bytes);
  // NaN in every type; in kQ8 the scales are.
  fill_.assign(largest, std::byte{0xFF});
}

Result<std::unique_ptr<KvCache>> KvCache::create(const model::TextConfig& config,
                                                 ops::Backend& backend,
                                                 const RunnerOptions& options) {
  std::unique_ptr<KvCache> cache(new KvCache(config, backend, options));
  MB_TRY(cache->allocate(config));
  return cache;
}

Result<void> KvCache::allocate(const model::TextConfig& config) {
  views_.resize(config.layers.size());
  for (Kind& kind : kinds_) {
    const Shape& shape = kind.shape;
    MB_ASSIGN(auto table, backend_.allocate(kind.table.size() * sizeof(int32_t)));
    kind.device_table = tensor::make_view(table->data(), tensor::DType::kI32,
                                          {static_cast<int64_t>(taken_.size()), shape.table_blocks},
                                          backend_.device());
    memory_.push_back(std::move(table));
    for (const size_t layer : shape.layers) {
      MB_ASSIGN(auto blocks,
                backend_.allocate(shape.block_bytes * static_cast<size_t>(shape.num_blocks)));
      views_[layer] = {shape.layout, blocks->data(), kind.device_table};
      memory_.push_back(std::move(blocks));
    }
  }
  for (size_t layer = 0; layer < views_.size(); ++layer) {
    if (config.layers[layer].owns_kv()) continue;
    const auto source = static_cast<size_t>(config.layers[layer].kv_source_idx);
    MB_CHECK_MSG(source < layer, "keys and values come from an earlier layer");
    views_[layer] = views_[source];
  }
  return {};
}

// --- sequences ---

int KvCache::open_sequence() {
  const auto found = std::find(taken_.begin(), taken_.end(), false);
  if (found == taken_.end()) return -1;
  *found = true;
  return static_cast<int>(found - taken_.begin());
}

bool KvCache::is_fresh(size_t sequence) const {
  return taken_[sequence] && std::all_of(kinds_.begin(), kinds_.end(), [&](const Kind& kind) {
           return kind.held[sequence].end == 0;
         });
}

void KvCache::fill_freed(size_t kind_idx, int32_t block) {
  if (fill_.empty()) return;
  const Shape& shape = kinds_[kind_idx].shape;
  for (const size_t layer : shape.layers) {
    backend_.upload(block_data(layer, shape, block), std::span(fill_).first(shape.block_bytes));
  }
}

void* KvCache::block_data(size_t layer, const Shape& shape, int32_t block) const {
  return static_cast<std::byte*>(views_[layer].blocks) +
         static_cast<size_t>(block) * shape.block_bytes;
}

void KvCache::drop(size_t kind_idx, int32_t block) {
  if (kinds_[kind_idx].pool.drop(block)) fill_freed(kind_idx, block);
}

// Blocks before `end`.
void KvCache::give_back(size_t kind_idx, size_t sequence, int64_t end) {
  Kind& kind = kinds_[kind_idx];
  Held& held = kind.held[sequence];
  const std::span<int32_t> row = kind.row(sequence);
  // The last ones first, so that they are handed out again in their order.
  for (int64_t i = std::min(end, held.end); i-- > held.begin;) {
    drop(kind_idx, std::exchange(row[static_cast<size_t>(i)], kNoBlock));
    kind.changed[sequence] = true;
  }
  held.begin = std::max(held.begin, std::min(end, held.end));
}

void KvCache::close_sequence(int sequence) {
  const auto idx = static_cast<size_t>(sequence);
  MB_CHECK(taken_[idx]);
  taken_[idx] = false;
  places_[idx] = {};
  for (size_t i = 0; i < kinds_.size(); ++i) {
    give_back(i, idx, kinds_[i].held[idx].end);
    kinds_[i].held[idx] = {};
  }
}

KvCache::Need KvCache::need_of(const Kind& kind, size_t sequence, int64_t begin,
                               int64_t end) const {
  const Held& held = kind.held[sequence];
  Need need;
  need.first = first_block_seen(begin / ops::kKvBlockTokens, kind.shape.window);
  need.end = std::max(held.end, blocks_for(end));
  MB_CHECK_MSG(need.first >= held.begin, "keys that a row sees were given back");
  MB_CHECK_MSG(begin <= held.end * ops::kKvBlockTokens, "keys that a row sees were never there");
  return need;
}

bool KvCache::has_room(size_t kind_idx, size_t sequence, const Need& need) {
  Kind& kind = kinds_[kind_idx];
  const Held& held = kind.held[sequence];
  const int64_t wanted = need.end - held.end;
  int64_t room = kind.pool.num_free();
  if (room >= wanted) return true;
  const std::span<const int32_t> row = kind.row(sequence);
  for (int64_t i = held.begin; i < std::min(need.first, held.end); ++i) {
    const int32_t block = row[static_cast<size_t>(i)];
    if (kind.pool.num_holders(block) == 1 || prefixes_.is_kept(kind_idx, block, 1)) ++room;
  }
  return room >= wanted || room + prefixes_.num_evictable(kind_idx) >= wanted;
}

void KvCache::check_writable(Kind& kind, size_t sequence, int64_t begin, int64_t end) {
  const std::span<const int32_t> row = kind.row(sequence);
  const int64_t last = std::min(blocks_for(end), kind.held[sequence].end);
  for (int64_t i = begin / ops::kKvBlockTokens; i < last; ++i) {
    MB_CHECK_MSG(kind.pool.num_holders(row[static_cast<size_t>(i)]) == 1,
                 "a row would overwrite keys that others hold");
  }
}

void KvCache::take(size_t kind_idx, size_t sequence, int64_t end) {
  Kind& kind = kinds_[kind_idx];
  Held& held = kind.held[sequence];
  const std::span<int32_t> row = kind.row(sequence);
  for (; held.end < end; ++held.end) {
    while (kind.pool.num_free() == 0) MB_CHECK(prefixes_.evict(kind_idx));
    row[static_cast<size_t>(held.end)] = kind.pool.take();
    kind.changed[sequence] = true;
  }
}

bool KvCache::reserve(int sequence, int64_t begin, int64_t end) {
  const auto idx = static_cast<size_t>(sequence);
  MB_CHECK(taken_[idx] && begin >= 0 && begin <= end);
  MB_CHECK_MSG(end <= context_tokens_, "a position beyond the context");
  MB_CHECK_MSG(end - begin <= chunk_tokens_, "more rows than a chunk");
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const Need need = need_of(kinds_[i], idx, begin, end);
    check_writable(kinds_[i], idx, begin, end);
    if (!has_room(i, idx, need)) return false;
  }
  // What stands below `begin` may be written anew: then the ids below its place are others.
  if (begin < places_[idx].blocks * ops::kKvBlockTokens) places_[idx] = {};
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const Need need = need_of(kinds_[i], idx, begin, end);
    give_back(i, idx, need.first);
    take(i, idx, need.end);
  }
  return true;
}

void KvCache::upload_tables() {
  for (Kind& kind : kinds_) {
    for (size_t i = 0; i < kind.changed.size(); ++i) {
      if (!kind.changed[i]) continue;
      const tensor::TensorView row = kind.device_table.slice(static_cast<int64_t>(i), 1);
      backend_.upload(row.data, std::as_bytes(kind.row(i)));
      kind.changed[i] = false;
    }
  }
}

// --- prefixes ---

void KvCache::hold(Kind& kind, size_t sequence, int64_t begin, int64_t end) {
  for (const int32_t block :
       kind.row(sequence).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin))) {
    kind.pool.hold(block);
  }
  kind.held[sequence] = {begin, end};
  kind.changed[sequence] = true;
}

PrefixCache::Place KvCache::border_for(std::span<const int32_t> ids) const {
  const auto limit = std::min(static_cast<int64_t>(ids.size()), context_tokens_);
  const int64_t most = limit == 0 ? 0 : (limit - 1) / ops::kKvBlockTokens;
  return prefixes_.look_up(ids, most);
}

int64_t KvCache::adopt_prefix(int sequence, std::span<const int32_t> ids) {
  const auto idx = static_cast<size_t>(sequence);
  MB_CHECK(is_fresh(idx));
  const PrefixCache::Place border = border_for(ids);
  if (border.blocks == 0) return 0;
  prefixes_.touch(border.node);
  for (size_t i = 0; i < kinds_.size(); ++i) {
    prefixes_.read_row(border, i, kinds_[i].row(idx));
    hold(kinds_[i], idx, first_block_seen(border.blocks, kinds_[i].shape.window), border.blocks);
  }
  places_[idx] = border;
  return border.blocks * ops::kKvBlockTokens;
}

void KvCache::keep_prefix(int sequence, std::span<const int32_t> ids) {
  const auto idx = static_cast<size_t>(sequence);
  MB_CHECK(taken_[idx]);
  const auto blocks = static_cast<int64_t>(ids.size()) / ops::kKvBlockTokens;
  for (const Kind& kind : kinds_) {
    const Held& held = kind.held[idx];
    MB_CHECK_MSG(blocks <= held.end, "a prefix that was not computed");
    if (first_block_seen(blocks, kind.shape.window) < held.begin) return;
  }
  try {
    std::vector<std::span<const int32_t>> rows;
    for (Kind& kind : kinds_) rows.push_back(kind.row(idx));
    prefixes_.keep(ids, rows, &places_[idx]);
  } catch (const std::bad_alloc&) {
    // Whoever comes later computes it again.
  }
}

// So many of the first blocks of a sequence are there with the window before their end.
int64_t KvCache::blocks_to_share(size_t source, int64_t end) const {
  MB_CHECK(taken_[source]);
  const int64_t blocks = end / ops::kKvBlockTokens;
  for (const Kind& kind : kinds_) {
    const Held& held = kind.held[source];
    MB_CHECK_MSG(blocks <= held.end, "a prefix that was not computed");
    if (first_block_seen(blocks, kind.shape.window) < held.begin) return 0;
  }
  return blocks;
}

int64_t KvCache::share(int from, int to, int64_t end) {
  const auto source = static_cast<size_t>(from);
  const auto target = static_cast<size_t>(to);
  const int64_t blocks = blocks_to_share(source, end);
  MB_CHECK(is_fresh(target));
  if (blocks == 0) return 0;
  for (Kind& kind : kinds_) {
    const int64_t first = first_block_seen(blocks, kind.shape.window);
    std::copy(kind.row(source).begin() + first, kind.row(source).begin() + blocks,
              kind.row(target).begin() + first);
    hold(kind, target, first, blocks);
  }
  if (places_[source].blocks <= blocks) places_[target] = places_[source];
  return blocks * ops::kKvBlockTokens;
}

void KvCache::drop_prefixes() { prefixes_.drop_all(); }

KvCache::Usage KvCache::usage() const {
  Usage usage;
  for (size_t i = 0; i < kinds_.size(); ++i) {
    const BlockPool& pool = kinds_[i].pool;
    const int64_t kept = prefixes_.num_evictable(i);
    usage.num_blocks += pool.num_blocks();
    usage.kept += kept;
    usage.used += pool.num_blocks() - pool.num_free() - kept;
  }
  return usage;
}

int64_t KvCache::matched_prefix(std::span<const int32_t> ids) const {
  return prefixes_.matched_blocks(ids) * ops::kKvBlockTokens;
}

int64_t KvCache::available_tokens() const {
  int64_t tokens = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < kinds_.size(); ++i) {
    if (kinds_[i].shape.window > 0) continue;
    const int64_t blocks = kinds_[i].pool.num_free() + prefixes_.num_evictable(i);
    tokens = std::min(tokens, blocks * ops::kKvBlockTokens);
  }
  return tokens;
}

double KvCache::share_of_pool(int64_t tokens) const {
  double share = 0;
  for (const Kind& kind : kinds_) {
    int64_t blocks = blocks_for(tokens);
    if (kind.shape.window > 0) blocks = std::min(blocks, kind.shape.sequence_blocks);
    share =
        std::max(share, static_cast<double>(blocks) / static_cast<double>(kind.shape.num_blocks));
  }
  return share;
}

}  // namespace markbase::runtime
