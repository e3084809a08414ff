// A tiny random Gemma 3 against transformers, and the promises that hold for any model.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "markbase/engine.h"
#include "runtime/generation.h"
#include "runtime/loaded_model.h"
#include "support/allocation_counter.h"
#include "support/golden.h"

namespace markbase {
namespace {

using testing::golden_path;
using testing::read_npy;

EngineOptions options_for(BackendKind backend) {
  EngineOptions options;
  options.backend = backend;
  options.num_threads = 2;
  return options;
}

Engine load(const std::string& name, const EngineOptions& options) {
  Result<Engine> engine = Engine::load(golden_path(name), options);
  if (!engine.ok()) ADD_FAILURE() << engine.error().message;
  return *std::move(engine);
}

std::vector<float> all_logits(Engine& engine, const std::vector<int32_t>& ids) {
  std::vector<float> out;
  const Result<void> done =
      engine.logits(ids, false, [&](int64_t, std::span<const float> row) -> Result<void> {
        out.insert(out.end(), row.begin(), row.end());
        return {};
      });
  if (!done.ok()) ADD_FAILURE() << done.error().message;
  return out;
}

double worst_difference(std::span<const float> got, std::span<const float> expected) {
  EXPECT_EQ(got.size(), expected.size());
  double worst = 0;
  for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i) {
    const double difference =
        std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

class TinyModel : public ::testing::TestWithParam<const char*> {
 protected:
  std::string name() const { return GetParam(); }
  std::string model() const {
    return name() == "tiny_gemma3_gguf" ? name() + "/tiny.gguf" : name();
  }
  std::vector<int32_t> ids() const {
    return read_npy<int32_t>(golden_path(name() + "/ids.npy")).values;
  }
};

TEST_P(TinyModel, ReferenceLogits) {
  Engine engine = load(model(), options_for(BackendKind::kRef));
  const auto expected = read_npy<float>(golden_path(name() + "/logits.npy"));
  EXPECT_LE(worst_difference(all_logits(engine, ids()), expected.values), 1e-4);
}

// The K and V cache in float32 leaves the 16-bit activations as the one difference. An activation
// is off by at most 2^-16 of its row's largest value, a product of n terms then by about sqrt(n)
// times that; seven layers of four products with n <= 64, values of a few units, give 7 * 4 * 8 *
// 2^-16 * 4 = 0.014.
TEST_P(TinyModel, CpuLogits) {
  EngineOptions options = options_for(BackendKind::kCpu);
  options.kv = "f32";
  Engine engine = load(model(), options);
  const auto expected = read_npy<float>(golden_path(name() + "/logits.npy"));
  EXPECT_LE(worst_difference(all_logits(engine, ids()), expected.values), 0.014);
}

TEST_P(TinyModel, GreedyIds) {
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    Engine engine = load(model(), options_for(backend));
    Request request;
    request.ids = ids();
    const auto expected = read_npy<int32_t>(golden_path(name() + "/greedy.npy")).values;
    request.max_tokens = static_cast<int64_t>(expected.size());
    request.sampling.temperature = 0.0F;
    request.ignore_eos = true;
    const Result<Completion> answer = engine.generate(request);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->ids, expected) << engine.info().backend;
    EXPECT_EQ(answer->finish_reason, "length");
  }
}

TEST_P(TinyModel, PrefillChunksGiveTheSameBytes) {
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    std::vector<float> first;
    for (const int64_t chunk : {512, 64, 7, 1}) {
      EngineOptions options = options_for(backend);
      options.prefill_chunk_tokens = chunk;
      Engine engine = load(model(), options);
      // Three windows long, so that the sliding layers' rings wrap.
      std::vector<int32_t> text = ids();
      for (size_t i = 0; text.size() < 200; ++i)
        text.push_back(static_cast<int32_t>((i * 37 + 5) % 300));
      const std::vector<float> got = all_logits(engine, text);
      if (first.empty()) first = got;
      EXPECT_TRUE(got == first) << "chunk " << chunk << " on " << engine.info().backend;
    }
  }
}

TEST_P(TinyModel, ThreadsGiveTheSameBytes) {
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    std::vector<float> first;
    for (const int threads : {1, 2, 3, 7}) {
      EngineOptions options = options_for(backend);
      options.num_threads = threads;
      Engine engine = load(model(), options);
      const std::vector<float> got = all_logits(engine, ids());
      if (first.empty()) first = got;
      EXPECT_TRUE(got == first) << threads << " threads on " << engine.info().backend;
    }
  }
}

