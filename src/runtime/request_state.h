// A request on its way through the engine.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <vector>

#include "markbase/engine.h"

namespace markbase::runtime {

class RequestState final : public RequestHandle {
 public:
  using Clock = std::chrono::steady_clock;

  RequestState(Request asked, std::vector<int32_t> ids, OnEvent callback)
      : request(std::move(asked)), prompt_ids(std::move(ids)), on_event(std::move(callback)) {}

  void cancel() override { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  Result<Completion> wait() override;
  Result<std::vector<Completion>> wait_all() override;
  // The engine's thread, once.
  void complete(Result<Completion> result);

  const Request request;
  const std::vector<int32_t> prompt_ids;
  const OnEvent on_event;
  const Clock::time_point submitted = Clock::now();

 private:
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;
  std::condition_variable done_;
  std::optional<Result<Completion>> result_;
};

}  // namespace markbase::runtime
