// Blocks of sequences and of kept prefixes, over a backend's memory. What a row sees is written and
// read back position by position, so that a block in the wrong place, freed too early or written
// twice is noticed whatever its number.
#include "runtime/kv_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "runtime/backend_factory.h"
#include "support/allocation_counter.h"
#include "support/random.h"
#include "support/temp_dir.h"

namespace markbase {
namespace {

using runtime::KvCache;
using runtime::RunnerOptions;

constexpr int64_t kTokens = ops::kKvBlockTokens;
constexpr int64_t kContext = 640;
constexpr int64_t kChunk = 100;

// Layers "SFSF...": sliding or full; 's': those of another window.
model::TextConfig config_of(std::string_view layers, int64_t window) {
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

RunnerOptions options_for(int64_t sequences, int64_t kept_windows, int64_t pool_tokens = 0) {
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

std::vector<int32_t> ids_of(int64_t count, int64_t fork = kContext, int32_t other = 1) {
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
void keep(Cache& cache, const std::vector<int32_t>& ids) {
  const int sequence = cache->open_sequence();
  ASSERT_TRUE(cache.compute(sequence, ids, cache->adopt_prefix(sequence, ids),
                            static_cast<int64_t>(ids.size())));
  cache->keep_prefix(sequence, ids);
  cache->close_sequence(sequence);
}

int64_t adopted(Cache& cache, const std::vector<int32_t>& ids) {
  const int sequence = cache->open_sequence();
  const int64_t tokens = cache->adopt_prefix(sequence, ids);
  cache.expect_seen(sequence, ids, tokens);
  cache->close_sequence(sequence);
  return tokens;
}

TEST(KvCache, MemoryIsPoolsAndTables) {
  constexpr int64_t kSequences = 3;
  constexpr int64_t kKept = 4;
  const RunnerOptions options = options_for(kSequences, kKept, 1000);
  Cache cache("SFSs", 100, options);
  const auto bytes = cache.backend().kv_block_bytes({ops::KvType::kF32, 1, 1});
  // 1000 tokens are 16 blocks. A window of 100 touches 2 blocks before a border, a chunk of 100
  // that begins anywhere 3 more; a window of 200 touches 4 before. Kept: 2 + 1 and 4 + 1 blocks.
  const uint64_t full = 16;
  const uint64_t sliding = kSequences * (2 + 3) + kKept * (2 + 1);
  const uint64_t wide = kSequences * (4 + 3) + kKept * (4 + 1);
  const uint64_t tables = 3 * kSequences * (kContext / kTokens) * sizeof(int32_t);
  EXPECT_EQ(KvCache::bytes(cache.config(), cache.backend(), options),
            bytes * (full + 2 * sliding + wide) + tables);
  EXPECT_EQ(cache->usage().num_blocks, static_cast<int64_t>(full + sliding + wide));
}

TEST(KvCache, AFullPoolHoldsAContextAndNoMoreThanAllOfThem) {
  const auto blocks = [](int64_t pool_tokens) {
    return Cache("F", 0, options_for(3, 0, pool_tokens))->usage().num_blocks;
  };
  EXPECT_EQ(blocks(0), 30);
  EXPECT_EQ(blocks(1), 10);
  EXPECT_EQ(blocks(641), 11);
  EXPECT_EQ(blocks(1 << 20), 30);
}

TEST(KvCache, ASlidingLayerNeverHoldsMoreThanTheContext) {
  RunnerOptions options = options_for(2, 0);
  options.context_tokens = 70;
  EXPECT_EQ(Cache("S", 500, options)->usage().num_blocks, 2 * 2);
}

TEST(KvCache, AFullLayerHoldsAllAndASlidingOneTheWindowOfTheBorder) {
  for (const int64_t window : {1, 20, 64, 65, 66, 100, 200}) {
    Cache cache("SF", window, options_for(1, 0));
    const std::vector<int32_t> ids = ids_of(kContext);
    const int sequence = cache->open_sequence();
    for (int64_t position = 0; position < kContext; ++position) {
      ASSERT_TRUE(cache.compute(sequence, ids, position, position + 1));
      const int64_t border = position / kTokens * kTokens;
      const int64_t seen = std::max<int64_t>(0, border - window + 1) / kTokens;
      for (int64_t block = 0; block < kContext / kTokens; ++block) {
        const bool written = block <= position / kTokens;
        ASSERT_EQ(cache.entry(1, sequence, block) >= 0, written);
        ASSERT_EQ(cache.entry(0, sequence, block) >= 0, written && block >= seen)
            << window << " " << position << " " << block;
      }
    }
    cache->close_sequence(sequence);
    EXPECT_EQ(cache->usage().used, 0);
  }
}

TEST(KvCache, AChunkAnywhereFindsRoomInASlidingPool) {
  for (const int64_t window : {1, 64, 65, 100}) {
    for (int64_t begin = 0; begin < 130; ++begin) {
      Cache cache("S", window, options_for(1, 0));
      const std::vector<int32_t> ids = ids_of(kContext);
      const int sequence = cache->open_sequence();
      ASSERT_TRUE(cache.compute(sequence, ids, 0, begin));
      ASSERT_TRUE(cache.compute(sequence, ids, begin, kContext)) << window << " " << begin;
    }
  }
}

TEST(KvCache, SequencesAreRowsThatAreFree) {
  Cache cache("SF", 20, options_for(2, 0));
  EXPECT_EQ(cache->open_sequence(), 0);
  EXPECT_EQ(cache->open_sequence(), 1);
  EXPECT_EQ(cache->open_sequence(), -1);
  cache->close_sequence(0);
  EXPECT_EQ(cache->open_sequence(), 0);
}

TEST(KvCache, RefusalChangesNothing) {
  // 12 blocks for two sequences of up to 10.
  Cache cache("SF", 100, options_for(2, 0, 12 * kTokens));
  const std::vector<int32_t> ids = ids_of(kContext);
  const int a = cache->open_sequence();
  const int b = cache->open_sequence();
  ASSERT_TRUE(cache.compute(a, ids, 0, 7 * kTokens));
  ASSERT_TRUE(cache.compute(b, ids, 0, 5 * kTokens));
  const auto before = cache->usage();
  // The sliding layer would give blocks back.
  EXPECT_FALSE(cache->reserve(b, 5 * kTokens, 5 * kTokens + 1));
  EXPECT_EQ(cache->usage().used, before.used);
  cache.expect_seen(b, ids, 5 * kTokens);
  cache->close_sequence(a);
  EXPECT_TRUE(cache.compute(b, ids, 5 * kTokens, kContext));
}

TEST(KvCache, KeptPrefixesMakeWayOldestFirstAndOnlyWhereNeeded) {
  Cache cache("F", 0, options_for(1, 1));
  keep(cache, ids_of(4 * kTokens));
  keep(cache, ids_of(4 * kTokens, 0, 2));
  EXPECT_EQ(cache->usage().kept, 8);
  EXPECT_EQ(adopted(cache, ids_of(kContext)), 4 * kTokens);  // used last
  const int sequence = cache->open_sequence();
  const std::vector<int32_t> ids = ids_of(kContext, 0, 3);
  ASSERT_TRUE(cache.compute(sequence, ids, 0, 2 * kTokens));
  EXPECT_EQ(cache->usage().kept, 8) << "there was room";
  ASSERT_TRUE(cache.compute(sequence, ids, 2 * kTokens, 3 * kTokens));
  EXPECT_EQ(cache->usage().kept, 7);
  ASSERT_TRUE(cache.compute(sequence, ids, 3 * kTokens, 6 * kTokens));
  EXPECT_EQ(cache->usage().kept, 4);
  cache->close_sequence(sequence);
  EXPECT_EQ(adopted(cache, ids_of(kContext, 0, 2)), 0);
  EXPECT_EQ(adopted(cache, ids_of(kContext)), 4 * kTokens);
}

TEST(KvCache, AFreedBlockIsOverwritten) {
  Cache cache("SF", 100, options_for(1, 2));
  const std::vector<int32_t> ids = ids_of(3 * kTokens);
  const int sequence = cache->open_sequence();
  ASSERT_TRUE(cache.compute(sequence, ids, 0, 3 * kTokens));
  std::vector<uint64_t*> blocks;
  for (size_t layer = 0; layer < 2; ++layer) {
    for (int64_t i = 1; i < 3; ++i) blocks.push_back(cache.block(layer, cache.entry(layer, 0, i)));
  }
  cache->keep_prefix(sequence, ids);
  cache->close_sequence(sequence);
  for (const uint64_t* block : blocks) EXPECT_NE(block[5], ~uint64_t{0}) << "kept";
  cache->drop_prefixes();
  for (const uint64_t* block : blocks) {
    EXPECT_TRUE(std::all_of(block, block + kTokens, [](uint64_t x) { return x == ~uint64_t{0}; }));
  }
}

TEST(KvCache, APrefixIsKeptAtTheBorderUntilTheNextReserve) {
  for (const int64_t window : {20, 64, 65, 100, 300}) {
    for (const int64_t end : {64, 65, 200, 255, 256, 257}) {
      Cache cache("SFs", window, options_for(2, 2));
      const std::vector<int32_t> ids = ids_of(kContext);
      const int sequence = cache->open_sequence();
      ASSERT_TRUE(cache.compute(sequence, ids, 0, end));
      cache->keep_prefix(sequence, std::span(ids).first(static_cast<size_t>(end)));
      ASSERT_TRUE(cache.compute(sequence, ids, end, kContext));
      cache->close_sequence(sequence);
      EXPECT_EQ(adopted(cache, ids), end / kTokens * kTokens) << window;
    }
  }
}

TEST(KvCache, APrefixWhoseWindowIsGoneIsNotKept) {
  Cache cache("SF", 20, options_for(1, 2));
  const std::vector<int32_t> ids = ids_of(kContext);
  const int sequence = cache->open_sequence();
  ASSERT_TRUE(cache.compute(sequence, ids, 0, 400));
  cache->keep_prefix(sequence, std::span(ids).first(128));
  cache->close_sequence(sequence);
  EXPECT_EQ(cache->usage().kept, 0);
  EXPECT_EQ(adopted(cache, ids), 0);
}

// Its own copies of what is kept already may be written anew; what it kept before does not count
// for other ids then.
TEST(KvCache, RowsWrittenAnewAreAnotherPrefix) {
  Cache cache("SF", 20, options_for(2, 4));
  const std::vector<int32_t> ids = ids_of(256);
  keep(cache, ids);
  const int sequence = cache->open_sequence();
  ASSERT_TRUE(cache.compute(sequence, ids, 0, 256));
  cache->keep_prefix(sequence, ids);
  const std::vector<int32_t> others = ids_of(256, 200, 2);
  ASSERT_TRUE(cache.compute(sequence, others, 200, 256));
  cache->keep_prefix(sequence, others);
  cache->close_sequence(sequence);
  EXPECT_EQ(adopted(cache, ids_of(kContext)), 256);
  EXPECT_EQ(adopted(cache, ids_of(kContext, 200, 2)), 256);
}

TEST(KvCache, TheLastIdIsLeftToCompute) {
  Cache cache("F", 0, options_for(1, 1));
  keep(cache, ids_of(3 * kTokens));
  EXPECT_EQ(adopted(cache, ids_of(3 * kTokens + 1)), 3 * kTokens);
  EXPECT_EQ(adopted(cache, ids_of(3 * kTokens)), 2 * kTokens);
  EXPECT_EQ(adopted(cache, ids_of(1)), 0);
  EXPECT_EQ(adopted(cache, {}), 0);
}

TEST(KvCache, SharedBlocksOutliveTheirFirstHolder) {
  for (const int64_t window : {20, 64, 100, 300}) {
    Cache cache("SFs", window, options_for(3, 0));
    const std::vector<int32_t> ids = ids_of(kContext, 300);
    const std::vector<int32_t> others = ids_of(kContext, 300, 2);
    const int a = cache->open_sequence();
    const int b = cache->open_sequence();
    const int c = cache->open_sequence();
    ASSERT_TRUE(cache.compute(a, ids, 0, 300));
    EXPECT_EQ(cache->share(a, b, 300), 256);
    EXPECT_EQ(cache->share(a, c, 30), 0) << "nothing whole";
    EXPECT_EQ(cache.num_held(1, {a, b}), 5) << "none is copied";
    ASSERT_TRUE(cache.compute(b, others, 256, 400));
    ASSERT_TRUE(cache.compute(a, ids, 300, 500));
    cache.expect_seen(b, others, 400);
    cache->close_sequence(a);
    ASSERT_TRUE(cache.compute(b, others, 400, kContext));
    EXPECT_EQ(cache->share(b, c, 300), 0) << "the window there is gone";
    cache->close_sequence(b);
    EXPECT_EQ(cache->usage().used, 0);
  }
}

// A sequence that shares less than was kept of the other one goes its own way from there.
TEST(KvCache, WhatIsKeptBeyondTheSharedBorderIsNotTheOthers) {
  Cache cache("SF", 20, options_for(2, 4));
  const std::vector<int32_t> ids = ids_of(256);
  const std::vector<int32_t> others = ids_of(320, 200, 2);
  const int a = cache->open_sequence();
  const int b = cache->open_sequence();
  ASSERT_TRUE(cache.compute(a, ids, 0, 256));
  cache->keep_prefix(a, ids);
  ASSERT_EQ(cache->share(a, b, 200), 192);
  ASSERT_TRUE(cache.compute(b, others, 192, 320));
  cache->keep_prefix(b, others);
  cache->close_sequence(a);
  EXPECT_EQ(adopted(cache, ids_of(kContext, 200, 2)), 320);
  EXPECT_EQ(adopted(cache, ids_of(kContext)), 256);
}

TEST(KvCache, ShareOfPoolIsThatOfTheKindUsedUpFirst) {
  Cache cache("SF", 20, options_for(2, 0, 12 * kTokens));
  EXPECT_DOUBLE_EQ(cache->share_of_pool(0), 0.0);
  EXPECT_DOUBLE_EQ(cache->share_of_pool(6 * kTokens), 0.5);
  EXPECT_DOUBLE_EQ(cache->share_of_pool(1), 1.0 / 8);  // a sliding pool of 2 * (1 + 3) blocks
  EXPECT_GT(cache->share_of_pool(13 * kTokens), 1.0);
}

TEST(KvCacheDeathTest, RefusesWhatWouldReadOrWriteWrongKeys) {
  Cache cache("SF", 20, options_for(2, 2));
  const std::vector<int32_t> ids = ids_of(kContext);
  const int a = cache->open_sequence();
  EXPECT_DEATH(cache->reserve(a, 100, 120), "never there");
  EXPECT_DEATH(cache->reserve(a, 0, kChunk + 1), "chunk");
  EXPECT_DEATH(cache->reserve(a, 600, 641), "context");
  EXPECT_DEATH(cache->keep_prefix(a, ids), "not computed");
  ASSERT_TRUE(cache.compute(a, ids, 0, 400));
  EXPECT_DEATH(cache->reserve(a, 100, 110), "given back");
  cache->keep_prefix(a, std::span(ids).first(400));
  EXPECT_DEATH(cache->reserve(a, 383, 390), "overwrite");
  EXPECT_DEATH(cache->adopt_prefix(a, ids), "fresh");
}

TEST(KvCache, StepsAllocateNothingEvenWherePrefixesMakeWay) {
  if (!testing::AllocationCounter::available())
    GTEST_SKIP() << "allocations cannot be counted here";
  Cache cache("SF", 100, options_for(2, 8, kContext));
  for (const int32_t other : {1, 2}) keep(cache, ids_of(4 * kTokens, 64, other));
  ASSERT_EQ(adopted(cache, ids_of(kContext, 64, 2)), 4 * kTokens);
  const int kept = static_cast<int>(cache->usage().kept);
  const int sequence = cache->open_sequence();
  bool ok = true;
  {
    const testing::AllocationCounter counter;
    for (int64_t at = 0; at < kContext; at += 10) {
      ok = cache->reserve(sequence, at, at + 10) && ok;
      cache->upload_tables();
    }
    cache->close_sequence(sequence);
    EXPECT_EQ(counter.count(), 0);
  }
  EXPECT_TRUE(ok);
  EXPECT_LT(cache->usage().kept, kept);
}

// --- files ---

constexpr uint64_t kModel = 0x1234567890ABCDEFULL;

class PrefixFiles : public ::testing::Test {
 protected:
  std::string error_of(Cache& cache, uint64_t model = kModel) {
    const auto restored = cache->restore_prefixes(path_, model);
    EXPECT_EQ(cache->usage().kept + cache->usage().used, 0);
    if (restored.ok()) return "none";
    EXPECT_EQ(restored.error().code, ErrorCode::kBadInput);
    EXPECT_EQ(restored.error().message.find(path_), 0U) << restored.error().message;
    return restored.error().message;
  }
  std::string read_all() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write_all(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }

  testing::TempDir folder_;
  std::string path_ = folder_.file("prefixes");
};

TEST_F(PrefixFiles, BringBackWhatWasKept) {
  for (const char* layers : {"SFs", "F", "S", "FSFSs"}) {
    for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
      Cache cache(layers, 100, options_for(2, 6), BackendKind::kRef);
      keep(cache, ids_of(300));
      keep(cache, ids_of(500, 130, 2));
      keep(cache, ids_of(600, 130, 2));
      const auto saved = cache->save_prefixes(path_, kModel);
      ASSERT_TRUE(saved.ok()) << saved.error().message;
      // Blocks of 4 + (9 - 2) nodes; the first two are common.
      EXPECT_EQ(*saved, (4 + 7) * kTokens);
      EXPECT_FALSE(std::filesystem::exists(path_ + ".part"));
      Cache fresh(layers, 100, options_for(2, 6), backend);
      const auto restored = fresh->restore_prefixes(path_, kModel);
      if (backend == BackendKind::kCpu) {
        ASSERT_FALSE(restored.ok());
        EXPECT_NE(restored.error().message.find("another kind of cache"), std::string::npos);
        continue;
      }
      ASSERT_TRUE(restored.ok()) << restored.error().message;
      EXPECT_EQ(*restored, *saved);
      EXPECT_EQ(fresh->usage().kept, cache->usage().kept);
      EXPECT_EQ(fresh->usage().used, 0);
      EXPECT_EQ(adopted(fresh, ids_of(kContext)), 256);
      EXPECT_EQ(adopted(fresh, ids_of(kContext, 130, 2)), 576);
      EXPECT_EQ(*fresh->restore_prefixes(path_, kModel), 0) << "all is there already";
      EXPECT_EQ(fresh->usage().kept, cache->usage().kept);
      fresh->drop_prefixes();
      EXPECT_EQ(fresh->usage().kept, 0);
    }
  }
}

TEST_F(PrefixFiles, TakeWhatFindsRoomUsedLastFirst) {
  Cache cache("SF", 100, options_for(2, 6));
  for (const int32_t other : {1, 2, 3}) keep(cache, ids_of(256, 0, other));
  EXPECT_EQ(adopted(cache, ids_of(300, 0, 1)), 256);
  ASSERT_TRUE(cache->save_prefixes(path_, kModel).ok());
  Cache two_borders("SF", 100, options_for(2, 2));
  EXPECT_EQ(*two_borders->restore_prefixes(path_, kModel), 2 * 256);
  EXPECT_EQ(adopted(two_borders, ids_of(300, 0, 1)), 256);
  EXPECT_EQ(adopted(two_borders, ids_of(300, 0, 2)), 0);
  EXPECT_EQ(adopted(two_borders, ids_of(300, 0, 3)), 256);
  Cache few_blocks("SF", 100, options_for(1, 6));
  EXPECT_EQ(*few_blocks->restore_prefixes(path_, kModel), 2 * 256) << "10 blocks";
  Cache nothing("SF", 100, options_for(1, 0));
  EXPECT_EQ(*nothing->restore_prefixes(path_, kModel), 0);
  EXPECT_EQ(nothing->usage().kept, 0);
}

TEST_F(PrefixFiles, AddToWhatIsThere) {
  Cache cache("SF", 100, options_for(2, 6));
  keep(cache, ids_of(300));
  ASSERT_TRUE(cache->save_prefixes(path_, kModel).ok());
  Cache other("SF", 100, options_for(2, 6));
  keep(other, ids_of(500, 200, 2));
  EXPECT_EQ(*other->restore_prefixes(path_, kModel), kTokens) << "three of the blocks were there";
  EXPECT_EQ(adopted(other, ids_of(kContext)), 256);
  EXPECT_EQ(adopted(other, ids_of(kContext, 200, 2)), 448);
}

TEST_F(PrefixFiles, AnEmptyCacheIsAFileToo) {
  Cache cache("SF", 100, options_for(2, 6));
  EXPECT_EQ(*cache->save_prefixes(path_, kModel), 0);
  EXPECT_EQ(error_of(cache), "none");
}

TEST_F(PrefixFiles, OfSomethingElseAreRefused) {
  Cache cache("SF", 100, options_for(2, 6));
  keep(cache, ids_of(300));
  ASSERT_TRUE(cache->save_prefixes(path_, kModel).ok());
  cache->drop_prefixes();
  EXPECT_NE(error_of(cache, kModel + 1).find("another model"), std::string::npos);
  RunnerOptions f16 = options_for(2, 6);
  f16.kv = ops::KvType::kF16;
  Cache of_type("SF", 100, f16);
  Cache of_window("SF", 101, options_for(2, 6));
  Cache of_layers("FS", 100, options_for(2, 6));
  for (Cache* other : {&of_type, &of_window, &of_layers}) {
    EXPECT_NE(error_of(*other).find("another kind of cache"), std::string::npos);
  }
  std::filesystem::remove(path_);
  EXPECT_NE(error_of(cache).find("cannot be opened"), std::string::npos);
  std::filesystem::create_directory(path_);
  EXPECT_NE(error_of(cache).find("expected a plain file"), std::string::npos);
  const auto saved = cache->save_prefixes(path_, kModel);
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().code, ErrorCode::kFailed);
}

TEST_F(PrefixFiles, EveryDamageIsFound) {
  Cache cache("SF", 100, options_for(2, 6));
  keep(cache, ids_of(200));
  keep(cache, ids_of(200, 70, 2));
  ASSERT_TRUE(cache->save_prefixes(path_, kModel).ok());
  cache->drop_prefixes();
  const std::string whole = read_all();
  for (size_t size = 0; size < whole.size(); size += 1 + size / 16) {
    write_all(whole.substr(0, size));
    EXPECT_NE(error_of(cache), "none") << size;
  }
  write_all(whole + "x");
  EXPECT_NE(error_of(cache), "none");
  for (size_t at = 0; at < whole.size(); at += at < 2000 ? 1 : 37) {
    std::string broken = whole;
    broken[at] = static_cast<char>(broken[at] ^ (1 << (at % 8)));
    write_all(broken);
    EXPECT_NE(error_of(cache), "none") << at;
  }
  write_all(whole);
  EXPECT_TRUE(cache->restore_prefixes(path_, kModel).ok());
}

// --- against a reference ---

// What should be kept: borders with the time of their last use.
class KeptModel {
 public:
  KeptModel(bool slides, int64_t most) : slides_(slides), most_(static_cast<size_t>(most)) {}

  int64_t adopt(const std::vector<int32_t>& ids) {
    const Border* best = nullptr;
    for (const Border& border : borders_) {
      if (border.ids.size() < ids.size() && is_prefix(border.ids, ids) &&
          (best == nullptr || best->ids.size() < border.ids.size())) {
        best = &border;
      }
    }
    if (best == nullptr) return 0;
    const auto found = best->ids;
    touch(found);
    return static_cast<int64_t>(found.size());
  }
  void keep(std::vector<int32_t> ids) {
    ids.resize(ids.size() / kTokens * kTokens);
    if (ids.empty()) return;
    // Without windows one can go on anywhere.
    for (size_t size = slides_ ? ids.size() : kTokens; size <= ids.size(); size += kTokens) {
      const std::vector<int32_t> prefix(ids.begin(), ids.begin() + static_cast<int64_t>(size));
      const auto same = [&](const Border& border) { return border.ids == prefix; };
      if (std::none_of(borders_.begin(), borders_.end(), same)) borders_.push_back({prefix, 0});
    }
    touch(ids);
    while (slides_ && borders_.size() > most_) {
      const auto oldest =
          std::min_element(borders_.begin(), borders_.end(), [&](const Border& a, const Border& b) {
            if ((a.ids == ids) != (b.ids == ids)) return b.ids == ids;
            return std::pair(a.last_use, a.ids.size()) < std::pair(b.last_use, b.ids.size());
          });
      borders_.erase(oldest);
    }
  }
  void clear() { borders_.clear(); }

 private:
  struct Border {
    std::vector<int32_t> ids;
    int64_t last_use;
  };
  static bool is_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
    return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
  }
  void touch(const std::vector<int32_t>& ids) {
    ++clock_;
    for (Border& border : borders_) {
      if (is_prefix(border.ids, ids)) border.last_use = clock_;
    }
  }

  bool slides_;
  size_t most_;
  int64_t clock_ = 0;
  std::vector<Border> borders_;
};

struct Sequence {
  int slot = -1;
  std::vector<int32_t> ids;
  int64_t done = 0;
  int64_t last_begin = 0;  // of the last reserve
};

// Random use of a cache. `tight`: the pool holds little more than one context, so that prefixes
// make way and sequences have to wait; otherwise the reference says what is adopted.
class RandomUse {
 public:
  RandomUse(uint64_t seed, const std::string& layers, int64_t window, bool tight)
      : layers_(layers),
        random_(seed),
        tight_(tight),
        slides_(layers.find_first_of("Ss") != std::string::npos),
        options_(options_for(tight ? kRunning : 16, kKept, tight ? kTightBlocks * kTokens : 0)),
        cache_(layers, window, options_),
        kept_(slides_, kKept) {}

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
      SCOPED_TRACE(fmt::format("step {}", i));
      step();
      check_counts();
    }
    while (!running_.empty()) close(0, false);
    check_counts();
    EXPECT_EQ(cache_->usage().used, 0);
    cache_->drop_prefixes();
    EXPECT_EQ(cache_->usage().kept, 0);
    EXPECT_GT(adopted_, 0);
    if (tight_ && layers_.find('F') != std::string::npos) {
      EXPECT_GT(refused_, 0);
    }
  }

