#include "runtime/request_state.h"

#include <utility>

#include "base/error.h"

namespace markbase::runtime {

RequestState::RequestState(Request asked, std::vector<int32_t> ids, OnEvent callback,
                           std::thread::id engine_thread)
    : request(std::move(asked)),
      prompt_ids(std::move(ids)),
      on_event(std::move(callback)),
      engine_thread_(engine_thread),
      completions_(static_cast<size_t>(request.num_answers)),
      missing_(completions_.size()) {}

RequestState::RequestState(std::vector<int32_t> ids, Pooler empty, std::thread::id engine_thread)
    : RequestState(Request{}, std::move(ids), {}, engine_thread) {
  pooler = std::move(empty);
}

Result<Completion> RequestState::wait() {
  MB_ASSIGN(std::vector<Completion> completions, wait_all());
  return std::move(completions.front());
}

Result<std::vector<Completion>> RequestState::wait_all() {
  std::unique_lock lock(mutex_);
  if (missing_ > 0 && std::this_thread::get_id() == engine_thread_)
    return base::usage_error("wait() was called from a callback, which the answer waits for");
  done_.wait(lock, [&] { return missing_ == 0; });
  if (std::exchange(taken_, true)) return base::failed("wait() was called twice");
  if (error_) return *error_;
  return std::move(completions_);
}

std::string_view RequestState::interruption(Clock::time_point now) const {
  if (cancelled_.load(std::memory_order_relaxed)) return "cancelled";
  const bool late =
      request.timeout_ms > 0 && now - submitted >= std::chrono::milliseconds(request.timeout_ms);
  return late ? "timeout" : "";
}

void RequestState::complete(size_t number, Result<Completion> result) {
  // Notified under the lock: the waiter may be gone right after it is released.
  const std::lock_guard lock(mutex_);
  if (result.ok()) {
    completions_[number] = *std::move(result);
  } else {
    if (!error_) error_ = std::move(result).error();
    cancel();
  }
  if (--missing_ == 0) done_.notify_all();
}

}  // namespace markbase::runtime
