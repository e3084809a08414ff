#include "runtime/engine_thread.h"

#include <exception>
#include <new>
#include <utility>

#include "base/error.h"

namespace markbase::runtime {

EngineThread::EngineThread(LoadedModel& model, int64_t max_queue)
    : most_answers_(model.runner_options.max_sequences + max_queue),
      batch_(model),
      stats_(batch_.stats()) {
  batch_.set_on_left([this] { publish(); });
  thread_ = std::thread([this] { loop(); });
}

EngineThread::~EngineThread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  posted_.notify_all();
  thread_.join();
}

Result<void> EngineThread::submit(std::shared_ptr<RequestState> request) {
  const std::lock_guard lock(mutex_);
  if (num_answers_ >= most_answers_) {
    return base::overloaded("the queue is full: {} answers are under way or wait, and {} may",
                            num_answers_, most_answers_);
  }
  const int64_t count = request->request.num_answers;
  inbox_.push_back(std::move(request));
  num_answers_ += count;
  // Under the lock: once the request is taken in, the engine may go, and this object with it.
  posted_.notify_one();
  return {};
}

Result<void> EngineThread::check_may_wait(std::string_view what) const {
  if (std::this_thread::get_id() != id()) return {};
  return base::usage_error("{} was called from a callback, which the answer would wait for", what);
}

Result<void> EngineThread::run(const std::function<void()>& job) {
  if (std::this_thread::get_id() == id())
    return base::usage_error("expected a call from outside the callbacks of requests");
  std::mutex mutex;
  std::condition_variable done;
  bool finished = false;
  std::exception_ptr thrown;
  const std::function<void()> task = [&] {
    try {
      job();
    } catch (...) {
      thrown = std::current_exception();  // the caller's to deal with
    }
    // Notified under the lock: the waiter may be gone right after it is released.
    const std::lock_guard lock(mutex);
    finished = true;
    done.notify_one();
  };
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(&task);
    posted_.notify_one();
  }
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return finished; });
  if (thrown) std::rethrow_exception(thrown);
  return {};
}

EngineStats EngineThread::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void EngineThread::loop() {
  while (true) {
    if (!round()) {
      std::unique_lock lock(mutex_);
      posted_.wait(lock, [&] { return closing_ || !inbox_.empty() || !jobs_.empty(); });
    }
    const std::lock_guard lock(mutex_);
    if (closing_ && jobs_.empty()) break;
  }
  // Nobody submits any more: the engine is being destroyed.
  batch_.end_all("cancelled");
  for (const auto& request : inbox_) {
    request->cancel();
    take_in(request);
  }
  batch_.end_all("cancelled");
}

std::shared_ptr<RequestState> EngineThread::next_request() {
  const std::lock_guard lock(mutex_);
  if (inbox_.empty()) return nullptr;
  std::shared_ptr<RequestState> request = std::move(inbox_.front());
  inbox_.pop_front();
  return request;
}

const std::function<void()>* EngineThread::next_job() {
  const std::lock_guard lock(mutex_);
  if (jobs_.empty()) return nullptr;
  const std::function<void()>* job = jobs_.front();
  jobs_.pop_front();
  return job;
}

bool EngineThread::round() {
  while (auto request = next_request()) take_in(std::move(request));
  // A step between any two jobs, and where they throw answers out, a token for each of these:
  // neither waits for the other for ever.
  if (!batch_.is_catching_up()) {
    if (const auto* job = next_job()) {
      batch_.pause();
      (*job)();
    }
  }
  const bool stepped = batch_.step();
  publish();
  return stepped;
}

// What others may know of the batch: whoever learns that an answer is complete finds its place
// free.
void EngineThread::publish() {
  const EngineStats stats = batch_.stats();
  const std::lock_guard lock(mutex_);
  stats_ = stats;
  num_answers_ = stats.running + stats.waiting;
  for (const auto& waiting : inbox_) num_answers_ += waiting->request.num_answers;
}

void EngineThread::take_in(std::shared_ptr<RequestState> request) {
  try {
    batch_.add(request);
  } catch (const std::exception&) {
    const auto count = static_cast<size_t>(request->request.num_answers);
    for (size_t number = 0; number < count; ++number)
      request->complete(number, base::out_of_memory("no memory for a request"));
  }
}

}  // namespace markbase::runtime
