// The engine under load: what every suite needs. Requests are drawn from a set whose answers were
// computed before, each alone in an engine of its own; whatever else is going on, an answer must be
// that one.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "markbase/engine.h"

namespace markbase::stress {

struct Options {
  std::string model;    // empty: a small one of random weights
  std::string program;  // the command line, for the suite `batch`
  std::string folder;   // for files of ours
  std::vector<std::string> suites;
  double minutes = 0;  // of all suites together; 0: so many requests as a test takes
  uint64_t seed = 1;
  size_t num_cases = 60;  // different requests
  int num_threads = 0;
};

// What may go wrong. Counted under these names in the summary.
enum class Fault {
  kNotFinite,  // a logit or a log probability is no number
  kLost,       // a token or an answer did not come
  kRepeated,   // a token came that the answer has not
  kMixedUp,    // another answer than alone
  kFailed,     // an error instead of an answer
  kMemory,     // memory grew
  kIdle,       // the suite did not do what it is there for
};

class Report {
 public:
  explicit Report(std::string name) : name_(std::move(name)) {}

  void fault(Fault fault, const std::string& text);
  void answer(const Completion& completion);
  void cancelled();
  // Resident anonymous memory of this process, now. Called often; thinned out.
  void sample_memory();
  // Compares what was sampled in the last quarter with the one before.
  void judge_memory();
  void set(const std::string& key, const base::Json& value);
  bool ok() const;
  base::Json json() const;

 private:
  const std::string name_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  mutable std::mutex mutex_;
  std::map<Fault, int64_t> faults_;
  std::string first_fault_;
  int64_t answers_ = 0;
  int64_t cancelled_ = 0;
  int64_t tokens_ = 0;
  std::vector<int64_t> memory_kib_;
  int64_t sample_every_ = 1;
  int64_t samples_seen_ = 0;
  base::Json extra_ = base::Json::object();
};

// How long a suite goes on: a number of requests, or a time.
class Pace {
 public:
  Pace(const Options& options, int64_t requests);
  // Counts a request; false: enough. Thread safe.
  bool next();

 private:
  std::mutex mutex_;
  int64_t left_;
  std::optional<std::chrono::steady_clock::time_point> until_;
};

struct Case {
  Request request;
  std::vector<Completion> expected;  // one for each of its answers
};

struct Probe {
  std::vector<int32_t> ids;
  std::vector<float> logits;  // of the last position
  std::vector<float> embedding;
};

struct Reference {
  std::vector<Case> cases;
  std::vector<Probe> probes;
};

constexpr int64_t kContextTokens = 384;
EngineOptions engine_options(const Options& options, int64_t max_sequences);
// Every answer alone: one sequence, no prefix cache, one request at a time. Faults go to `report`.
Result<Reference> compute_reference(const Options& options, Report& report);

using Random = std::mt19937_64;
inline size_t below(Random& random, size_t count) { return static_cast<size_t>(random() % count); }

// A request on its way, and what its callback sees of it.
class Visit {
 public:
  // cancel_after: so many tokens of all answers, then the callback says stop; -1: never.
  Visit(const Case& asked, int64_t cancel_after);
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  ~Visit();

  bool start(Engine& engine, Report& report);
  void cancel();
  // Waits, and compares.
  void finish(Report& report);

 private:
  bool on_event(const TokenEvent& event);

  const Case& case_;
  const int64_t cancel_after_;
  std::shared_ptr<RequestHandle> handle_;
  bool may_be_cancelled_ = false;
  int64_t num_events_ = 0;
  std::vector<std::vector<int32_t>> ids_;  // as streamed, by answer
  std::vector<std::string> texts_;
};

// A completion against what is expected of it. `whole`: it was not cancelled.
void check_completion(const Completion& got, const Completion& expected, bool whole,
                      Report& report);
// Logits and embeddings in the middle of everything.
void check_probe(Engine& engine, const Probe& probe, Report& report);

using Suite = void (*)(const Options& options, const Reference& reference, Report& report);
void concurrent(const Options& options, const Reference& reference, Report& report);
void memory(const Options& options, const Reference& reference, Report& report);
void continuous(const Options& options, const Reference& reference, Report& report);
void batch(const Options& options, const Reference& reference, Report& report);
void long_running(const Options& options, const Reference& reference, Report& report);

}  // namespace markbase::stress
