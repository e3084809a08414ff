#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <thread>

#include "stress/stress.h"

namespace markbase::stress {
namespace {

const Case& any_case(const Reference& reference, Random& random) {
  return reference.cases[below(random, reference.cases.size())];
}

// The one of three that holds most tokens, all answers together.
const Case& heavy_case(const Reference& reference, Random& random) {
  const auto tokens = [](const Case& c) {
    const size_t each = c.request.ids.size() + c.expected.front().ids.size();
    return each * c.expected.size();
  };
  const Case* heaviest = &any_case(reference, random);
  for (int i = 0; i < 2; ++i) {
    const Case& other = any_case(reference, random);
    if (tokens(other) > tokens(*heaviest)) heaviest = &other;
  }
  return *heaviest;
}
using Choose = const Case& (*)(const Reference& reference, Random& random);

// One in four is cancelled by its callback, after 0 to 9 tokens.
int64_t any_cancel(Random& random) {
  return below(random, 4) == 0 ? static_cast<int64_t>(below(random, 10)) : -1;
}

std::optional<Engine> load(const EngineOptions& options, const std::string& model, Report& report) {
  Result<Engine> engine = Engine::load(model, options);
  if (!engine.ok()) {
    report.fault(Fault::kFailed, engine.error().message);
    return {};
  }
  return std::move(*engine);
}

void close(const Engine& engine, Report& report) {
  const EngineStats stats = engine.stats();
  report.set("steps", stats.steps);
  report.set("preemptions", stats.preemptions);
  report.set("cached_tokens", stats.cached_tokens);
  report.set("kv_blocks", stats.kv_blocks);
  if (stats.running != 0 || stats.waiting != 0 || stats.kv_blocks_used != 0) {
    report.fault(Fault::kLost,
                 fmt::format("{} run, {} wait and {} blocks are held when all has been answered",
                             stats.running, stats.waiting, stats.kv_blocks_used));
  }
  report.judge_memory();
}

// Clients that ask, wait and sometimes go, each on a thread of its own.
void run_clients(size_t num_clients, uint64_t seed, Choose choose, Pace& pace,
                 const Reference& reference, Engine& engine, Report& report) {
  std::vector<std::thread> clients;
  for (size_t i = 0; i < num_clients; ++i) {
    clients.emplace_back([&, i] {
      Random random(seed + 1000 * (i + 1));
      while (pace.next()) {
        Visit visit(choose(reference, random), any_cancel(random));
        if (!visit.start(engine, report)) continue;
        if (below(random, 8) == 0) visit.cancel();
        visit.finish(report);
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

// The least memory that an engine of these options loads with: one context for all sequences
// together, and no prefixes kept beside.
Result<EngineOptions> with_least_memory(EngineOptions options, const std::string& model) {
  uint64_t too_little = 0;
  uint64_t enough = uint64_t{1} << 40;
  // Down to what a block is likely to take.
  constexpr uint64_t kPrecision = uint64_t{16} << 10;
  while (enough - too_little > std::max(kPrecision, enough / 512)) {
    options.memory_bytes = too_little + (enough - too_little) / 2;
    const Result<Engine> engine = Engine::load(model, options);
    if (!engine.ok() && engine.error().code != ErrorCode::kOutOfMemory) return engine.error();
    (engine.ok() ? enough : too_little) = options.memory_bytes;
  }
  options.memory_bytes = enough;
  return options;
}

}  // namespace

void concurrent(const Options& options, const Reference& reference, Report& report) {
  constexpr size_t kClients = 12;
  auto engine = load(engine_options(options, 6), options.model, report);
  if (!engine) return;
  Pace pace(options, 400);
  run_clients(kClients, options.seed, any_case, pace, reference, *engine, report);
  close(*engine, report);
}

void memory(const Options& options, const Reference& reference, Report& report) {
  constexpr size_t kClients = 16;
  const Result<EngineOptions> least = with_least_memory(engine_options(options, 12), options.model);
  if (!least.ok()) return report.fault(Fault::kFailed, least.error().message);
  auto engine = load(*least, options.model, report);
  if (!engine) return;
  report.set("memory_bytes", least->memory_bytes);
  Pace pace(options, 300);
  run_clients(kClients, options.seed + 1, heavy_case, pace, reference, *engine, report);
  if (engine->stats().preemptions == 0) {
    report.fault(Fault::kIdle, "no answer was preempted: the pool is not small");
  }
  close(*engine, report);
}

// Requests come at random times, whatever the engine is doing; the oldest is waited for when there
// are many.
void continuous(const Options& options, const Reference& reference, Report& report) {
  constexpr size_t kMostUnderWay = 48;
  auto engine = load(engine_options(options, 8), options.model, report);
  if (!engine) return;
  Random random(options.seed + 2);
  Pace pace(options, 300);
  std::deque<Visit> visits;
  while (pace.next()) {
    visits.emplace_back(any_case(reference, random), any_cancel(random));
    if (!visits.back().start(*engine, report)) visits.pop_back();
    if (!visits.empty() && below(random, 16) == 0) visits[below(random, visits.size())].cancel();
    // Bursts, and times when the engine runs dry.
    if (below(random, 4) == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(below(random, 4000)));
    }
    if (visits.size() < kMostUnderWay && below(random, 64) != 0) continue;
    const size_t keep = below(random, 8) == 0 ? 0 : kMostUnderWay / 2;
    while (visits.size() > keep) {
      visits.front().finish(report);
      visits.pop_front();
    }
  }
  for (Visit& visit : visits) visit.finish(report);
  visits.clear();
  close(*engine, report);
}

// Everything together, with looks at logits and embeddings between, and the prefix cache on its way
// through a file.
void long_running(const Options& options, const Reference& reference, Report& report) {
  constexpr size_t kClients = 6;
  auto engine = load(engine_options(options, 4), options.model, report);
  if (!engine) return;
  const std::string file = options.folder + "/prefixes";
  Pace pace(options, 200);
  std::thread looks([&] {
    Random random(options.seed + 4);
    int64_t turn = 0;
    while (pace.next()) {
      check_probe(*engine, reference.probes[below(random, reference.probes.size())], report);
      if (++turn % 16 != 0) continue;
      const Result<int64_t> saved = engine->save_prefix_cache(file);
      const Result<int64_t> restored =
          saved.ok() ? engine->restore_prefix_cache(file) : Result<int64_t>(saved.error());
      if (!restored.ok()) report.fault(Fault::kFailed, restored.error().message);
    }
  });
  run_clients(kClients, options.seed + 3, any_case, pace, reference, *engine, report);
  looks.join();
  close(*engine, report);
}

}  // namespace markbase::stress
