#include "cli/batch_flight.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/completion_json.h"

namespace markbase::cli {
namespace {

constexpr auto kIdle = std::chrono::milliseconds(100);

bool was_cancelled(const Result<std::vector<Completion>>& answers) {
  if (!answers.ok()) return answers.error().code == ErrorCode::kCancelled;
  return std::ranges::any_of(*answers,
                             [](const Completion& c) { return c.finish_reason == "cancelled"; });
}

JsonMembers members_of(const Completion& completion, const BatchItem& item) {
  const std::optional<ToolDeclarations>& tools = item.asked.tools;
  return completion_members(completion, tools ? &*tools : nullptr);
}

// Whether one of them filled the context. Only the one that was as long as it might be ends the
// same way where there is more room.
bool ended_with_context(const BatchItem& item, const std::vector<Completion>& answers,
                        int64_t context_tokens) {
  const int64_t most = item.asked.request.max_tokens;
  return std::ranges::any_of(answers, [&](const Completion& answer) {
    const Timings& t = answer.timings;
    const bool by_length = answer.finish_reason == "length" && t.generated_tokens == most;
    return !by_length && t.prompt_tokens + t.generated_tokens > context_tokens;
  });
}

std::string answer_line(const BatchItem& item, const std::vector<Completion>& answers,
                        int64_t context_tokens) {
  JsonMembers members = {{"id", base::dump_json(item.id)},
                         {"line", std::to_string(item.line)},
                         {"request", hash_json(item.asked.hash)}};
  const bool by_context = ended_with_context(item, answers, context_tokens);
  const JsonMember context = {"context", std::to_string(context_tokens)};
  const JsonMember seed = {"seed", std::to_string(item.asked.request.sampling.seed)};
  if (item.asked.request.num_answers == 1) {
    for (JsonMember& member : members_of(answers.front(), item)) {
      members.push_back(std::move(member));
    }
    if (by_context) members.push_back(context);
    members.push_back(seed);
    members.push_back({"timings", base::dump_json(timings_json(answers.front().timings))});
    return object_json(members);
  }
  std::string list;
  for (const Completion& answer : answers) {
    JsonMembers of_answer = members_of(answer, item);
    of_answer.insert(of_answer.begin(), {"index", std::to_string(answer.answer_idx)});
    of_answer.push_back({"timings", base::dump_json(timings_json(answer.timings))});
    list += (list.empty() ? "" : ",") + object_json(of_answer);
  }
  members.push_back({"answers", "[" + list + "]"});
  if (by_context) members.push_back(context);
  members.push_back(seed);
  return object_json(members);
}

}  // namespace

void BatchFlight::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [line, handle] : handles_) handle->cancel();
  }
  changed_.notify_all();
  for (std::thread& waiter : waiters_) waiter.join();
  waiters_.clear();
  // Those that no thread was there for: their callbacks look at this until then.
  for (const UnderWay& flown : waiting_) (void)flown.handle->wait_all();
  waiting_.clear();
}

Result<void> BatchFlight::failure() const {
  const std::lock_guard lock(output_mutex_);
  if (output_error_) return *output_error_;
  return {};
}

Result<void> BatchFlight::wait_until(const std::function<bool()>& done, const OnIdle& on_idle) {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, kIdle, [&] { return done() || !healthy(); })) break;
    }
    if (interrupted() || !on_idle()) return Error{ErrorCode::kCancelled, "interrupted"};
  }
  return failure();
}

// What the engine has no place for yet is asked again after the next answer.
Result<std::shared_ptr<RequestHandle>> BatchFlight::hand_over(const Request& request,
                                                              const OnIdle& on_idle) {
  for (;;) {
    const size_t before = [&] {
      const std::lock_guard lock(mutex_);
      return handles_.size();
    }();
    auto handle = engine_.submit(request, [this](const TokenEvent& event) {
      if (event.id >= 0) generated_tokens_.fetch_add(1, std::memory_order_relaxed);
      return true;
    });
    if (handle.ok() || handle.error().code != ErrorCode::kOverloaded || before == 0) return handle;
    MB_TRY(wait_until([&] { return handles_.size() < before; }, on_idle));
  }
}

Result<void> BatchFlight::submit(BatchItem item, const OnIdle& on_idle) {
  MB_TRY(wait_until([&] { return handles_.size() < most_; }, on_idle));
  {
    const std::lock_guard lock(mutex_);
    if (!first_submit_) first_submit_ = Clock::now();
  }
  auto handle = hand_over(item.asked.request, on_idle);
  if (!handle.ok()) {
    if (handle.error().code == ErrorCode::kCancelled) return std::move(handle).error();
    MB_TRY(failure());
    return fail(item.id, item.line, item.line_hash, handle.error());
  }
  const std::lock_guard lock(mutex_);
  handles_[item.line] = *handle;
  waiting_.push_back({std::move(item), std::move(*handle)});
  changed_.notify_all();
  return idle_waiters_ < waiting_.size() && waiters_.size() < most_ ? add_waiter() : Result<void>();
}

// Where the system gives no more threads, the ones there are wait for all.
Result<void> BatchFlight::add_waiter() {
  try {
    waiters_.emplace_back([this] { wait_for_answers(); });
  } catch (const std::system_error& error) {
    if (waiters_.empty()) return base::failed("no thread to wait for answers: {}", error.what());
  }
  return {};
}

void BatchFlight::wait_for_answers() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_waiters_;
    changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    --idle_waiters_;
    if (waiting_.empty()) return;
    const UnderWay flown = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    take(flown, flown.handle->wait_all());
    lock.lock();
    handles_.erase(flown.item.line);
    changed_.notify_all();
  }
}

void BatchFlight::take(const UnderWay& flown, Result<std::vector<Completion>> answers) {
  const BatchItem& item = flown.item;
  if (was_cancelled(answers)) return;  // we did: it is for the next time
  if (!answers.ok()) {
    (void)fail(item.id, item.line, item.line_hash, answers.error());
    return;
  }
  if (!write(answer_line(item, *answers, engine_.info().context_tokens))) return;
  const std::lock_guard lock(mutex_);
  ++counts_.answered;
  for (const Completion& answer : *answers) {
    counts_.prompt_tokens += answer.timings.prompt_tokens;
    counts_.cached_tokens += answer.timings.cached_tokens;
  }
}

Result<void> BatchFlight::fail(const base::Json& id, size_t line, uint64_t hash,
                               const Error& error) {
  const char* over_progress = stderr_is_terminal() ? "\r\x1b[K" : "";
  note(false, fmt::format("{}markbase: line {}: {}", over_progress, line, error.message));
  if (write(fault_line(id, line, hash, error))) {
    const std::lock_guard lock(mutex_);
    ++counts_.failed;
  }
  return failure();
}

bool BatchFlight::write(const std::string& line) {
  const std::lock_guard lock(output_mutex_);
  if (output_error_) return false;
  Result<void> written = output_.write(line);
  if (written.ok()) return true;
  output_error_ = written.error();
  broken_ = true;
  changed_.notify_all();
  return false;
}

Result<void> BatchFlight::finish(const OnIdle& on_idle) {
  return wait_until([&] { return handles_.empty(); }, on_idle);
}

BatchCounts BatchFlight::counts() const {
  const std::lock_guard lock(mutex_);
  BatchCounts counts = counts_;
  counts.under_way = static_cast<int64_t>(handles_.size());
  counts.generated_tokens = generated_tokens_.load(std::memory_order_relaxed);
  if (first_submit_) {
    counts.seconds = std::chrono::duration<double>(Clock::now() - *first_submit_).count();
  }
  return counts;
}

}  // namespace markbase::cli
