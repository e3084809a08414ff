#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace markbase::base {
namespace {

constexpr int kMaxThreads = 256;
// How long to spin before sleeping: longer than the gap between two ops of a decode step, far
// shorter than a scheduler time slice, so that more threads than cores do not starve each other.
constexpr std::chrono::microseconds kSpinTime{25};
constexpr std::chrono::microseconds kCrowdedSpinTime{1};  // more threads than cores
// Looks between two looks at the clock; a pause takes 10 to 50 ns.
constexpr int kSpinRounds = 16;

inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Spins until `done()` or until the time is over; true when done.
template <typename Done>
bool spin(std::chrono::microseconds time, Done done) {
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    for (int i = 0; i < kSpinRounds; ++i) {
      if (done()) return true;
      cpu_relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// A range of chunks [begin, end) in one atomic word, popped at the front by its owner and stolen
// from the back by others. One cache line each, so that owners do not disturb each other.
struct alignas(64) ChunkRange {
  std::atomic<uint64_t> packed{0};

  static uint64_t pack(uint32_t begin, uint32_t end) { return (uint64_t{begin} << 32) | end; }
  void assign(uint32_t begin, uint32_t end) {
    packed.store(pack(begin, end), std::memory_order_relaxed);
  }

  bool pop_front(uint32_t* chunk) {
    uint64_t word = packed.load(std::memory_order_relaxed);
    for (;;) {
      const auto begin = static_cast<uint32_t>(word >> 32);
      const auto end = static_cast<uint32_t>(word);
      if (begin >= end) return false;
      if (packed.compare_exchange_weak(word, pack(begin + 1, end), std::memory_order_acq_rel)) {
        *chunk = begin;
        return true;
      }
    }
  }
  bool steal_back(uint32_t* chunk) {
    uint64_t word = packed.load(std::memory_order_relaxed);
    for (;;) {
      const auto begin = static_cast<uint32_t>(word >> 32);
      const auto end = static_cast<uint32_t>(word);
      if (begin >= end) return false;
      if (packed.compare_exchange_weak(word, pack(begin, end - 1), std::memory_order_acq_rel)) {
        *chunk = end - 1;
        return true;
      }
    }
  }
};

}  // namespace

struct ThreadPool::State {
  explicit State(int n)
      : num_threads(n),
        num_cores(default_num_threads()),
        spin_time(n <= num_cores ? kSpinTime : kCrowdedSpinTime),
        ranges(static_cast<size_t>(n)) {}

  using Body = FunctionRef<void(int64_t, int)>;

  // The gate: job number << 17 | open bit | number of workers inside. A worker enters only while
  // its job is open, so a worker that the system wakes late never holds up (or touches) a finished
  // job.
  static constexpr uint64_t kOpen = uint64_t{1} << 16;
  static constexpr uint64_t kInsideMask = kOpen - 1;
  static constexpr int kJobShift = 17;

  const int num_threads;
  const int num_cores;
  const std::chrono::microseconds spin_time;
  std::vector<ChunkRange> ranges;
  std::vector<std::thread> workers;
  const Body* body = nullptr;
  std::atomic<uint64_t> gate{0};
  std::atomic<int> num_sleeping{0};
  std::atomic<bool> stopping{false};
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable left;

  void work(int thread_idx) {
    uint32_t chunk;
    while (ranges[static_cast<size_t>(thread_idx)].pop_front(&chunk)) (*body)(chunk, thread_idx);
    for (int i = 1; i < num_threads; ++i) {
      ChunkRange& victim = ranges[static_cast<size_t>((thread_idx + i) % num_threads)];
      while (victim.steal_back(&chunk)) (*body)(chunk, thread_idx);
    }
  }

  bool has_new_job(uint64_t seen_job) const {
    const uint64_t word = gate.load(std::memory_order_seq_cst);
    return (word & kOpen) != 0 && (word >> kJobShift) != seen_job;
  }

  // Returns false when the job was closed before this worker came.
  bool enter(uint64_t* seen_job) {
    uint64_t word = gate.load(std::memory_order_acquire);
    while ((word & kOpen) != 0 && (word >> kJobShift) != *seen_job) {
      if (gate.compare_exchange_weak(word, word + 1, std::memory_order_acq_rel)) {
        *seen_job = word >> kJobShift;
        return true;
      }
    }
    return false;
  }

  void leave() {
    const uint64_t before = gate.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & kInsideMask) == 1 && (before & kOpen) == 0) {
      // The lock orders this notice after the caller's check, so it can't be missed.
      std::lock_guard lock(mutex);
      left.notify_one();
    }
  }

