#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

namespace markbase::base {
namespace {

// Runs one job and expects every chunk exactly once, by threads of the pool.
void expect_each_once(ThreadPool& pool, int64_t num_chunks) {
  std::vector<std::atomic<int>> times(static_cast<size_t>(num_chunks));
  std::atomic<int> bad_threads{0};
  pool.run(num_chunks, [&](int64_t chunk, int thread_idx) {
    times[static_cast<size_t>(chunk)].fetch_add(1, std::memory_order_relaxed);
    if (thread_idx < 0 || thread_idx >= pool.num_threads()) bad_threads.fetch_add(1);
  });
  EXPECT_EQ(bad_threads.load(), 0);
  for (int64_t i = 0; i < num_chunks; ++i) {
    ASSERT_EQ(times[static_cast<size_t>(i)].load(), 1) << "chunk " << i << " of " << num_chunks;
  }
}

class ThreadPoolSizes : public testing::TestWithParam<int> {};

TEST_P(ThreadPoolSizes, EveryChunkExactlyOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.num_threads(), GetParam());
  for (const int64_t num_chunks : {0, 1, 2, 3, 5, 63, 64, 65, 1000}) {
    for (int round = 0; round < 5; ++round) expect_each_once(pool, num_chunks);
  }
}

// 64 threads on few cores too: none waits for one that the system holds up.
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolSizes, testing::Values(1, 2, 3, 4, 7, 8, 16, 33, 64));

TEST(ThreadPool, ManySmallJobs) {
  ThreadPool pool(8);
  int64_t total = 0;
  for (int round = 0; round < 3000; ++round) {
    // Plain memory: the end of a job makes what its threads wrote visible to the caller.
    int64_t values[9] = {};
    pool.run(9, [&](int64_t chunk, int) { values[chunk] = chunk + round; });
    for (const int64_t value : values) total += value;
  }
  EXPECT_EQ(total, int64_t{3000} * 36 + int64_t{9} * 3000 * 2999 / 2);
}

TEST(ThreadPool, SleepersWakeAgain) {
  ThreadPool pool(4);
  for (int round = 0; round < 5; ++round) {
    expect_each_once(pool, 100);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

TEST(ThreadPool, UnevenChunksAreStolen) {
  ThreadPool pool(4);
  std::atomic<int> done{0};
  pool.run(40, [&](int64_t chunk, int) {
    if (chunk < 10) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    done.fetch_add(1);
  });
  EXPECT_EQ(done.load(), 40);
}

TEST(ThreadPool, ThreadIndicesAreNotShared) {
  ThreadPool pool(6);
  std::vector<std::atomic<int>> inside(6);
  std::atomic<int> clashes{0};
  for (int round = 0; round < 50; ++round) {
    pool.run(60, [&](int64_t, int thread_idx) {
      auto& mine = inside[static_cast<size_t>(thread_idx)];
      if (mine.fetch_add(1) != 0) clashes.fetch_add(1);
      std::this_thread::yield();
      mine.fetch_sub(1);
    });
  }
  EXPECT_EQ(clashes.load(), 0);
}

TEST(ThreadPool, StartsAndStopsWithoutAJob) {
  for (int i = 0; i < 20; ++i) ThreadPool pool(1 + i % 9);
}

TEST(ThreadPool, PoolsAreIndependent) {
  ThreadPool a(3);
  ThreadPool b(3);
  std::thread other([&] {
    for (int i = 0; i < 100; ++i) expect_each_once(b, 30);
  });
  for (int i = 0; i < 100; ++i) expect_each_once(a, 30);
  other.join();
}

TEST(ThreadPool, DefaultIsWithinTheLimits) {
  EXPECT_GE(default_num_threads(), 1);
  EXPECT_LE(default_num_threads(), 256);
}

TEST(ThreadPoolDeathTest, SizesOutsideTheLimitsAreOurMistake) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(ThreadPool(0), "internal error");
  EXPECT_DEATH(ThreadPool(257), "internal error");
}

}  // namespace
}  // namespace markbase::base
