// How long answers under way wait for their next token when a long prompt arrives.
//   stall_bench MODEL [--threads N] [--streams N] [--prompt N]
// N streams (8) decode; when each has 32 tokens, a prompt of N tokens (20,000) comes with default
// settings. Measured on the streams alone, from its arrival to its first token: the median and the
// worst time between two tokens, beside the same of the second before. Prints one JSON object.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <CLI/CLI.hpp>

#include "markbase/engine.h"

namespace markbase {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::string model;
  int threads = 0;
  int64_t streams = 8;
  int64_t prompt = 20000;
};

[[noreturn]] void stop(const std::string& what) {
  std::fprintf(stderr, "stall_bench: %s\n", what.c_str());
  std::exit(1);
}

Request request_of(int64_t tokens, int64_t vocab_size, int64_t max_tokens, uint64_t seed) {
  Request request;
  for (int64_t i = 0; i < tokens; ++i)
    request.ids.push_back(
        static_cast<int32_t>(2 + (i * 7919 + 13 * static_cast<int64_t>(seed)) % (vocab_size - 2)));
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  request.sampling.seed = seed;
  return request;
}

// When each token of a stream came.
struct Stream {
  std::mutex mutex;
  std::vector<Clock::time_point> times;
  std::shared_ptr<RequestHandle> handle;
};

// Times between tokens that came within [from, to].
std::vector<double> gaps(const std::vector<std::unique_ptr<Stream>>& streams,
                         Clock::time_point from, Clock::time_point to) {
  std::vector<double> ms;
  for (const auto& stream : streams) {
    const std::lock_guard lock(stream->mutex);
    for (size_t i = 1; i < stream->times.size(); ++i) {
      if (stream->times[i] < from || stream->times[i] > to) continue;
      ms.push_back(
          std::chrono::duration<double, std::milli>(stream->times[i] - stream->times[i - 1])
              .count());
    }
  }
  std::sort(ms.begin(), ms.end());
  return ms;
}

void print(const char* name, const std::vector<double>& ms, const char* end) {
  if (ms.empty()) stop("no token came");
  std::printf(
      "\"%s\": {\"tokens\": %zu, \"median_ms\": %.2f, \"worst_ms\": %.2f, \"ratio\": %.2f}%s", name,
      ms.size(), ms[ms.size() / 2], ms.back(), ms.back() / ms[ms.size() / 2], end);
}

int main_of(const Options& options) {
  EngineOptions engine_options;
  engine_options.num_threads = options.threads;
  engine_options.max_sequences = options.streams + 1;
  Result<Engine> engine = Engine::load(options.model, engine_options);
  if (!engine.ok()) stop(engine.error().message);
  const int64_t vocab = engine->info().vocab_size;
  std::vector<std::unique_ptr<Stream>> streams;
  std::atomic<int64_t> ready{0};
  for (int64_t i = 0; i < options.streams; ++i) {
    streams.push_back(std::make_unique<Stream>());
    Stream& stream = *streams.back();
    auto handle = engine->submit(request_of(16, vocab, -1, static_cast<uint64_t>(i)),
                                 [&stream, &ready](const TokenEvent& event) {
                                   if (event.id < 0) return true;
                                   const std::lock_guard lock(stream.mutex);
                                   stream.times.push_back(Clock::now());
                                   if (stream.times.size() == 32) ++ready;
                                   return true;
                                 });
    if (!handle.ok()) stop(handle.error().message);
    stream.handle = *handle;
  }
  while (ready < options.streams) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto arrival = Clock::now();
  Result<Completion> answer = engine->generate(request_of(options.prompt, vocab, 1, 99));
  const auto first = Clock::now();
  for (const auto& stream : streams) stream->handle->cancel();
  for (const auto& stream : streams) (void)stream->handle->wait();
  if (!answer.ok()) stop(answer.error().message);
  std::printf(
      "{\"backend\": \"%s\", \"streams\": %lld, \"prompt_tokens\": %lld, \"ttft_ms\": %.0f, ",
      engine->info().backend.c_str(), static_cast<long long>(options.streams),
      static_cast<long long>(options.prompt), answer->timings.ttft_ms);
  print("before", gaps(streams, arrival - std::chrono::seconds(1), arrival), ", ");
  print("during", gaps(streams, arrival, first), "}\n");
  return 0;
}

}  // namespace
}  // namespace markbase

int main(int argc, char** argv) {
  markbase::Options options;
  CLI::App app{"How long answers under way wait for a token when a long prompt arrives"};
  app.add_option("model", options.model, "a model")->required();
  app.add_option("--threads", options.threads)->check(CLI::Range(1, markbase::kMostThreads));
  // One place is the prompt's.
  app.add_option("--streams", options.streams)
      ->check(CLI::Range(int64_t{1}, markbase::kMostSequences - 1));
  app.add_option("--prompt", options.prompt)->check(CLI::Range(int64_t{1}, int64_t{10'000'000}));
  CLI11_PARSE(app, argc, argv);
  return markbase::main_of(options);
}