 private:
  static constexpr int64_t kRunning = 4;
  static constexpr int64_t kKept = 5;
  static constexpr int64_t kTightBlocks = 13;

  void step() {
    const int64_t choice = random_.below(100);
    if (running_.empty() || (choice < 20 && running_.size() < kRunning)) return open();
    const auto idx = static_cast<size_t>(random_.below(static_cast<int64_t>(running_.size())));
    if (choice < 65) return advance(idx);
    if (choice < 80) return keep(running_[idx]);
    if (choice < 87 && running_.size() < kRunning) return share(running_[idx]);
    if (choice < 99) return close(idx, random_.below(2) == 0);
    const bool full = cache_->usage().kept > cache_->usage().num_blocks / 4;
    if (random_.below(4) == 0 || (!tight_ && full)) drop_prefixes();
  }
  void drop_prefixes() {
    cache_->drop_prefixes();
    kept_.clear();
    EXPECT_EQ(cache_->usage().kept, 0);
  }

  // The beginning of an earlier text, then something else, of few ids so that texts meet again.
  std::vector<int32_t> some_text() {
    std::vector<int32_t> ids;
    if (!texts_.empty() && random_.below(5) != 0) {
      ids = texts_[static_cast<size_t>(random_.below(static_cast<int64_t>(texts_.size())))];
      if (random_.below(3) != 0) ids.resize(static_cast<size_t>(random_.below(kContext + 1)));
    }
    const int64_t length =
        std::max<int64_t>(static_cast<int64_t>(ids.size()), 1 + random_.below(kContext));
    const auto id = static_cast<int32_t>(random_.below(3));
    while (static_cast<int64_t>(ids.size()) < length) ids.push_back(id);
    texts_.push_back(ids);
    if (texts_.size() > 12) texts_.erase(texts_.begin() + random_.below(12));
    return ids;
  }

