// The one thread that steps a model: it takes requests in between two steps, and runs jobs that
// need the model for themselves while the requests wait.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "markbase/engine.h"
#include "runtime/batch.h"
#include "runtime/loaded_model.h"
#include "runtime/request_state.h"

namespace markbase::runtime {

class EngineThread {
 public:
  // The model outlives it. max_queue: answers that may wait beside those that step.
  EngineThread(LoadedModel& model, int64_t max_queue);
  // Ends every request with the reason "cancelled", then the thread.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  std::thread::id id() const { return thread_.get_id(); }
  // Errors: kUsage on the engine's own thread, that is from a callback, which what it waits for
  // would wait for. `what` names the call.
  Result<void> check_may_wait(std::string_view what) const;
  // From any thread. Errors: kOverloaded. On an exception (no memory) the request is not taken in.
  Result<void> submit(std::shared_ptr<RequestState> request);
  // Runs `job` with the model for itself and waits for it; what it throws is thrown here. Errors:
  // kUsage on the engine's own thread, that is from a callback.
  Result<void> run(const std::function<void()>& job);
  EngineStats stats() const;

 private:
  void loop();
  // One round: what came in, a job, a step. False: nothing to do until something comes in.
  bool round();
  // Null: there is none.
  std::shared_ptr<RequestState> next_request();
  const std::function<void()>* next_job();
  void take_in(std::shared_ptr<RequestState> request);
  void publish();

  int64_t most_answers_;
  Batch batch_;  // of the engine's thread
  mutable std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::shared_ptr<RequestState>> inbox_;
  std::deque<const std::function<void()>*> jobs_;
  int64_t num_answers_ = 0;  // in the inbox and in the batch
  EngineStats stats_;
  bool closing_ = false;
  std::thread thread_;  // last: it ends before what it uses
};

}  // namespace markbase::runtime