TEST_P(TinyModel, TraceEndsInTheSameLogits) {
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    EngineOptions options = options_for(backend);
    options.prefill_chunk_tokens = 16;
    Engine engine = load(model(), options);
    std::vector<float> traced;
    const Result<void> done = engine.trace(
        ids(), "*", [](const TraceTensor&) -> Result<void> { return {}; },
        [&](int64_t, std::span<const float> row) -> Result<void> {
          traced.insert(traced.end(), row.begin(), row.end());
          return {};
        });
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_TRUE(traced == all_logits(engine, ids())) << engine.info().backend;
  }
}

INSTANTIATE_TEST_SUITE_P(Files, TinyModel,
                         ::testing::Values("tiny_gemma3_f32", "tiny_gemma3_bf16",
                                           "tiny_gemma3_gguf"));

TEST(TinyTrace, IntermediatesOfTheReference) {
  for (const std::string name : {"tiny_gemma3_f32", "tiny_gemma3_bf16"}) {
    Engine engine = load(name, options_for(BackendKind::kRef));
    const auto ids = read_npy<int32_t>(golden_path(name + "/ids.npy")).values;
    std::map<std::string, std::vector<float>> seen;
    const Result<void> done =
        engine.trace(ids, "*",
                     [&](const TraceTensor& tensor) -> Result<void> {
                       auto& values = seen[std::string(tensor.name)];
                       values.insert(values.end(), tensor.values.begin(), tensor.values.end());
                       return {};
                     },
                     {});
    ASSERT_TRUE(done.ok()) << done.error().message;
    std::vector<std::string> names = {"embedding", "final_norm"};
    for (int layer = 0; layer < 7; ++layer) {
      for (const char* part : {"attn.o_proj", "mlp.down_proj", "output"}) {
        names.push_back("layer." + std::to_string(layer) + "." + part);
      }
    }
    for (const std::string& traced : names) {
      const auto expected = read_npy<float>(golden_path(name + "/trace/" + traced + ".npy"));
      ASSERT_TRUE(seen.contains(traced)) << traced;
      EXPECT_LE(worst_difference(seen[traced], expected.values), 1e-4) << name << " " << traced;
    }
  }
}

TEST(TinyTrace, NamesAreThoseListed) {
  const auto model =
      runtime::load_model(golden_path("tiny_gemma3_f32"), options_for(BackendKind::kRef));
  ASSERT_TRUE(model.ok());
  std::vector<std::string> listed;
  for (const auto& entry : model::trace_names((*model)->config)) listed.push_back(entry.name);
  std::vector<std::string> seen;
  Engine engine = load("tiny_gemma3_f32", options_for(BackendKind::kRef));
  const std::vector<int32_t> ids = {2};
  ASSERT_TRUE(engine
                  .trace(ids, "*",
                         [&](const TraceTensor& tensor) -> Result<void> {
                           seen.emplace_back(tensor.name);
                           return {};
                         },
                         {})
                  .ok());
  seen.push_back("logits");  // these come through their own callback
  EXPECT_EQ(seen, listed);
}

