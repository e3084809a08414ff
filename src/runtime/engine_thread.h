// The one thread that steps a model: jobs run in the order in which they were posted.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace markbase::runtime {

class EngineThread {
 public:
  EngineThread() : thread_([this] { loop(); }) {}
  // Runs what was posted, then ends.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  void post(std::function<void()> job);
  // Posts and waits. On the engine's own thread (a callback that calls back) the job runs at once.
  void run(const std::function<void()>& job);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> jobs_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace markbase::runtime
