// bench: tokens per second of prefill and decode beside a probe of memory bandwidth.
#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/guard.h"
#include "markbase/tools.h"
#include "runtime/loaded_model.h"
#include "runtime/tools/bench_arrivals.h"
#include "runtime/tools/bench_report.h"
#include "runtime/tools/machine.h"

namespace markbase::tools {
namespace {

using runtime::LoadedModel;
using runtime::ModelRunner;
using runtime::StepRow;

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

uint64_t kv_token_bytes(const LoadedModel& model, const model::LayerConfig& layer) {
  const ops::KvLayout layout = {model.runner_options.kv, layer.num_key_value_heads, layer.head_dim};
  return model.backend.backend->kv_block_bytes(layout) / static_cast<uint64_t>(ops::kKvBlockTokens);
}

// Keys and values that one row at `position` reads.
uint64_t kv_read_bytes(const LoadedModel& model, int64_t position) {
  uint64_t bytes = 0;
  for (const model::LayerConfig& layer : model.config.layers) {
    const int64_t visible =
        layer.sliding_window > 0 ? std::min(position + 1, layer.sliding_window) : position + 1;
    bytes += static_cast<uint64_t>(visible) * kv_token_bytes(model, layer);
  }
  return bytes;
}

// What a test asks of a runner.
struct Size {
  int64_t tokens = 0;
  int64_t batch = 1;
  int64_t kept = 0;  // prefixes
};

Size size_of_decode(const BenchOptions& options, int64_t depth, int64_t batch) {
  return {depth + options.decode_tokens, batch, batch};
}

std::vector<Size> sizes_of(const BenchOptions& options) {
  std::vector<Size> sizes;
  for (const int64_t tokens : options.prefill_tokens) sizes.push_back({.tokens = tokens});
  if (options.decode_tokens == 0) return sizes;
  for (const int64_t depth : options.depths) {
    for (const int64_t batch : options.batches) {
      sizes.push_back(size_of_decode(options, depth, batch));
    }
  }
  return sizes;
}

runtime::RunnerOptions runner_of(const Size& size, runtime::RunnerOptions runner) {
  runner.context_tokens = size.tokens;
  runner.max_sequences = size.batch;
  runner.kv_pool_tokens = 0;
  runner.kept_windows = size.kept;
  return runner;
}

class Bench {
 public:
  Bench(LoadedModel& model, runtime::BandwidthProbe& probe, const BenchOptions& options)
      : model_(model), probe_(probe), options_(options) {}

  Result<base::Json> prefill(int64_t tokens) {
    MB_TRY(prepare({.tokens = tokens}));
    const auto once = [&]() -> Result<double> {
      const int sequence = model_.runner->open_sequence();
      const Stopwatch watch;
      Result<void> done = fill({sequence}, 0, tokens, /*sample_last=*/true);
      const double seconds = watch.seconds();
      model_.runner->close_sequence(sequence);
      MB_TRY(std::move(done));
      return seconds;
    };
    const int64_t chunk = model_.runner_options.prefill_chunk_tokens;
    const auto chunks = static_cast<uint64_t>((tokens + chunk - 1) / chunk);
    const uint64_t head_bytes = model_.weights.head().size_bytes();
    const uint64_t bytes = chunks * (model_.weights.bytes_per_token() - head_bytes) + head_bytes;
    return measure("prefill", tokens, 0, 1, tokens, bytes, once);
  }

  Result<base::Json> decode(int64_t depth, int64_t batch) {
    const int64_t steps = options_.decode_tokens;
    MB_TRY(prepare(size_of_decode(options_, depth, batch)));
    std::vector<int> sequences(static_cast<size_t>(batch));
    const auto once = [&]() -> Result<double> {
      MB_TRY(open_at(depth, sequences));
      const Stopwatch watch;
      Result<void> done;
      for (int64_t i = 0; i < steps && done.ok(); ++i) done = step(sequences, depth + i);
      const double seconds = watch.seconds();
      for (const int sequence : sequences) model_.runner->close_sequence(sequence);
      MB_TRY(std::move(done));
      return seconds;
    };
    uint64_t bytes = 0;
    for (int64_t i = 0; i < steps; ++i) {
      bytes += model_.weights.bytes_per_token() +
               static_cast<uint64_t>(batch) * kv_read_bytes(model_, depth + i);
    }
    return measure("decode", steps, depth, batch, steps * batch, bytes, once);
  }

