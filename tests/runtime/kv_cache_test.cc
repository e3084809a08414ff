// Blocks of sequences and of kept prefixes, over a backend's memory: each rule, and files of them.
#include "runtime/kv_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/allocation_counter.h"
#include "support/tagged_cache.h"
#include "support/temp_dir.h"

namespace markbase {
namespace {

using runtime::KvCache;
using runtime::RunnerOptions;
using testing::adopted;
using testing::Cache;
using testing::ids_of;
using testing::kChunk;
using testing::kContext;
using testing::keep;
using testing::kTokens;
using testing::options_for;

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
  EXPECT_EQ(saved.error().code, ErrorCode::kUsage);
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

}  // namespace
}  // namespace markbase