  void open() {
    Sequence sequence;
    sequence.slot = cache_->open_sequence();
    ASSERT_GE(sequence.slot, 0);
    sequence.ids = some_text();
    sequence.done = cache_->adopt_prefix(sequence.slot, sequence.ids);
    sequence.last_begin = sequence.done;
    EXPECT_EQ(sequence.done % kTokens, 0);
    EXPECT_LT(sequence.done, static_cast<int64_t>(sequence.ids.size()));
    if (!tight_) {
      ASSERT_EQ(sequence.done, kept_.adopt(sequence.ids));
    }
    adopted_ += sequence.done;
    cache_.expect_seen(sequence.slot, sequence.ids, sequence.done);
    running_.push_back(std::move(sequence));
  }
  void advance(size_t idx) {
    Sequence& sequence = running_[idx];
    const int64_t left = static_cast<int64_t>(sequence.ids.size()) - sequence.done;
    if (left == 0) return;
    const int64_t count = std::min(left, random_.below(3) == 0 ? 1 : 1 + random_.below(kChunk));
    const auto before = cache_->usage();
    if (cache_.compute(sequence.slot, sequence.ids, sequence.done, sequence.done + count)) {
      sequence.last_begin = sequence.done;
      sequence.done += count;
      return;
    }
    ++refused_;
    ASSERT_TRUE(tight_);
    EXPECT_EQ(cache_->usage().used, before.used);
    EXPECT_EQ(cache_->usage().kept, before.kept);
    const size_t full = layers_.find('F');
    ASSERT_NE(full, std::string::npos) << "a sliding pool has room for everyone";
    const int64_t wanted =
        (sequence.done + count + kTokens - 1) / kTokens - (sequence.done + kTokens - 1) / kTokens;
    EXPECT_LT(kTightBlocks - cache_.num_held(full, slots()), wanted);
    cache_.expect_seen(sequence.slot, sequence.ids, sequence.done);
    close(idx, random_.below(2) == 0);
  }
  void keep(const Sequence& sequence) {
    const int64_t low = tight_ && random_.below(4) == 0 ? 0 : sequence.last_begin;
    const int64_t count = low + random_.below(sequence.done - low + 1);
    const std::vector<int32_t> ids(sequence.ids.begin(), sequence.ids.begin() + count);
    cache_->keep_prefix(sequence.slot, ids);
    kept_.keep(ids);
  }
  void share(const Sequence& from) {
    Sequence to;
    to.slot = cache_->open_sequence();
    ASSERT_GE(to.slot, 0);
    const int64_t end = from.last_begin + random_.below(from.done - from.last_begin + 1);
    to.ids.assign(from.ids.begin(), from.ids.begin() + end);
    while (static_cast<int64_t>(to.ids.size()) < kContext) to.ids.push_back(7);
    to.done = cache_->share(from.slot, to.slot, end);
    to.last_begin = to.done;
    EXPECT_EQ(to.done, end / kTokens * kTokens);
    cache_.expect_seen(to.slot, to.ids, to.done);
    running_.push_back(std::move(to));
  }
  void close(size_t idx, bool keeps) {
    const Sequence sequence = running_[idx];
    if (keeps) keep(sequence);
    cache_->close_sequence(sequence.slot);
    running_.erase(running_.begin() + static_cast<int64_t>(idx));
  }