 private:
  // A runner of the size that the test needs; the budget given was looked at before the weights
  // were read.
  Result<void> prepare(const Size& size) {
    const runtime::RunnerOptions runner = runner_of(size, model_.runner_options);
    model_.runner.reset();
    const ops::Backend& backend = *model_.backend.backend;
    const uint64_t wanted = ModelRunner::kv_bytes(model_.config, backend, runner) +
                            ModelRunner::scratch_bytes(model_.config, backend, runner);
    const uint64_t available = runtime::machine_memory().available_bytes;
    if (wanted > available) {
      return base::out_of_memory("bench: batch {} at {} tokens needs {}, and {} are free",
                                 size.batch, size.tokens, runtime::bytes_text(wanted),
                                 runtime::bytes_text(available));
    }
    return model_.make_runner(runner);
  }

  // Fresh sequences that hold positions [0, depth). Every one has ids of its own, so that none
  // reads another one's keys; the first time they are kept, later only what follows the last block
  // border is computed again.
  Result<void> open_at(int64_t depth, std::vector<int>& sequences) {
    std::vector<int32_t> ids(static_cast<size_t>(depth) + 1);
    for (int& sequence : sequences) {
      sequence = model_.runner->open_sequence();
      for (int64_t p = 0; p <= depth; ++p) ids[static_cast<size_t>(p)] = id_at(p, sequence);
      const int64_t kept = model_.runner->adopt_prefix(sequence, ids);
      MB_TRY(fill({sequence}, kept, depth, /*sample_last=*/false));
      model_.runner->keep_prefix(sequence, std::span(ids).first(ids.size() - 1));
    }
    return {};
  }

  // Positions [begin, end) of every sequence, chunk after chunk.
  Result<void> fill(const std::vector<int>& sequences, int64_t begin, int64_t end,
                    bool sample_last) {
    const int64_t chunk = model_.runner_options.prefill_chunk_tokens;
    for (const int sequence : sequences) {
      for (int64_t at = begin; at < end; at += chunk) {
        rows_.clear();
        for (int64_t p = at; p < std::min(end, at + chunk); ++p) add_row(p, sequence);
        if (sample_last && at + chunk >= end) {
          MB_TRY(sample({static_cast<int32_t>(rows_.size()) - 1}));
        } else {
          MB_TRY(model_.runner->run(rows_));
        }
      }
    }
    return {};
  }

  Result<void> step(const std::vector<int>& sequences, int64_t position) {
    rows_.clear();
    outputs_.clear();
    for (const int sequence : sequences) {
      outputs_.push_back(static_cast<int32_t>(rows_.size()));
      add_row(position, sequence);
    }
    return sample(outputs_);
  }

  Result<void> sample(const std::vector<int32_t>& outputs) {
    params_.assign(outputs.size(), ops::SamplingParams{.temperature = 0.0F});
    ids_.resize(outputs.size());
    return model_.runner->run_and_sample(rows_, outputs, params_, ids_);
  }

  // Ids without meaning: speed does not depend on them.
  int32_t id_at(int64_t position, int sequence) const {
    return static_cast<int32_t>((position * 7919 + sequence * int64_t{104729} + 11) %
                                model_.config.vocab_size);
  }

  void add_row(int64_t position, int sequence) {
    rows_.push_back({id_at(position, sequence), static_cast<int32_t>(position), sequence});
  }

  // One more run begins. Each test has a warm-up.
  void tell() {
    const size_t num_decodes =
        options_.decode_tokens == 0 ? 0 : options_.depths.size() * options_.batches.size();
    const size_t num_tests = options_.prefill_tokens.size() + num_decodes;
    const uint64_t runs = num_tests * (static_cast<uint64_t>(options_.repetitions) + 1);
    if (model_.progress) model_.progress({"measuring", runs_++, runs, Progress::Unit::kRuns});
  }

  template <class Once>
  Result<base::Json> measure(const char* kind, int64_t tokens, int64_t depth, int64_t batch,
                             int64_t counted_tokens, uint64_t bytes, const Once& once) {
    tell();
    MB_TRY(once());  // warm-up: pages, caches, clock
    std::vector<double> rates;
    std::vector<double> shares;
    std::vector<double> probes;
    for (int i = 0; i < options_.repetitions; ++i) {
      tell();
      const double gb_per_s = probe_.measure();
      MB_ASSIGN(const double seconds, once());
      rates.push_back(static_cast<double>(counted_tokens) / seconds);
      shares.push_back(static_cast<double>(bytes) / seconds / 1e9 / gb_per_s);
      probes.push_back(gb_per_s);
    }
    return base::Json{{"kind", kind},
                      {"tokens", tokens},
                      {"depth", depth},
                      {"batch", batch},
                      {"tokens_per_s",
                       {{"median", runtime::median(rates)},
                        {"min", *std::min_element(rates.begin(), rates.end())},
                        {"max", *std::max_element(rates.begin(), rates.end())}}},
                      {"bytes_read", bytes},
                      {"share_of_bandwidth", runtime::median(shares)},
                      {"bandwidth_gb_per_s", runtime::median(probes)},
                      {"repetitions", options_.repetitions}};
  }