// Eight sequences of different lengths decode in one step; each gives the ids and logits it gives
// alone.
TEST(TinyBatch, EightTogetherAreEachAlone) {
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    auto model =
        runtime::load_model(golden_path("tiny_gemma3_gguf/tiny.gguf"), options_for(backend));
    ASSERT_TRUE(model.ok()) << model.error().message;
    constexpr int kSequences = 8;
    constexpr int kSteps = 20;
    const auto prompt_of = [](int s) {
      std::vector<int32_t> ids = {2};
      for (int i = 0; i < 5 + 4 * s; ++i) ids.push_back((i * 31 + s * 17 + 4) % 300);
      return ids;
    };
    const auto run = [&](std::vector<int> which) {
      runtime::RunnerOptions options = (*model)->runner_options;
      options.max_sequences = kSequences;
      EXPECT_TRUE((*model)->make_runner(options).ok());
      runtime::ModelRunner& runner = *(*model)->runner;
      std::map<int, std::vector<int32_t>> answers;
      std::vector<int> slots;
      std::vector<int32_t> last(which.size());
      const ops::SamplingParams params{.temperature = 0.9F, .top_k = 50, .seed = 3};
      for (size_t i = 0; i < which.size(); ++i) {
        slots.push_back(runner.open_sequence());
        const auto ids = prompt_of(which[i]);
        runner.set_seen(slots.back(), ids);
        std::vector<runtime::StepRow> rows;
        runtime::fill_rows(ids, 0, slots.back(), &rows);
        const auto output = static_cast<int32_t>(rows.size()) - 1;
        EXPECT_TRUE(runner.run_and_sample(rows, {&output, 1}, {&params, 1}, {&last[i], 1}).ok());
        answers[which[i]].push_back(last[i]);
      }
      for (int step = 0; step < kSteps; ++step) {
        std::vector<runtime::StepRow> rows;
        std::vector<int32_t> outputs;
        const std::vector<ops::SamplingParams> all(which.size(), params);
        for (size_t i = 0; i < which.size(); ++i) {
          outputs.push_back(static_cast<int32_t>(i));
          const auto position = static_cast<int32_t>(prompt_of(which[i]).size()) + step;
          rows.push_back({last[i], position, slots[i]});
        }
        EXPECT_TRUE(runner.run_and_sample(rows, outputs, all, last).ok());
        for (size_t i = 0; i < which.size(); ++i) answers[which[i]].push_back(last[i]);
      }
      return answers;
    };
    const auto together = run({0, 1, 2, 3, 4, 5, 6, 7});
    for (int s = 0; s < kSequences; ++s) {
      EXPECT_EQ(run({s}).at(s), together.at(s)) << "sequence " << s;
    }
    EXPECT_EQ(run({5, 2, 7}).at(2), together.at(2));
  }
}

TEST(TinyEngine, DecodeStepAllocatesNothing) {
  if (!testing::AllocationCounter::available())
    GTEST_SKIP() << "allocations cannot be counted here";
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    auto model =
        runtime::load_model(golden_path("tiny_gemma3_gguf/tiny.gguf"), options_for(backend));
    ASSERT_TRUE(model.ok()) << model.error().message;
    runtime::ModelRunner& runner = *(*model)->runner;
    const int sequence = runner.open_sequence();
    const ops::SamplingParams params{.temperature = 1.0F, .top_k = 40, .top_p = 0.9F, .seed = 1};
    const int32_t output = 0;
    int32_t id = 2;
    std::vector<runtime::StepRow> rows(1);
    const auto step = [&](int32_t position) {
      rows[0] = {id, position, sequence};
      return runner.run_and_sample(rows, {&output, 1}, {&params, 1}, {&id, 1}).ok();
    };
    ASSERT_TRUE(step(0));
    bool ok = true;
    const testing::AllocationCounter counter;
    // Past a window and into new cache blocks.
    for (int32_t position = 1; position < 100; ++position) ok = step(position) && ok;
    EXPECT_EQ(counter.count(), 0) << (*model)->backend.description;
    EXPECT_TRUE(ok);
  }
}

TEST(TinyEngine, TwoEnginesInOneProcess) {
  Engine a = load("tiny_gemma3_f32", options_for(BackendKind::kCpu));
  Engine b = load("tiny_gemma3_gguf/tiny.gguf", options_for(BackendKind::kCpu));
  const auto request_of = [](uint64_t seed) {
    Request request;
    request.ids = {2, 7, 9, 11};
    request.max_tokens = 40;
    request.ignore_eos = true;
    request.sampling.seed = seed;
    return request;
  };
  const auto alone_a = a.generate(request_of(5));
  const auto alone_b = b.generate(request_of(6));
  auto handle_a = a.submit(request_of(5), {});
  auto handle_b = b.submit(request_of(6), {});
  ASSERT_TRUE(alone_a.ok() && alone_b.ok() && handle_a.ok() && handle_b.ok());
  EXPECT_EQ((*handle_a)->wait()->ids, alone_a->ids);
  EXPECT_EQ((*handle_b)->wait()->ids, alone_b->ids);
}