  void worker_loop(int thread_idx) {
    uint64_t seen_job = 0;
    while (wait_for_job(seen_job)) {
      if (!enter(&seen_job)) continue;
      work(thread_idx);
      leave();
    }
  }

  // False when the pool is stopping.
  bool wait_for_job(uint64_t seen_job) {
    const auto wanted = [&] {
      return stopping.load(std::memory_order_acquire) || has_new_job(seen_job);
    };
    if (spin(spin_time, wanted)) return !stopping.load(std::memory_order_acquire);
    std::unique_lock lock(mutex);
    num_sleeping.fetch_add(1, std::memory_order_seq_cst);
    wake.wait(lock, wanted);
    num_sleeping.fetch_sub(1, std::memory_order_seq_cst);
    return !stopping.load(std::memory_order_acquire);
  }

  void open_job(int64_t num_chunks) {
    const uint64_t job = (gate.load(std::memory_order_relaxed) >> kJobShift) + 1;
    gate.store((job << kJobShift) | kOpen, std::memory_order_seq_cst);
    const int sleeping = num_sleeping.load(std::memory_order_seq_cst);
    if (sleeping == 0) return;
    // No more are woken than there are cores or chunks for: a herd would only take turns.
    const int64_t useful = std::min<int64_t>({sleeping, num_cores - 1, num_chunks - 1});
    std::lock_guard lock(mutex);
    for (int64_t i = 0; i < useful; ++i) wake.notify_one();
  }

  void close_job() {
    gate.fetch_and(~kOpen, std::memory_order_acq_rel);
    const auto empty = [&] { return (gate.load(std::memory_order_acquire) & kInsideMask) == 0; };
    if (spin(spin_time, empty)) return;
    std::unique_lock lock(mutex);
    left.wait(lock, empty);
  }
};

ThreadPool::ThreadPool(int num_threads) {
  MB_CHECK(num_threads >= 1 && num_threads <= kMaxThreads);
  state_ = std::make_unique<State>(num_threads);
  for (int i = 1; i < num_threads; ++i) {
    state_->workers.emplace_back([state = state_.get(), i] { state->worker_loop(i); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping.store(true, std::memory_order_release);
    state_->wake.notify_all();
  }
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::num_threads() const { return state_->num_threads; }

void ThreadPool::run(int64_t num_chunks, FunctionRef<void(int64_t, int)> body) {
  MB_CHECK(num_chunks >= 0 && num_chunks < (int64_t{1} << 32));
  State& state = *state_;
  if (state.num_threads == 1 || num_chunks <= 1) {
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) body(chunk, 0);
    return;
  }
  state.body = &body;
  for (int i = 0; i < state.num_threads; ++i) {
    state.ranges[static_cast<size_t>(i)].assign(
        static_cast<uint32_t>(num_chunks * i / state.num_threads),
        static_cast<uint32_t>(num_chunks * (i + 1) / state.num_threads));
  }
  state.open_job(num_chunks);
  state.work(0);
  state.close_job();
}

namespace {

// cgroup v2: "max 100000" or "<quota> <period>"; 0 where there is no limit.
int cgroup_quota_cores() {
  std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "r");
  if (file == nullptr) return 0;
  double quota = 0;
  double period = 0;
  const int fields = std::fscanf(file, "%lf %lf", &quota, &period);
  std::fclose(file);
  if (fields != 2 || period <= 0) return 0;
  return std::max(1, static_cast<int>(std::ceil(quota / period)));
}

}  // namespace

int default_num_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cores = CPU_COUNT(&set);
  const int quota = cgroup_quota_cores();
  if (quota > 0) cores = std::min(cores, quota);
  return std::clamp(cores, 1, kMaxThreads);
}

}  // namespace markbase::base
