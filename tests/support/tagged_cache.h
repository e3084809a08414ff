// A cache of keys and values with a "model" behind it: what a row sees is written and read back
// position by position, so that a block in the wrong place, freed too early or written twice is
// noticed whatever its number.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "runtime/backend_factory.h"
#include "runtime/kv_cache.h"

namespace markbase::testing {

using runtime::KvCache;
using runtime::RunnerOptions;

inline constexpr int64_t kTokens = ops::kKvBlockTokens;
inline constexpr int64_t kContext = 640;
inline constexpr int64_t kChunk = 100;

// Layers "SFSF...": sliding or full; 's': those of another window.
inline model::TextConfig config_of(std::string_view layers, int64_t window) {
  model::TextConfig config;
  for (const char type : layers) {
    model::LayerConfig layer;
    layer.type = type == 'F' ? model::LayerType::kFull : model::LayerType::kSliding;
    layer.head_dim = 1;
    layer.num_key_value_heads = 1;
    layer.sliding_window = type == 'F' ? 0 : type == 's' ? 2 * window : window;
    config.layers.push_back(layer);
  }
  config.num_hidden_layers = static_cast<int64_t>(config.layers.size());
  return config;
}

inline RunnerOptions options_for(int64_t sequences, int64_t kept_windows, int64_t pool_tokens = 0) {
  RunnerOptions options;
  options.kv = ops::KvType::kF32;
  options.context_tokens = kContext;
  options.prefill_chunk_tokens = kChunk;
  options.max_sequences = sequences;
  options.kept_windows = kept_windows;
  options.kv_pool_tokens = pool_tokens;
  options.fill_freed_blocks = true;
  return options;
}

inline std::vector<int32_t> ids_of(int64_t count, int64_t fork = kContext, int32_t other = 1) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    ids.push_back(static_cast<int32_t>(i * 7 % 251) + (i < fork ? 0 : 1000 * other));
  }
  return ids;
}

// A cache with a "model" whose key at a position is a number made of all ids up to it.
class Cache {
 public:
  Cache(std::string_view layers, int64_t window, const RunnerOptions& options,
        BackendKind backend = BackendKind::kRef)
      : config_(config_of(layers, window)), options_(options) {
    EngineOptions engine;
    engine.backend = backend;
    engine.num_threads = 1;
    backend_ = std::move(runtime::make_backend(engine)).value();
    cache_ = std::move(KvCache::create(config_, *backend_.backend, options)).value();
  }

  KvCache& operator*() { return *cache_; }
  KvCache* operator->() { return cache_.get(); }
  const model::TextConfig& config() const { return config_; }
  const ops::Backend& backend() const { return *backend_.backend; }

  // Rows [begin, end), chunk after chunk.
  bool compute(int sequence, const std::vector<int32_t>& ids, int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; at += kChunk) {
      const int64_t stop = std::min(end, at + kChunk);
      if (!cache_->reserve(sequence, at, stop)) return false;
      cache_->upload_tables();
      expect_seen(sequence, ids, at);
      for (size_t layer = 0; layer < config_.layers.size(); ++layer) {
        for (int64_t p = at; p < stop; ++p) key(layer, sequence, p) = tag(layer, ids, p);
      }
    }
    return true;
  }
  // A row at `position` finds what it sees.
  void expect_seen(int sequence, const std::vector<int32_t>& ids, int64_t position) {
    cache_->upload_tables();
    for (size_t layer = 0; layer < config_.layers.size(); ++layer) {
      const int64_t window = config_.layers[layer].sliding_window;
      const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, position - window + 1);
      for (int64_t p = first; p < position; ++p) {
        ASSERT_GE(entry(layer, sequence, p / kTokens), 0) << "layer " << layer << " at " << p;
        ASSERT_EQ(key(layer, sequence, p), tag(layer, ids, p)) << "layer " << layer << " at " << p;
      }
    }
  }
  int32_t entry(size_t layer, int sequence, int64_t block) const {
    const tensor::TensorView& table = cache_->views()[layer].block_table;
    return table.as<int32_t>()[sequence * table.stride[0] + block];
  }
  uint64_t& key(size_t layer, int sequence, int64_t position) {
    return block(layer, entry(layer, sequence, position / kTokens))[position % kTokens];
  }
  uint64_t* block(size_t layer, int32_t number) const {
    const ops::KvView& view = cache_->views()[layer];
    const size_t bytes = backend_.backend->kv_block_bytes(view.layout);
    return reinterpret_cast<uint64_t*>(static_cast<char*>(view.blocks) +
                                       static_cast<size_t>(number) * bytes);
  }
  // Blocks in the rows of these sequences, each once.
  int64_t num_held(size_t layer, const std::vector<int>& sequences) {
    cache_->upload_tables();
    std::set<int32_t> blocks;
    for (const int sequence : sequences) {
      for (int64_t i = 0; i < cache_->views()[layer].block_table.dim(1); ++i) {
        if (entry(layer, sequence, i) >= 0) blocks.insert(entry(layer, sequence, i));
      }
    }
    return static_cast<int64_t>(blocks.size());
  }

 private:
  // Ids are few and short: what was hashed for one position is needed for the next.
  uint64_t tag(size_t layer, const std::vector<int32_t>& ids, int64_t position) {
    if (hashed_ids_.size() < ids.size() ||
        !std::equal(ids.begin(), ids.end(), hashed_ids_.begin())) {
      hashed_ids_ = ids;
      hashes_.clear();
      uint64_t hash = 1;
      for (const int32_t id : ids) {
        hash = (hash ^ static_cast<uint64_t>(id + 1)) * 0x9E3779B97F4A7C15ULL;
        hash ^= hash >> 29;
        hashes_.push_back(hash);
      }
    }
    return hashes_[static_cast<size_t>(position)] + layer;
  }

  model::TextConfig config_;
  RunnerOptions options_;
  runtime::BackendHandle backend_;
  std::unique_ptr<KvCache> cache_;
  std::vector<int32_t> hashed_ids_;
  std::vector<uint64_t> hashes_;
};

// Fills a fresh sequence, keeps it and closes it.
inline void keep(Cache& cache, const std::vector<int32_t>& ids) {
  const int sequence = cache->open_sequence();
  ASSERT_TRUE(cache.compute(sequence, ids, cache->adopt_prefix(sequence, ids),
                            static_cast<int64_t>(ids.size())));
  cache->keep_prefix(sequence, ids);
  cache->close_sequence(sequence);
}

inline int64_t adopted(Cache& cache, const std::vector<int32_t>& ids) {
  const int sequence = cache->open_sequence();
  const int64_t tokens = cache->adopt_prefix(sequence, ids);
  cache.expect_seen(sequence, ids, tokens);
  cache->close_sequence(sequence);
  return tokens;
}

}  // namespace markbase::testing
