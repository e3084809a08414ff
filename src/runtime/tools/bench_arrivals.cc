#include "runtime/tools/bench_arrivals.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "formats/weight_source.h"
#include "model/config.h"
#include "runtime/engine_access.h"
#include "runtime/memory_plan.h"
#include "runtime/model_files.h"
#include "runtime/tools/bench_report.h"
#include "runtime/tools/machine.h"

namespace markbase::runtime {
namespace {

using Clock = std::chrono::steady_clock;
using OnProgress = std::function<void(const Progress&)>;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// One request of the process: when it comes, counted from the start, and what it asks.
struct Arrival {
  double at_s = 0;
  std::vector<int32_t> ids;
};

// What a client sees of its request. The engine's thread writes `tokens` until the answer is
// complete.
struct Seen {
  Clock::time_point arrived;
  std::vector<Clock::time_point> tokens;
  Completion completion;
};

// Draws that are the same on every machine: standard distributions are not.
class Draws {
 public:
  explicit Draws(uint64_t seed) : bits_(seed) {}
  // In [0, 1).
  double unit() { return static_cast<double>(bits_() >> 11) * 0x1p-53; }
  size_t below(size_t count) { return static_cast<size_t>(unit() * static_cast<double>(count)); }
  // Of mean 1: the time between two arrivals that know nothing of each other.
  double exponential() { return -std::log1p(-unit()); }

 private:
  std::mt19937_64 bits_;
};

std::vector<Arrival> draw_arrivals(const tools::BenchOptions& options, int64_t vocab_size,
                                   Draws& draws) {
  std::vector<Arrival> arrivals(static_cast<size_t>(options.arrivals.requests));
  double now_s = 0;
  for (Arrival& arrival : arrivals) {
    if (options.arrivals.per_s > 0) now_s += draws.exponential() / options.arrivals.per_s;
    arrival.at_s = now_s;
    arrival.ids.resize(
        static_cast<size_t>(options.prefill_tokens[draws.below(options.prefill_tokens.size())]));
    for (int32_t& id : arrival.ids) {
      id = static_cast<int32_t>(draws.below(static_cast<size_t>(vocab_size)));
    }
  }
  return arrivals;
}

class Arrivals {
 public:
  Arrivals(Engine& engine, const tools::BenchOptions& options, int64_t max_sequences,
           const OnProgress& progress)
      : engine_(engine), options_(options), max_sequences_(max_sequences), progress_(progress) {}

  Result<void> run(std::span<const Arrival> arrivals) {
    std::vector<Seen> seen(arrivals.size());
    const auto start = Clock::now();
    if (options_.arrivals.per_s > 0) {
      MB_TRY(open(arrivals, start, seen));
    } else {
      MB_TRY(closed(arrivals, seen));
    }
    const double seconds = seconds_between(start, Clock::now());
    int64_t generated = 0;
    for (const Seen& s : seen) {
      MB_TRY(take(s));
      generated += static_cast<int64_t>(s.tokens.size());
    }
    rates_.push_back(static_cast<double>(generated) / seconds);
    return {};
  }

  // A request before the clock runs: pages and caches.
  Result<void> warm_up(const Arrival& arrival) {
    Seen seen;
    MB_ASSIGN(const auto handle, submit(arrival, seen));
    MB_ASSIGN(seen.completion, handle->wait());
    return {};
  }

  base::Json report(const EngineStats& before, const EngineStats& after) const {
    const auto spread = [](const std::vector<double>& values) {
      return base::Json{{"median", median(values)},
                        {"min", *std::min_element(values.begin(), values.end())},
                        {"max", *std::max_element(values.begin(), values.end())}};
    };
    const auto quantiles = [](const std::vector<double>& values) -> base::Json {
      if (values.empty()) return nullptr;  // answers of one token have nothing between tokens
      return {{"p50", percentile(values, 50)},
              {"p95", percentile(values, 95)},
              {"p99", percentile(values, 99)},
              {"max", percentile(values, 100)}};
    };
    const tools::ArrivalOptions& arrivals = options_.arrivals;
    return {{"kind", "arrivals"},
            {"tokens", options_.decode_tokens},
            {"depth", 0},
            {"batch", max_sequences_},
            {"tokens_per_s", spread(rates_)},
            {"bytes_read", nullptr},
            {"share_of_bandwidth", nullptr},
            {"requests", arrivals.requests},
            {"rate", arrivals.per_s > 0 ? base::Json(arrivals.per_s) : base::Json("closed")},
            {"seed", arrivals.seed},
            {"prompt_lengths", options_.prefill_tokens},
            {"per_request",
             {{"tokens_per_s", request_rates_.empty() ? base::Json() : spread(request_rates_)}}},
            {"ttft_ms", quantiles(ttft_ms_)},
            {"inter_token_ms", quantiles(inter_token_ms_)},
            {"prompt_tokens", prompt_tokens_},
            {"cached_tokens", cached_tokens_},
            {"generated_tokens", static_cast<int64_t>(ttft_ms_.size()) * options_.decode_tokens},
            {"preemptions", after.preemptions - before.preemptions},
            {"steps", after.steps - before.steps},
            {"repetitions", options_.repetitions}};
  }

