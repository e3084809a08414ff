// Block numbers counted by who holds them.
#include "runtime/block_pool.h"

#include <gtest/gtest.h>

#include <map>

#include "support/allocation_counter.h"
#include "support/random.h"

namespace markbase {
namespace {

using runtime::BlockPool;

TEST(BlockPool, HandsOutLowNumbersFirst) {
  BlockPool pool(3);
  EXPECT_EQ(pool.num_blocks(), 3);
  EXPECT_EQ(pool.num_free(), 3);
  for (const int32_t expected : {0, 1, 2}) EXPECT_EQ(pool.take(), expected);
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_TRUE(pool.drop(1));
  EXPECT_EQ(pool.take(), 1) << "a block that was used already comes first";
}

TEST(BlockPool, IsFreeWhenItsLastHolderIsGone) {
  BlockPool pool(2);
  const int32_t block = pool.take();
  pool.hold(block);
  pool.hold(block);
  EXPECT_EQ(pool.num_holders(block), 3);
  EXPECT_FALSE(pool.drop(block));
  EXPECT_FALSE(pool.drop(block));
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_TRUE(pool.drop(block));
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(pool.num_holders(block), 0);
}

TEST(BlockPoolDeathTest, RefusesWhatIsNotHeld) {
  BlockPool pool(1);
  EXPECT_DEATH(pool.hold(0), "holders");
  EXPECT_DEATH(pool.drop(0), "holders");
  pool.take();
  EXPECT_DEATH(pool.take(), "free");
}

TEST(BlockPool, CountsAsAMapDoes) {
  constexpr int64_t kBlocks = 20;
  BlockPool pool(kBlocks);
  std::map<int32_t, int64_t> holders;
  testing::Random random(1);
  const auto any = [&] {
    return std::next(holders.begin(), random.below(static_cast<int64_t>(holders.size())))->first;
  };
  for (int i = 0; i < 20000; ++i) {
    const int64_t choice = random.below(5);
    if (choice < 2 && pool.num_free() > 0) {
      const int32_t block = pool.take();
      ASSERT_TRUE(block >= 0 && block < kBlocks);
      ASSERT_TRUE(holders.emplace(block, 1).second) << "a block that is held";
    } else if (choice == 2 && !holders.empty()) {
      const int32_t block = any();
      pool.hold(block);
      ++holders[block];
    } else if (!holders.empty()) {
      const int32_t block = any();
      const bool last = --holders[block] == 0;
      if (last) holders.erase(block);
      ASSERT_EQ(pool.drop(block), last);
    }
    ASSERT_EQ(pool.num_free(), kBlocks - static_cast<int64_t>(holders.size()));
    for (int32_t block = 0; block < kBlocks; ++block) {
      ASSERT_EQ(pool.num_holders(block), holders.contains(block) ? holders[block] : 0);
    }
  }
}

TEST(BlockPool, AllocatesNothingLater) {
  if (!testing::AllocationCounter::available())
    GTEST_SKIP() << "allocations cannot be counted here";
  BlockPool pool(100);
  const testing::AllocationCounter counter;
  for (int pass = 0; pass < 3; ++pass) {
    while (pool.num_free() > 0) pool.take();
    for (int32_t block = 0; block < 100; ++block) pool.drop(block);
  }
  EXPECT_EQ(counter.count(), 0);
}

}  // namespace
}  // namespace markbase
