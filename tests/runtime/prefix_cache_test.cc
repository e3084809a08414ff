// The tree of kept prefixes, over pools without memory behind them.
#include "runtime/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "support/allocation_counter.h"

namespace markbase {
namespace {

using runtime::BlockPool;
using runtime::first_block_seen;
using runtime::PrefixCache;

constexpr int64_t kTokens = ops::kKvBlockTokens;

// ids of `blocks` blocks; from block `fork` on those of another text.
std::vector<int32_t> text(int64_t blocks, int64_t fork = 1000, int32_t other = 1) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < blocks * kTokens; ++i) {
    ids.push_back(static_cast<int32_t>(i % 97) + (i < fork * kTokens ? 0 : 1000 * other));
  }
  return ids;
}

// A cache over pools of 40 blocks, and sequences that hold all blocks of what they computed.
class Bench {
 public:
  // windows: of the kinds, 0 for a full one.
  explicit Bench(std::vector<int64_t> windows, int64_t most_borders = 8,
                 uint64_t hash_mask = ~uint64_t{0}, int64_t num_blocks = 40)
      : pools_(windows.size(), BlockPool(num_blocks)),
        windows_(windows),
        cache_(
            kinds(), most_borders,
            [this](size_t kind, int32_t block) { freed_.emplace_back(kind, block); }, hash_mask) {}

  // Takes blocks for all of a text, keeps it and gives the blocks back. Returns them.
  std::vector<std::vector<int32_t>> keep(const std::vector<int32_t>& ids) {
    auto rows = compute(ids);
    keep_rows(ids, rows);
    close(rows);
    return rows;
  }
  std::vector<std::vector<int32_t>> compute(const std::vector<int32_t>& ids) {
    std::vector<std::vector<int32_t>> rows(pools_.size());
    for (size_t k = 0; k < pools_.size(); ++k) {
      for (size_t i = 0; i < ids.size() / kTokens; ++i) rows[k].push_back(pools_[k].take());
    }
    return rows;
  }
  void keep_rows(const std::vector<int32_t>& ids, const std::vector<std::vector<int32_t>>& rows,
                 PrefixCache::Place* place = nullptr) {
    const std::vector<std::span<const int32_t>> spans(rows.begin(), rows.end());
    PrefixCache::Place fresh;
    cache_.keep(ids, spans, place == nullptr ? &fresh : place);
  }
  void close(const std::vector<std::vector<int32_t>>& rows) {
    for (size_t k = 0; k < rows.size(); ++k) {
      for (const int32_t block : rows[k]) pools_[k].drop(block);
    }
  }
  int64_t find(const std::vector<int32_t>& ids, int64_t most = 1000) {
    return cache_.find(ids, std::min<int64_t>(most, static_cast<int64_t>(ids.size()) / kTokens))
        .blocks;
  }
  int64_t num_held(size_t kind) const {
    return pools_[kind].num_blocks() - pools_[kind].num_free();
  }

  PrefixCache& cache() { return cache_; }
  BlockPool& pool(size_t kind) { return pools_[kind]; }
  std::vector<std::pair<size_t, int32_t>>& freed() { return freed_; }

 private:
  std::vector<PrefixCache::Kind> kinds() {
    std::vector<PrefixCache::Kind> kinds;
    for (size_t k = 0; k < pools_.size(); ++k) kinds.push_back({&pools_[k], windows_[k]});
    return kinds;
  }

  std::vector<BlockPool> pools_;
  std::vector<int64_t> windows_;
  std::vector<std::pair<size_t, int32_t>> freed_;
  PrefixCache cache_;
};

// What is inside the window before a border, counted position by position.
TEST(PrefixCache, FirstBlockSeenIsThatOfTheFirstVisiblePosition) {
  for (const int64_t window : {1, 2, 20, 63, 64, 65, 66, 128, 129, 130, 512}) {
    for (int64_t blocks = 0; blocks < 20; ++blocks) {
      const int64_t position = std::max<int64_t>(0, blocks * kTokens - window + 1);
      EXPECT_EQ(first_block_seen(blocks, window), std::min(blocks, position / kTokens))
          << window << " " << blocks;
    }
  }
  EXPECT_EQ(first_block_seen(7, 0), 0);
}