  LoadedModel& model_;
  runtime::BandwidthProbe& probe_;
  const BenchOptions& options_;
  uint64_t runs_ = 0;  // begun
  std::vector<StepRow> rows_;
  std::vector<int32_t> outputs_;
  std::vector<ops::SamplingParams> params_;
  std::vector<int32_t> ids_;
};

Result<void> check_options(const BenchOptions& options) {
  const auto all_from = [](const std::vector<int64_t>& values, int64_t low) {
    return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v >= low; });
  };
  if (!all_from(options.prefill_tokens, 1))
    return base::usage_error("bench: -p: expected 1 or more");
  if (!all_from(options.depths, 0)) return base::usage_error("bench: -d: expected 0 or more");
  if (!all_from(options.batches, 1)) return base::usage_error("bench: -b: expected 1 or more");
  if (options.decode_tokens < 0) return base::usage_error("bench: -n: expected 0 or more");
  if (options.repetitions < 1) return base::usage_error("bench: -r: expected 1 or more");
  if (options.arrivals.requests < 0) {
    return base::usage_error("bench: --arrivals: expected 1 or more");
  }
  return {};
}

// The plan of the test that needs most. Errors: kUsage for a test beyond the context, kOutOfMemory
// with the plan of the first that does not fit.
Result<runtime::MemoryPlan> plan_largest(const model::TextConfig& config,
                                         const model::WeightMap& map, const ops::Backend& backend,
                                         const EngineOptions& engine, const BenchOptions& options,
                                         const runtime::RunnerOptions& at_load) {
  MB_ASSIGN(const int64_t limit, runtime::context_limit(config, engine));
  std::vector<Size> sizes = sizes_of(options);
  if (sizes.empty()) sizes.push_back({});  // loading alone
  runtime::MemoryPlan largest;
  for (const Size& size : sizes) {
    if (size.tokens > limit) {
      return base::usage_error(
          "bench: expected tests within the context of {} tokens, got one of {}", limit,
          size.tokens);
    }
    runtime::RunnerOptions runner = runner_of(size, at_load);
    runner.context_tokens = std::max(size.tokens, at_load.context_tokens);
    runtime::MemoryPlan plan =
        runtime::plan_memory(config, map, backend, runner, engine.memory_bytes);
    plan.probe_bytes = runtime::BandwidthProbe::kBytes;
    if (!plan.fits()) {
      return base::out_of_memory("bench: {} sequence{} of {} tokens: does not fit: {}", size.batch,
                                 size.batch == 1 ? "" : "s", size.tokens, runtime::plan_text(plan));
    }
    if (plan.total_bytes() > largest.total_bytes()) largest = plan;
  }
  return largest;
}

Result<std::string> bench_unguarded(const std::string& path, const EngineOptions& engine,
                                    const BenchOptions& options) {
  MB_TRY(check_options(options));
  if (options.arrivals.requests > 0) return runtime::bench_arrivals(path, engine, options);
  // Each test brings its own runner: the one made at load need not hold a long context.
  const auto plan = [&](const model::TextConfig& config, const model::WeightMap& map,
                        const ops::Backend& backend, runtime::RunnerOptions* runner) {
    runner->context_tokens = 1;
    return plan_largest(config, map, backend, engine, options, *runner);
  };
  EngineOptions at_load = engine;
  at_load.context_tokens = 1;
  MB_ASSIGN(const auto model, runtime::load_model(path, at_load, plan));
  MB_ASSIGN(auto probe, runtime::BandwidthProbe::create(*model->backend.pool));
  Bench bench(*model, probe, options);
  base::Json tests = base::Json::array({runtime::load_test(*model)});
  for (const int64_t tokens : options.prefill_tokens) {
    MB_ASSIGN(base::Json test, bench.prefill(tokens));
    tests.push_back(std::move(test));
  }
  for (const int64_t depth : options.depths) {
    for (const int64_t batch : options.batches) {
      if (options.decode_tokens == 0) continue;
      MB_ASSIGN(base::Json test, bench.decode(depth, batch));
      tests.push_back(std::move(test));
    }
  }
  return runtime::bench_document(*model, std::move(tests));
}

}  // namespace

Result<std::string> bench_json(const std::string& path, const EngineOptions& engine,
                               const BenchOptions& options) {
  return base::guarded("bench_json", [&] { return bench_unguarded(path, engine, options); });
}

}  // namespace markbase::tools
