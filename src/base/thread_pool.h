// A pool of threads that share out chunks of one job at a time, with stealing.
#pragma once

#include <cstdint>
#include <memory>

#include "base/function_ref.h"

namespace markbase::base {

class ThreadPool {
 public:
  // num_threads in 1..256, the calling thread included: num_threads - 1 threads are started.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls body(chunk_idx, thread_idx) once for each chunk in [0, num_chunks) and returns when all
  // are done. Which thread takes which chunk is not fixed, so results may depend on the chunk
  // alone. Workers spin for some microseconds, then sleep; a thread that the system holds up loses
  // its remaining chunks to the others. Allocates nothing. One job at a time; not re-entrant.
  void run(int64_t num_chunks, FunctionRef<void(int64_t chunk_idx, int thread_idx)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Threads worth starting here: the cores this process may run on (affinity and cgroup quota).
int default_num_threads();

}  // namespace markbase::base
