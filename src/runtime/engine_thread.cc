#include "runtime/engine_thread.h"

#include <utility>

namespace markbase::runtime {

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  posted_.notify_all();
  thread_.join();
}

void EngineThread::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  posted_.notify_one();
}

void EngineThread::run(const std::function<void()>& job) {
  if (std::this_thread::get_id() == thread_.get_id()) {
    job();
    return;
  }
  std::mutex mutex;
  std::condition_variable done;
  bool finished = false;
  post([&] {
    job();
    // Notified under the lock: the waiter may be gone right after it is released.
    const std::lock_guard lock(mutex);
    finished = true;
    done.notify_one();
  });
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return finished; });
}

void EngineThread::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    posted_.wait(lock, [&] { return closing_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace markbase::runtime
