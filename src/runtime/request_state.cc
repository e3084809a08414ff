#include "runtime/request_state.h"

#include "base/error.h"

namespace markbase::runtime {

Result<Completion> RequestState::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return result_.has_value(); });
  return *std::exchange(result_, Result<Completion>(base::failed("wait() was called twice")));
}

Result<std::vector<Completion>> RequestState::wait_all() {
  MB_ASSIGN(Completion completion, wait());
  return std::vector<Completion>{std::move(completion)};
}

void RequestState::complete(Result<Completion> result) {
  {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
  }
  done_.notify_all();
}

}  // namespace markbase::runtime