  std::vector<int> slots() const {
    std::vector<int> slots;
    for (const Sequence& sequence : running_) slots.push_back(sequence.slot);
    return slots;
  }
  // Blocks in the rows are those that count as used; every sequence still finds what it sees.
  void check_counts() {
    const auto usage = cache_->usage();
    int64_t used = 0;
    std::set<int64_t> windows;
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      if (!windows.insert(cache_.config().layers[layer].sliding_window).second) continue;
      used += cache_.num_held(layer, slots());
    }
    ASSERT_EQ(usage.used, used);
    ASSERT_LE(usage.used + usage.kept, usage.num_blocks);
    if (running_.empty()) return;
    const Sequence& any =
        running_[static_cast<size_t>(random_.below(static_cast<int64_t>(running_.size())))];
    cache_.expect_seen(any.slot, any.ids, any.done);
  }

  std::string layers_;
  testing::Random random_;
  bool tight_;
  bool slides_;
  RunnerOptions options_;
  Cache cache_;
  KeptModel kept_;
  std::vector<Sequence> running_;
  std::vector<std::vector<int32_t>> texts_;
  int64_t adopted_ = 0;
  int64_t refused_ = 0;
};

TEST(KvCache, RandomUseIsAsAReferenceSays) {
  uint64_t seed = 0;
  for (const char* layers : {"SF", "F", "S", "FSFs"}) {
    for (const int64_t window : {20, 64, 100, 200}) {
      for (const bool tight : {false, true}) {
        SCOPED_TRACE(fmt::format("{} window {} tight {}", layers, window, tight));
        RandomUse(++seed, layers, window, tight).run(2000);
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace markbase
