// What the scheduler itself costs while many answers are under way.
//   scheduler_bench MODEL [--threads N] [--streams N] [--tokens N]
// N streams (64) of N tokens (128) each, greedy and drawn by turns, with a callback for each token.
// Prints one JSON object: milliseconds of a step inside the model and around it (choosing rows,
// text, callbacks), and the second as a share of both.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "markbase/engine.h"

namespace markbase {
namespace {

struct Options {
  std::string model;
  int threads = 0;
  int64_t streams = 64;
  int64_t tokens = 128;
};

[[noreturn]] void stop(const std::string& what) {
  std::fprintf(stderr, "scheduler_bench: %s\n", what.c_str());
  std::exit(1);
}

Request request_of(int64_t stream, int64_t vocab_size, int64_t tokens) {
  Request request;
  for (int64_t i = 0; i < 16; ++i)
    request.ids.push_back(static_cast<int32_t>(2 + (i * 7919 + 13 * stream) % (vocab_size - 2)));
  request.max_tokens = tokens;
  request.ignore_eos = true;
  request.sampling.seed = static_cast<uint64_t>(stream);
  request.sampling.temperature = stream % 2 == 0 ? 0.0F : 1.0F;
  request.sampling.top_k = 64;
  return request;
}

int main_of(const Options& options) {
  EngineOptions engine_options;
  engine_options.num_threads = options.threads;
  engine_options.max_sequences = options.streams;
  Result<Engine> engine = Engine::load(options.model, engine_options);
  if (!engine.ok()) stop(engine.error().message);
  const int64_t vocab_size = engine->info().vocab_size;
  std::vector<std::shared_ptr<RequestHandle>> handles;
  for (int64_t i = 0; i < options.streams; ++i) {
    auto handle = engine->submit(request_of(i, vocab_size, options.tokens),
                                 [](const TokenEvent&) { return true; });
    if (!handle.ok()) stop(handle.error().message);
    handles.push_back(std::move(handle).value());
  }
  for (const auto& handle : handles) {
    if (auto done = handle->wait(); !done.ok()) stop(done.error().message);
  }
  const EngineStats stats = engine->stats();
  const auto steps = static_cast<double>(stats.steps);
  std::printf(
      "{\"streams\": %ld, \"steps\": %ld, \"generated_tokens\": %ld, \"model_ms\": %.3f, "
      "\"around_ms\": %.3f, \"share\": %.4f}\n",
      static_cast<long>(options.streams), static_cast<long>(stats.steps),
      static_cast<long>(stats.generated_tokens), stats.step_ms / steps, stats.scheduling_ms / steps,
      stats.scheduling_ms / (stats.step_ms + stats.scheduling_ms));
  return 0;
}

}  // namespace
}  // namespace markbase

int main(int argc, char** argv) {
  markbase::Options options;
  CLI::App app{"What the scheduler itself costs while many answers are under way"};
  app.add_option("model", options.model, "a model")->required();
  app.add_option("--threads", options.threads)->check(CLI::Range(1, markbase::kMostThreads));
  app.add_option("--streams", options.streams)
      ->check(CLI::Range(int64_t{1}, markbase::kMostSequences));
  app.add_option("--tokens", options.tokens)->check(CLI::Range(int64_t{1}, int64_t{100'000}));
  CLI11_PARSE(app, argc, argv);
  return markbase::main_of(options);
}