 private:
  // The clock of a request starts when it arrives, whatever submit takes.
  Result<std::shared_ptr<RequestHandle>> submit(const Arrival& arrival, Seen& seen) {
    Request request;
    request.ids = arrival.ids;
    request.max_tokens = options_.decode_tokens;
    request.ignore_eos = true;
    request.sampling.temperature = 0.0F;
    seen.tokens.reserve(static_cast<size_t>(options_.decode_tokens));
    seen.arrived = Clock::now();
    return engine_.submit(std::move(request), [&seen](const TokenEvent& event) {
      if (event.id >= 0) seen.tokens.push_back(Clock::now());
      return true;
    });
  }

  // Requests come when they come, whatever the engine is doing.
  Result<void> open(std::span<const Arrival> arrivals, Clock::time_point start,
                    std::vector<Seen>& seen) {
    std::vector<std::shared_ptr<RequestHandle>> handles;
    Result<void> failed;
    for (size_t i = 0; i < arrivals.size() && failed.ok(); ++i) {
      const auto at = start + std::chrono::duration_cast<Clock::duration>(
                                  std::chrono::duration<double>(arrivals[i].at_s));
      std::this_thread::sleep_until(at);
      auto handle = submit(arrivals[i], seen[i]);
      if (handle.ok()) {
        // If we come late, the request has waited already.
        handles.push_back(std::move(*handle));
      } else {
        failed = std::move(handle).error();
      }
    }
    // All of them, since callbacks write into `seen`.
    for (size_t i = 0; i < handles.size(); ++i) {
      if (!failed.ok()) handles[i]->cancel();
      Result<Completion> completion = handles[i]->wait();
      if (!completion.ok()) {
        if (failed.ok()) failed = std::move(completion).error();
        continue;
      }
      seen[i].completion = std::move(*completion);
      tell();
    }
    return failed;
  }

  // As many clients as places; each asks again when it has its answer.
  Result<void> closed(std::span<const Arrival> arrivals, std::vector<Seen>& seen) {
    std::mutex mutex;
    size_t next = 0;
    Result<void> failed;
    const auto client = [&] {
      for (;;) {
        size_t i = 0;
        {
          const std::lock_guard lock(mutex);
          if (!failed.ok() || next == arrivals.size()) return;
          i = next++;
        }
        const auto once = [&]() -> Result<void> {
          MB_ASSIGN(const auto handle, submit(arrivals[i], seen[i]));
          MB_ASSIGN(seen[i].completion, handle->wait());
          return {};
        };
        Result<void> done = once();
        const std::lock_guard lock(mutex);
        if (!done.ok() && failed.ok()) failed = std::move(done);
        tell();
      }
    };
    std::vector<std::thread> clients;
    const size_t num_clients = std::min(static_cast<size_t>(max_sequences_), arrivals.size());
    for (size_t i = 0; i < num_clients; ++i) clients.emplace_back(client);
    for (std::thread& thread : clients) thread.join();
    return failed;
  }

  Result<void> take(const Seen& seen) {
    const auto tokens = static_cast<int64_t>(seen.tokens.size());
    if (tokens != options_.decode_tokens ||
        static_cast<int64_t>(seen.completion.ids.size()) != tokens) {
      return base::failed("bench: expected answers of {} tokens, got one of {} ({})",
                          options_.decode_tokens, seen.completion.ids.size(),
                          seen.completion.finish_reason);
    }
    ttft_ms_.push_back(1e3 * seconds_between(seen.arrived, seen.tokens.front()));
    for (size_t i = 1; i < seen.tokens.size(); ++i) {
      inter_token_ms_.push_back(1e3 * seconds_between(seen.tokens[i - 1], seen.tokens[i]));
    }
    const double decode_s = seconds_between(seen.tokens.front(), seen.tokens.back());
    if (tokens > 1 && decode_s > 0) {
      request_rates_.push_back(static_cast<double>(tokens - 1) / decode_s);
    }
    prompt_tokens_ += seen.completion.timings.prompt_tokens;
    cached_tokens_ += seen.completion.timings.cached_tokens;
    return {};
  }

  void tell() {
    const auto total = static_cast<uint64_t>(options_.arrivals.requests) *
                       static_cast<uint64_t>(options_.repetitions);
    if (progress_) progress_({"measuring", ++done_, total, Progress::Unit::kRuns});
  }