TEST(PrefixCache, FindsTheDeepestBorderWithinTheLimit) {
  Bench bench({0, 100});
  EXPECT_EQ(bench.find(text(5)), 0);
  bench.keep(text(3));
  bench.keep(text(5));
  EXPECT_EQ(bench.find(text(9)), 5);
  EXPECT_EQ(bench.find(text(5)), 5);
  EXPECT_EQ(bench.find(text(9), 4), 3) << "4 was passed on the way and is no border";
  EXPECT_EQ(bench.find(text(9), 2), 0);
  EXPECT_EQ(bench.cache().num_nodes(), 5);
  EXPECT_EQ(bench.cache().num_borders(), 2);
}

TEST(PrefixCache, OnlyWholeBlocksAreKept) {
  Bench bench({0, 100});
  std::vector<int32_t> ids = text(3);
  ids.resize(ids.size() - 1);
  bench.keep(ids);
  EXPECT_EQ(bench.find(text(3)), 2);
}

// Whatever the hash says: without a bit of it everything is found, and has to be looked at.
TEST(PrefixCache, OneOtherIdAnywhereIsAnotherPrefix) {
  for (const uint64_t hash_mask : {~uint64_t{0}, uint64_t{1}, uint64_t{0}}) {
    Bench bench({0, 100}, 8, hash_mask);
    bench.keep(text(2));
    bench.keep(text(4, 1, 3));
    for (size_t i = 0; i < 2 * kTokens; ++i) {
      std::vector<int32_t> ids = text(2);
      ids[i] ^= 1;
      EXPECT_EQ(bench.find(ids), 0) << i;
    }
    EXPECT_EQ(bench.find(text(2)), 2);
    EXPECT_EQ(bench.find(text(4, 1, 3)), 4);
    // The same block after another beginning is another prefix.
    bench.keep(text(2, 0, 5));
    std::vector<int32_t> ids = text(1, 0, 5);
    const std::vector<int32_t> whole = text(2);
    ids.insert(ids.end(), whole.begin() + kTokens, whole.end());
    EXPECT_EQ(bench.find(ids), 0);
  }
}

TEST(PrefixCache, ReadsTheBlocksOfABorder) {
  Bench bench({0, 100, 0, 130});
  const auto rows = bench.keep(text(6));
  const auto border = bench.cache().find(text(6), 6);
  const int64_t first[] = {0, 4, 0, 3};
  for (size_t kind = 0; kind < 4; ++kind) {
    std::vector<int32_t> row(10, -7);
    bench.cache().read_row(border, kind, row);
    for (int64_t i = 0; i < 10; ++i) {
      const auto idx = static_cast<size_t>(i);
      EXPECT_EQ(row[idx], i >= first[kind] && i < 6 ? rows[kind][idx] : -7) << kind << " " << i;
    }
    EXPECT_EQ(bench.num_held(kind), 6 - first[kind]);
  }
}

TEST(PrefixCache, WhatIsKeptAlreadyStays) {
  Bench bench({0, 100});
  const auto first = bench.keep(text(3));
  const auto again = bench.compute(text(5));
  bench.keep_rows(text(5), again);
  std::vector<int32_t> row(5);
  bench.cache().read_row(bench.cache().find(text(5), 5), 0, row);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(row[i], i < 3 ? first[0][i] : again[0][i]);
  bench.close(again);
  EXPECT_EQ(bench.num_held(0), 5);
  EXPECT_EQ(bench.num_held(1), 4) << "two windows of two blocks each";
}

TEST(PrefixCache, ANodeOnTheWayBecomesABorderWhenItIsKept) {
  Bench bench({0, 100});
  bench.keep(text(5));
  EXPECT_EQ(bench.find(text(4)), 0);
  bench.keep(text(4));
  EXPECT_EQ(bench.find(text(4)), 4);
  EXPECT_EQ(bench.cache().num_nodes(), 5);
}

TEST(PrefixCache, WithoutSlidingKindsEveryNodeIsABorder) {
  Bench bench({0}, 1);
  bench.keep(text(5));
  bench.keep(text(6, 3));
  EXPECT_EQ(bench.find(text(4)), 4);
  EXPECT_EQ(bench.find(text(9, 3)), 6);
  EXPECT_EQ(bench.find(text(9, 2)), 2);
  EXPECT_EQ(bench.cache().num_nodes(), 8);
}

