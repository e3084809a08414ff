#include "runtime/kv_cache.h"

#include <algorithm>

#include "base/check.h"

namespace markbase::runtime {
namespace {

constexpr int64_t blocks_for(int64_t tokens) {
  return (tokens + ops::kKvBlockTokens - 1) / ops::kKvBlockTokens;
}

// Of a layer that owns no keys and values.
constexpr int kNoKind = -1;

}  // namespace

std::vector<KvCache::Kind> KvCache::kinds_of(const model::TextConfig& config,
                                             const RunnerOptions& options,
                                             std::vector<int>* kind_of_layer) {
  std::vector<Kind> kinds;
  for (const model::LayerConfig& layer : config.layers) {
    if (!layer.owns_kv()) {
      kind_of_layer->push_back(kNoKind);
      continue;
    }
    const auto same = [&](const Kind& kind) {
      return kind.window == layer.sliding_window && kind.layout.head_dim == layer.head_dim &&
             kind.layout.num_kv_heads == layer.num_key_value_heads;
    };
    const auto found = std::find_if(kinds.begin(), kinds.end(), same);
    kind_of_layer->push_back(static_cast<int>(found - kinds.begin()));
    if (found != kinds.end()) continue;
    Kind kind;
    kind.layout = {options.kv, layer.num_key_value_heads, layer.head_dim};
    kind.window = layer.sliding_window;
    kind.table_blocks = blocks_for(options.context_tokens);
    if (layer.sliding_window > 0) {
      // Window and chunk may begin and end anywhere in a block.
      const int64_t ring = blocks_for(layer.sliding_window + options.prefill_chunk_tokens) + 1;
      kind.table_blocks = std::min(kind.table_blocks, ring);
    }
    kinds.push_back(std::move(kind));
  }
  return kinds;
}

uint64_t KvCache::bytes(const model::TextConfig& config, const ops::Backend& backend,
                        const RunnerOptions& options) {
  std::vector<int> kind_of_layer;
  const std::vector<Kind> kinds = kinds_of(config, options, &kind_of_layer);
  uint64_t bytes = 0;
  for (const int idx : kind_of_layer) {
    if (idx == kNoKind) continue;
    const Kind& kind = kinds[static_cast<size_t>(idx)];
    bytes += backend.kv_block_bytes(kind.layout) *
             static_cast<uint64_t>(kind.table_blocks * options.max_sequences);
  }
  return bytes;
}

Result<std::unique_ptr<KvCache>> KvCache::create(const model::TextConfig& config,
                                                 ops::Backend& backend,
                                                 const RunnerOptions& options) {
  std::unique_ptr<KvCache> cache(new KvCache(backend));
  cache->max_sequences_ = options.max_sequences;
  cache->taken_.assign(static_cast<size_t>(options.max_sequences), false);
  std::vector<int> kind_of_layer;
  cache->kinds_ = kinds_of(config, options, &kind_of_layer);
  for (Kind& kind : cache->kinds_) {
    const int64_t num_blocks = kind.table_blocks * options.max_sequences;
    kind.table.assign(static_cast<size_t>(num_blocks), 0);
    kind.held.assign(static_cast<size_t>(options.max_sequences), 0);
    // Handed out from the back: low numbers first, so that memory is touched from its beginning.
    for (int64_t block = num_blocks; block-- > 0;) kind.free.push_back(static_cast<int32_t>(block));
    MB_ASSIGN(auto table, backend.allocate(kind.table.size() * sizeof(int32_t)));
    kind.device_table =
        tensor::make_view(table->data(), tensor::DType::kI32,
                          {options.max_sequences, kind.table_blocks}, backend.device());
    cache->memory_.push_back(std::move(table));
  }
  for (size_t layer = 0; layer < kind_of_layer.size(); ++layer) {
    if (kind_of_layer[layer] == kNoKind) {
      const auto source = static_cast<size_t>(config.layers[layer].kv_source_idx);
      MB_CHECK_MSG(source < layer, "keys and values come from an earlier layer");
      cache->views_.push_back(cache->views_[source]);
      continue;
    }
    const Kind& kind = cache->kinds_[static_cast<size_t>(kind_of_layer[layer])];
    MB_ASSIGN(auto blocks,
              backend.allocate(backend.kv_block_bytes(kind.layout) * kind.table.size()));
    cache->views_.push_back({kind.layout, blocks->data(), kind.device_table});
    cache->memory_.push_back(std::move(blocks));
  }
  return cache;
}

int KvCache::open_sequence() {
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i]) continue;
    taken_[i] = true;
    return static_cast<int>(i);
  }
  return -1;
}

void KvCache::close_sequence(int sequence) {
  const auto idx = static_cast<size_t>(sequence);
  MB_CHECK(taken_[idx]);
  taken_[idx] = false;
  for (Kind& kind : kinds_) {
    for (int64_t i = kind.held[idx]; i-- > 0;) {
      kind.free.push_back(
          kind.table[idx * static_cast<size_t>(kind.table_blocks) + static_cast<size_t>(i)]);
    }
    kind.held[idx] = 0;
  }
}

void KvCache::reserve(int sequence, int64_t end) {
  const auto idx = static_cast<size_t>(sequence);
  for (Kind& kind : kinds_) {
    // A ring that is full is used again from its start: nothing more to hold.
    const int64_t wanted =
        kind.window > 0 ? std::min(blocks_for(end), kind.table_blocks) : blocks_for(end);
    MB_CHECK_MSG(wanted <= kind.table_blocks, "a position beyond the context");
    while (kind.held[idx] < wanted) {
      int32_t* row = kind.table.data() + idx * static_cast<size_t>(kind.table_blocks);
      row[kind.held[idx]++] = kind.free.back();
      kind.free.pop_back();
      tables_changed_ = true;
    }
  }
}

void KvCache::upload_tables() {
  if (!tables_changed_) return;
  for (const Kind& kind : kinds_) {
    backend_.upload(kind.device_table.data, std::as_bytes(std::span(kind.table)));
  }
  tables_changed_ = false;
}

}  // namespace markbase::runtime