  Engine& engine_;
  const tools::BenchOptions& options_;
  const int64_t max_sequences_;
  const OnProgress& progress_;
  uint64_t done_ = 0;
  std::vector<double> rates_;  // one a repetition
  std::vector<double> request_rates_;
  std::vector<double> ttft_ms_;
  std::vector<double> inter_token_ms_;
  int64_t prompt_tokens_ = 0;
  int64_t cached_tokens_ = 0;
};

// Once for each repetition, after a request that warms up.
Result<base::Json> measure(Engine& engine, const tools::BenchOptions& options,
                           int64_t max_sequences, const OnProgress& progress) {
  Draws draws(options.arrivals.seed);
  const int64_t vocab_size = engine.info().vocab_size;
  Arrivals arrivals(engine, options, max_sequences, progress);
  const std::vector<Arrival> first = draw_arrivals(options, vocab_size, draws);
  MB_TRY(arrivals.warm_up(first.front()));
  const EngineStats before = engine.stats();
  for (int i = 0; i < options.repetitions; ++i) {
    // Other prompts each time: the prefix cache knows the old ones.
    MB_TRY(arrivals.run(draw_arrivals(options, vocab_size, draws)));
  }
  return arrivals.report(before, engine.stats());
}

// With prompts that fit beside an answer, where they may be shortened.
Result<tools::BenchOptions> fitted(const std::string& path, const EngineOptions& engine,
                                   tools::BenchOptions options) {
  if (!options.fit_prompts) return options;
  MB_ASSIGN(const ModelPath model_path, open_model_path(path));
  MB_ASSIGN(const auto source, formats::open_weight_source(model_path.path));
  MB_ASSIGN(const model::TextConfig config, model::read_config(*source));
  MB_ASSIGN(const int64_t limit, context_limit(config, engine));
  const int64_t most = limit - options.decode_tokens;
  if (most < 1) {
    return base::usage_error(
        "bench: -n: expected fewer tokens than the context of {}, so that a prompt fits beside "
        "them, got {}",
        limit, options.decode_tokens);
  }
  for (int64_t& tokens : options.prefill_tokens) tokens = std::min(tokens, most);
  return options;
}

// A draw is at most 37 times its mean: so the last request comes within the 292 years that a clock
// of nanoseconds counts. Above the upper end all come at once.
Result<void> check_rate(const tools::ArrivalOptions& arrivals) {
  constexpr double kMostMeanSeconds = 1e8;
  constexpr double kMostPerSecond = 1e9;
  if (arrivals.per_s == 0) return {};
  const double least = static_cast<double>(arrivals.requests) / kMostMeanSeconds;
  if (arrivals.per_s >= least && arrivals.per_s <= kMostPerSecond) return {};
  return base::usage_error(
      "bench: --rate: expected closed (0), or {} to {} requests a second with {} requests, got {}",
      least, kMostPerSecond, arrivals.requests, arrivals.per_s);
}

// What is asked of the engine: the context that the longest request needs where none is given,
// places for the answers, and a queue that takes all requests.
Result<EngineOptions> arrivals_engine(const EngineOptions& engine,
                                      const tools::BenchOptions& options, int64_t max_sequences) {
  if (options.prefill_tokens.empty()) {
    return base::usage_error("bench: -p: expected a length of prompts beside --arrivals, got none");
  }
  if (options.decode_tokens < 1) {
    return base::usage_error("bench: -n: expected 1 or more beside --arrivals, got {}",
                             options.decode_tokens);
  }
  MB_TRY(check_rate(options.arrivals));
  const int64_t longest =
      *std::max_element(options.prefill_tokens.begin(), options.prefill_tokens.end()) +
      options.decode_tokens;
  EngineOptions asked = engine;
  if (asked.context_tokens == 0) asked.context_tokens = longest;
  if (asked.context_tokens < longest) {
    return base::usage_error("bench: expected requests within the context of {} tokens, got {}",
                             asked.context_tokens, longest);
  }
  asked.max_sequences = max_sequences;
  asked.max_queue = std::max(asked.max_queue, options.arrivals.requests);
  return asked;
}

}  // namespace

double percentile(std::vector<double> values, double percent) {
  MB_CHECK(!values.empty() && percent > 0 && percent <= 100);
  const double rank = std::ceil(percent * static_cast<double>(values.size()) / 100);
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

Result<std::string> bench_arrivals(const std::string& path, const EngineOptions& engine,
                                   const tools::BenchOptions& asked_for) {
  MB_ASSIGN(const tools::BenchOptions options, fitted(path, engine, asked_for));
  base::Json tests = base::Json::array();
  std::string document;
  for (const int64_t max_sequences : options.batches) {
    MB_ASSIGN(EngineOptions asked, arrivals_engine(engine, options, max_sequences));
    // Requests are told, not chunks of their prompts.
    const auto loading = std::make_shared<std::atomic<bool>>(true);
    asked.progress = [loading, progress = engine.progress](const Progress& p) {
      if (progress && *loading) progress(p);
    };
    MB_ASSIGN(Engine loaded, Engine::load(path, asked));
    *loading = false;
    const LoadedModel& model = EngineAccess::model(loaded);
    if (tests.empty()) tests.push_back(load_test(model));
    MB_ASSIGN(base::Json test, measure(loaded, options, max_sequences, engine.progress));
    tests.push_back(std::move(test));
    document = bench_document(model, tests);
  }
  return document;
}

}  // namespace markbase::runtime