TEST(PrefixCache, WithSlidingKindsAloneNodesHoldNoBlocks) {
  Bench bench({100, 20});
  bench.keep(text(5));
  EXPECT_EQ(bench.num_held(0), 2);
  EXPECT_EQ(bench.num_held(1), 1);
  EXPECT_EQ(bench.find(text(6)), 5);
  bench.cache().drop_all();
  EXPECT_EQ(bench.num_held(0) + bench.num_held(1), 0);
}

TEST(PrefixCache, NothingIsKeptWithoutBorders) {
  Bench bench({0, 100}, 0);
  bench.keep(text(5));
  EXPECT_EQ(bench.cache().num_nodes(), 0);
  EXPECT_EQ(bench.num_held(0), 0);
}

TEST(PrefixCache, TheBorderNotUsedForLongestMakesWay) {
  Bench bench({0, 100}, 3);
  for (const int32_t other : {1, 2, 3}) bench.keep(text(3, 1, other));
  EXPECT_EQ(bench.find(text(3, 1, 1)), 3);
  bench.keep(text(3, 1, 4));
  EXPECT_EQ(bench.find(text(3, 1, 2)), 0) << "1 was used since";
  for (const int32_t other : {1, 3, 4}) EXPECT_EQ(bench.find(text(3, 1, other)), 3) << other;
  // The first block is that of all three.
  EXPECT_EQ(bench.cache().num_nodes(), 1 + 3 * 2);
  EXPECT_EQ(bench.num_held(0), 1 + 3 * 2);
}

TEST(PrefixCache, OnOnePathTheShallowerBorderMakesWay) {
  Bench bench({0, 100}, 2);
  PrefixCache::Place place;
  const auto rows = bench.compute(text(9));
  for (const int64_t blocks : {2, 4, 9}) bench.keep_rows(text(blocks), rows, &place);
  EXPECT_EQ(place.blocks, 9);
  EXPECT_EQ(bench.find(text(9), 8), 4);
  EXPECT_EQ(bench.find(text(9), 3), 0);
  bench.close(rows);
}

// What a sequence remembers spares the search, as long as it is there.
TEST(PrefixCache, APlaceThatIsGoneIsLookedForAgain) {
  Bench bench({0, 100}, 8);
  PrefixCache::Place place;
  const auto rows = bench.compute(text(6));
  bench.keep_rows(text(4), rows, &place);
  EXPECT_EQ(place.blocks, 4);
  bench.cache().drop_all();
  // Others take the same slots meanwhile.
  bench.keep(text(4, 0, 5));
  bench.keep_rows(text(6), rows, &place);
  EXPECT_EQ(place.blocks, 6);
  EXPECT_EQ(bench.find(text(6)), 6);
  EXPECT_EQ(bench.find(text(6, 0, 5)), 4);
  // A place deeper than what is kept now is of no use.
  bench.keep_rows(text(5, 2, 7), rows, &place);
  EXPECT_EQ(bench.find(text(5, 2, 7)), 5);
  bench.close(rows);
}

TEST(PrefixCache, AFullKindLosesLeavesNotUsedForLongest) {
  Bench bench({0, 100});
  bench.keep(text(3, 1, 1));
  bench.keep(text(3, 1, 2));
  bench.find(text(3, 1, 1));
  ASSERT_TRUE(bench.cache().evict(0));
  // The leaf took its border with it, and the node above served nobody then.
  EXPECT_EQ(bench.find(text(3, 1, 2)), 0);
  EXPECT_EQ(bench.find(text(3, 1, 1)), 3);
  EXPECT_EQ(bench.cache().num_nodes(), 3);
  ASSERT_TRUE(bench.cache().evict(0));
  EXPECT_EQ(bench.cache().num_nodes(), 0);
  EXPECT_EQ(bench.num_held(0) + bench.num_held(1), 0);
  EXPECT_FALSE(bench.cache().evict(0));
}

