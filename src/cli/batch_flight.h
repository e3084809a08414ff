// The requests of a batch that are under way in an engine: a bounded number, each answer written as
// it is complete.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "cli/batch_output.h"
#include "cli/batch_request.h"
#include "markbase/engine.h"

namespace markbase::cli {

// A request with its place in the batch.
struct BatchItem {
  base::Json id;
  size_t line = 0;
  uint64_t line_hash = 0;  // of the line as it was given, for a fault
  BatchRequest asked;
};

struct BatchCounts {
  int64_t under_way = 0;
  int64_t answered = 0;  // lines that are written
  int64_t failed = 0;    // as well
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;     // of them
  int64_t generated_tokens = 0;  // those of answers under way included
  double seconds = 0;            // since the first was submitted
};

class BatchFlight {
 public:
  // About ten times a second while something is waited for; false ends the waiting (kCancelled).
  using OnIdle = std::function<bool()>;

  // Engine and output must outlive it. At most `most` requests are under way at a time.
  BatchFlight(Engine& engine, BatchOutput& output, size_t most)
      : engine_(engine), output_(output), most_(most) {}
  ~BatchFlight() { stop(); }
  BatchFlight(const BatchFlight&) = delete;
  BatchFlight& operator=(const BatchFlight&) = delete;

  // Blocks while there is no room. What the engine refuses is written as the line's fault. Errors:
  // kCancelled, kFailed where the output cannot be written.
  Result<void> submit(BatchItem item, const OnIdle& on_idle);
  // Writes why a line is not answered, and says it on stderr.
  Result<void> fail(const base::Json& id, size_t line, uint64_t hash, const Error& error);
  // Until all that was submitted is written. Errors as submit.
  Result<void> finish(const OnIdle& on_idle);

  // Cancels what is under way, and waits for its end; it is not written.
  void stop();

  // False once the output cannot be written.
  bool healthy() const { return !broken_.load(); }
  BatchCounts counts() const;

 private:
  struct UnderWay {
    BatchItem item;
    std::shared_ptr<RequestHandle> handle;
  };
  using Clock = std::chrono::steady_clock;

  Result<void> wait_until(const std::function<bool()>& done, const OnIdle& on_idle);
  Result<void> failure() const;
  Result<std::shared_ptr<RequestHandle>> hand_over(const Request& request, const OnIdle& on_idle);
  Result<void> add_waiter();  // under the lock
  void wait_for_answers();
  void take(const UnderWay& flown, Result<std::vector<Completion>> answers);
  bool write(const std::string& line);  // whether it is written

  Engine& engine_;
  BatchOutput& output_;
  const size_t most_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<UnderWay> waiting_;                              // for a thread to wait for it
  std::map<size_t, std::shared_ptr<RequestHandle>> handles_;  // of all under way, by line
  std::vector<std::thread> waiters_;
  size_t idle_waiters_ = 0;
  bool stopping_ = false;
  BatchCounts counts_;
  std::optional<Clock::time_point> first_submit_;

  std::atomic<int64_t> generated_tokens_ = 0;
  std::atomic<bool> broken_ = false;
  mutable std::mutex output_mutex_;
  std::optional<Error> output_error_;
};

}  // namespace markbase::cli