TEST(TinyEngine, SamplingIsReproducible) {
  Engine engine = load("tiny_gemma3_gguf/tiny.gguf", options_for(BackendKind::kCpu));
  Request request;
  request.ids = {2, 50, 60};
  request.max_tokens = 30;
  request.ignore_eos = true;
  request.sampling.seed = 42;
  const auto first = engine.generate(request);
  const auto second = engine.generate(request);
  request.sampling.seed = 43;
  const auto other_seed = engine.generate(request);
  request.sampling.seed = 42;
  request.answer_idx = 1;
  const auto other_answer = engine.generate(request);
  ASSERT_TRUE(first.ok() && second.ok() && other_seed.ok() && other_answer.ok());
  EXPECT_EQ(first->ids, second->ids);
  EXPECT_NE(first->ids, other_seed->ids);
  EXPECT_NE(first->ids, other_answer->ids);
}

TEST(TinyEngine, StopStringEndsTheTextBeforeIt) {
  Engine engine = load("tiny_gemma3_gguf/tiny.gguf", options_for(BackendKind::kRef));
  Request request;
  request.ids = read_npy<int32_t>(golden_path("tiny_gemma3_gguf/ids.npy")).values;
  request.max_tokens = 24;
  request.sampling.temperature = 0.0F;
  request.ignore_eos = true;
  const auto whole = engine.generate(request);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  ASSERT_GE(whole->text.size(), 6U);
  const std::string stop = whole->text.substr(2, 3);
  request.stop = {stop};
  std::string streamed;
  const auto answer = engine.generate(request, [&](const TokenEvent& event) {
    streamed += event.text;
    return true;
  });
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->finish_reason, "stop");
  EXPECT_EQ(answer->text, whole->text.substr(0, whole->text.find(stop)));
  EXPECT_EQ(streamed, answer->text);
}

TEST(TinyEngine, ContextEndsTheAnswer) {
  EngineOptions options = options_for(BackendKind::kCpu);
  options.context_tokens = 10;
  Engine engine = load("tiny_gemma3_gguf/tiny.gguf", options);
  Request request;
  request.ids = {2, 5, 6, 7};
  request.ignore_eos = true;
  const auto answer = engine.generate(request);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->finish_reason, "length");
  // Ten positions are run, the last of them gives one id more.
  EXPECT_EQ(answer->ids.size(), 7U);
}

TEST(TinyEngine, EndsWhenTheCallbackSaysSo) {
  Engine engine = load("tiny_gemma3_gguf/tiny.gguf", options_for(BackendKind::kCpu));
  Request request;
  request.ids = {2, 5};
  request.ignore_eos = true;
  int events = 0;
  const auto answer = engine.generate(request, [&](const TokenEvent&) { return ++events < 3; });
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->finish_reason, "cancelled");
  EXPECT_EQ(answer->ids.size(), 3U);
}

TEST(TinyEngine, DestructionEndsRequests) {
  std::shared_ptr<RequestHandle> handle;
  {
    Engine engine = load("tiny_gemma3_gguf/tiny.gguf", options_for(BackendKind::kCpu));
    Request request;
    request.ids = {2, 5};
    request.ignore_eos = true;
    for (int i = 0; i < 4; ++i) handle = *engine.submit(request, {});
  }
  const auto answer = handle->wait();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->finish_reason, "cancelled");
}

TEST(TinyEngine, RefusesWhatItCannotHonour) {
  const auto code_of = [](auto change) {
    EngineOptions options = options_for(BackendKind::kCpu);
    change(options);
    const Result<Engine> engine = Engine::load(golden_path("tiny_gemma3_f32"), options);
    return engine.ok() ? 0 : static_cast<int>(engine.error().code);
  };
  constexpr int kUsage = static_cast<int>(ErrorCode::kUsage);
  EXPECT_EQ(code_of([](EngineOptions&) {}), 0);
  EXPECT_EQ(code_of([](EngineOptions& o) { o.backend = BackendKind::kCuda; }), kUsage);
  EXPECT_EQ(code_of([](EngineOptions& o) { o.cpu_isa = "sse9"; }), kUsage);
  EXPECT_EQ(code_of([](EngineOptions& o) { o.kv = "f8"; }), kUsage);
  EXPECT_EQ(code_of([](EngineOptions& o) { o.activations = "4"; }), kUsage);
  EXPECT_EQ(code_of([](EngineOptions& o) { o.num_threads = -1; }), kUsage);
  EXPECT_EQ(code_of([](EngineOptions& o) { o.prefill_chunk_tokens = 0; }), kUsage);
  EXPECT_EQ(code_of([](EngineOptions& o) { o.context_tokens = 257; }), kUsage);
  EXPECT_EQ(code_of([](EngineOptions& o) { o.backend = static_cast<BackendKind>(7); }), kUsage);
  EXPECT_EQ(code_of([](EngineOptions& o) { o.memory_bytes = 1000; }),
            static_cast<int>(ErrorCode::kOutOfMemory));
}

