#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "stress/stress.h"

namespace markbase::stress {
namespace {

constexpr std::pair<Fault, const char*> kFaultNames[] = {{Fault::kNotFinite, "not_finite"},
                                                         {Fault::kLost, "lost"},
                                                         {Fault::kRepeated, "repeated"},
                                                         {Fault::kMixedUp, "mixed_up"},
                                                         {Fault::kFailed, "failed"},
                                                         {Fault::kMemory, "memory"},
                                                         {Fault::kIdle, "idle"}};
constexpr size_t kMostSamples = 4096;

int64_t anonymous_kib() {
  std::ifstream file("/proc/self/status");
  std::string word;
  int64_t kib = 0;
  while (file >> word) {
    if (word == "RssAnon:" && file >> kib) return kib;
  }
  return 0;
}

}  // namespace

void Report::fault(Fault fault, const std::string& text) {
  const std::lock_guard lock(mutex_);
  ++faults_[fault];
  if (first_fault_.empty()) first_fault_ = text;
}

void Report::answer(const Completion& completion) {
  const std::lock_guard lock(mutex_);
  ++answers_;
  tokens_ += static_cast<int64_t>(completion.ids.size());
}

void Report::cancelled() {
  const std::lock_guard lock(mutex_);
  ++cancelled_;
}

void Report::sample_memory() {
  const std::lock_guard lock(mutex_);
  if (samples_seen_++ % sample_every_ != 0) return;
  if (memory_kib_.empty()) memory_kib_.reserve(kMostSamples);
  if (memory_kib_.size() == kMostSamples) {
    for (size_t i = 0; i < kMostSamples / 2; ++i) memory_kib_[i] = memory_kib_[2 * i];
    memory_kib_.resize(kMostSamples / 2);
    sample_every_ *= 2;
  }
  if (const int64_t kib = anonymous_kib(); kib > 0) memory_kib_.push_back(kib);
}

void Report::judge_memory() {
  // The allocator takes memory in steps, one arena a thread.
  constexpr int64_t kSlackKib = 4096;
  const size_t count = memory_kib_.size();
  if (count < 8) return fault(Fault::kIdle, fmt::format("{} samples of memory", count));
  const auto begin = memory_kib_.begin();
  const auto at = [&](size_t quarter) {
    return begin + static_cast<std::ptrdiff_t>(count * quarter / 4);
  };
  const int64_t before = *std::max_element(at(2), at(3));
  const int64_t after = *std::max_element(at(3), memory_kib_.end());
  set("rss_anon_kib", {{"first", memory_kib_.front()}, {"third_quarter", before}, {"last", after}});
  if (after - before > std::max(kSlackKib, before / 50)) {
    fault(Fault::kMemory,
          fmt::format("memory grew from {} to {} KiB in the last quarter", before, after));
  }
}

void Report::set(const std::string& key, const base::Json& value) {
  const std::lock_guard lock(mutex_);
  extra_[key] = value;
}

bool Report::ok() const {
  const std::lock_guard lock(mutex_);
  return faults_.empty();
}

base::Json Report::json() const {
  const std::lock_guard lock(mutex_);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  base::Json faults;
  for (const auto& [fault, name] : kFaultNames) {
    const auto found = faults_.find(fault);
    faults[name] = found == faults_.end() ? 0 : found->second;
  }
  base::Json json = {{"name", name_},     {"answers", answers_},        {"cancelled", cancelled_},
                     {"tokens", tokens_}, {"seconds", seconds.count()}, {"faults", faults}};
  if (!first_fault_.empty()) json["first_fault"] = first_fault_;
  json.update(extra_);
  return json;
}

Pace::Pace(const Options& options, int64_t requests) : left_(requests) {
  if (options.minutes <= 0) return;
  const std::chrono::duration<double> time(60 * options.minutes /
                                           static_cast<double>(options.suites.size()));
  until_ = std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(time);
}

bool Pace::next() {
  const std::lock_guard lock(mutex_);
  if (until_) return std::chrono::steady_clock::now() < *until_;
  return left_-- > 0;
}

}  // namespace markbase::stress