TEST(PrefixCache, ALeafThatASequenceHoldsGoesLast) {
  Bench bench({0}, 1);
  const auto held = bench.compute(text(3, 1, 1));
  bench.keep_rows(text(3, 1, 1), held);
  bench.keep(text(3, 1, 2));
  EXPECT_EQ(bench.cache().num_evictable(0), 2);
  ASSERT_TRUE(bench.cache().evict(0));
  EXPECT_EQ(bench.find(text(3, 1, 1)), 3);
  EXPECT_EQ(bench.find(text(3, 1, 2)), 2);
  ASSERT_TRUE(bench.cache().evict(0));
  EXPECT_EQ(bench.cache().num_evictable(0), 0);
  EXPECT_EQ(bench.find(text(3, 1, 1)), 3);
  bench.close(held);
  EXPECT_EQ(bench.cache().num_evictable(0), 3);
}

TEST(PrefixCache, ASlidingKindLosesWindows) {
  Bench bench({0, 100});
  bench.keep(text(3));
  bench.keep(text(6));
  bench.find(text(3));
  ASSERT_TRUE(bench.cache().evict(1));
  EXPECT_EQ(bench.find(text(6)), 3);
  EXPECT_EQ(bench.cache().num_nodes(), 3);
  ASSERT_TRUE(bench.cache().evict(1));
  EXPECT_EQ(bench.cache().num_nodes(), 0);
  EXPECT_FALSE(bench.cache().evict(1));
}

TEST(PrefixCache, TellsOfBlocksThatItFreed) {
  Bench bench({0, 100});
  const auto rows = bench.keep(text(2));
  const auto held = bench.compute(text(1, 0, 3));
  bench.keep_rows(text(1, 0, 3), held);
  EXPECT_TRUE(bench.freed().empty());
  bench.cache().drop_all();
  std::sort(bench.freed().begin(), bench.freed().end());
  std::vector<std::pair<size_t, int32_t>> expected;
  for (size_t kind = 0; kind < 2; ++kind) {
    for (const int32_t block : rows[kind]) expected.emplace_back(kind, block);
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(bench.freed(), expected) << "what a sequence holds is not free";
  bench.close(held);
}

TEST(PrefixCache, KnowsWhatItHoldsAlone) {
  Bench bench({0});
  const auto rows = bench.compute(text(2));
  bench.keep_rows(text(2), rows);
  EXPECT_FALSE(bench.cache().is_kept(0, rows[0][0]));
  EXPECT_TRUE(bench.cache().is_kept(0, rows[0][0], 1));
  bench.close(rows);
  EXPECT_TRUE(bench.cache().is_kept(0, rows[0][0]));
  EXPECT_FALSE(bench.cache().is_kept(0, rows[0][1] + 1)) << "a free one";
}

TEST(PrefixCache, FindingAndEvictingAllocateNothing) {
  if (!testing::AllocationCounter::available())
    GTEST_SKIP() << "allocations cannot be counted here";
  Bench bench({0, 100});
  for (const int32_t other : {1, 2, 3, 4}) bench.keep(text(6, 2, other));
  bench.freed().reserve(1000);
  const std::vector<int32_t> ids = text(6, 2, 3);
  std::vector<int32_t> row(6);
  const testing::AllocationCounter counter;
  const PrefixCache::Place border = bench.cache().find(ids, 6);
  bench.cache().read_row(border, 0, row);
  while (bench.cache().evict(0)) {
  }
  EXPECT_EQ(counter.count(), 0);
  EXPECT_EQ(border.blocks, 6);
}

TEST(PrefixCache, EntriesNameEverythingParentsFirst) {
  Bench bench({0, 100});
  const auto rows = bench.keep(text(3));
  bench.keep(text(5, 2, 9));
  const auto entries = bench.cache().entries();
  ASSERT_EQ(entries.size(), 6U);
  int borders = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_LT(entries[i].parent, static_cast<int32_t>(i));
    EXPECT_EQ(entries[i].blocks.size(), 1U);
    EXPECT_EQ(entries[i].windows.size(), entries[i].is_border ? 2U : 0U);
    borders += entries[i].is_border ? 1 : 0;
  }
  EXPECT_EQ(borders, 2);
  EXPECT_TRUE(std::equal(entries[0].ids.begin(), entries[0].ids.end(), text(1).begin()));
  EXPECT_EQ(entries[0].blocks[0], rows[0][0]);
}

}  // namespace
}  // namespace markbase