// Every number at and just beyond the ends of its range, and at those of its type.
TEST(TinyEngine, RefusesNumbersOutOfRange) {
  const auto message_of = [](auto change) -> std::string {
    EngineOptions options = options_for(BackendKind::kCpu);
    change(options);
    const Result<Engine> engine = Engine::load(golden_path("tiny_gemma3_f32"), options);
    if (engine.ok()) return "taken";
    EXPECT_EQ(engine.error().code, ErrorCode::kUsage) << engine.error().message;
    return engine.error().message;
  };
  struct Row {
    int64_t EngineOptions::*number;
    const char* name;
    std::vector<int64_t> taken, refused;
  };
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const Row& row : std::vector<Row>{
           {&EngineOptions::context_tokens, "--ctx", {0, 1, 256}, {-1, 257, kLeast, kMost}},
           {&EngineOptions::prefill_chunk_tokens,
            "--prefill-chunk",
            {1},
            {-1, 0, 65537, kLeast, kMost}},
           {&EngineOptions::max_sequences, "max_sequences", {1}, {-1, 0, 1025, kLeast, kMost}},
           {&EngineOptions::max_queue,
            "max_queue",
            {0, 1, 1'000'000'000},
            {-1, -8, 1'000'000'001, kLeast, kMost - 7, kMost}}}) {
    for (const int64_t value : row.taken) {
      EXPECT_EQ(message_of([&](EngineOptions& o) { o.*row.number = value; }), "taken")
          << row.name << " " << value;
    }
    for (const int64_t value : row.refused) {
      const std::string message = message_of([&](EngineOptions& o) { o.*row.number = value; });
      EXPECT_NE(message.find(row.name), std::string::npos) << row.name << " " << value << message;
      EXPECT_NE(message.find("got " + std::to_string(value)), std::string::npos) << message;
    }
  }
  for (const int threads :
       {-1, 257, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()}) {
    EXPECT_NE(message_of([&](EngineOptions& o) { o.num_threads = threads; }).find("--threads"),
              std::string::npos);
  }
}

// What only the CPU backend has a use for is no option of the reference.
TEST(TinyEngine, TheReferenceRefusesOptionsOfKernels) {
  const auto message_of = [](auto change) -> std::string {
    EngineOptions options = options_for(BackendKind::kRef);
    change(options);
    const Result<Engine> engine = Engine::load(golden_path("tiny_gemma3_f32"), options);
    if (engine.ok()) return "taken";
    EXPECT_EQ(engine.error().code, ErrorCode::kUsage) << engine.error().message;
    return engine.error().message;
  };
  EXPECT_EQ(message_of([](EngineOptions&) {}), "taken");
  EXPECT_EQ(message_of([](EngineOptions& o) { o.activations = "16"; }), "taken");
  for (const char* level : {"generic", "avx2", "sse9", ""}) {
    const std::string message = message_of([&](EngineOptions& o) { o.cpu_isa = level; });
    EXPECT_NE(message.find("--cpu-isa"), std::string::npos) << level << ": " << message;
  }
  for (const char* bits : {"q8", "4", ""}) {
    const std::string message = message_of([&](EngineOptions& o) { o.activations = bits; });
    EXPECT_NE(message.find("--activations"), std::string::npos) << bits << ": " << message;
  }
}

TEST(TinyEngine, RefusesBadPrompts) {
  Engine engine = load("tiny_gemma3_gguf/tiny.gguf", options_for(BackendKind::kCpu));
  const auto code_of = [&](std::vector<int32_t> ids) {
    Request request;
    request.ids = std::move(ids);
    request.max_tokens = 1;
    const auto answer = engine.generate(request);
    return answer.ok() ? 0 : static_cast<int>(answer.error().code);
  };
  constexpr int kUsage = static_cast<int>(ErrorCode::kUsage);
  EXPECT_EQ(code_of({2}), 0);
  EXPECT_EQ(code_of({}), kUsage);
  EXPECT_EQ(code_of({-1}), kUsage);
  EXPECT_EQ(code_of({300}), kUsage);
  EXPECT_EQ(code_of(std::vector<int32_t>(5000, 3)), kUsage);
}

}  // namespace
}  // namespace markbase
