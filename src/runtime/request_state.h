// A request on its way through the engine.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "markbase/engine.h"
#include "runtime/embedding.h"

namespace markbase::runtime {

class RequestState final : public RequestHandle {
 public:
  using Clock = std::chrono::steady_clock;

  // `engine_thread`: the thread that completes answers, which must not wait for them.
  RequestState(Request asked, std::vector<int32_t> ids, OnEvent callback,
               std::thread::id engine_thread);
  // Asks for the hidden states of the ids, pooled, instead of an answer.
  RequestState(std::vector<int32_t> ids, Pooler empty, std::thread::id engine_thread);

  void cancel() override { cancelled_.store(true, std::memory_order_relaxed); }
  Result<Completion> wait() override;
  Result<std::vector<Completion>> wait_all() override;

  // Why its answers are to end now: "cancelled", "timeout"; "" while they may go on.
  std::string_view interruption(Clock::time_point now) const;
  // The engine's thread, once for each answer. An error ends the other answers too.
  void complete(size_t number, Result<Completion> result);

  const Request request;
  const std::vector<int32_t> prompt_ids;
  const OnEvent on_event;
  const Clock::time_point submitted = Clock::now();
  // What a pooling request comes to: the engine's thread fills it, wait() first.
  std::optional<Pooler> pooler;

 private:
  std::thread::id engine_thread_;
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<Completion> completions_;
  std::optional<Error> error_;
  size_t missing_;
  bool taken_ = false;
};

}  // namespace markbase::runtime
