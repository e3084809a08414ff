// Memory that runs out at every allocation of load and of submit, one after the other: an error
// that says so, nothing lost, and the next try works.
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "markbase/engine.h"
#include "runtime/batch.h"
#include "support/failing_new.h"
#include "support/golden.h"
#include "support/random_decoder.h"

namespace markbase {
namespace {

using testing::FailingNew;

EngineOptions options_of() {
  EngineOptions options;
  options.backend = BackendKind::kCpu;
  options.num_threads = 2;
  options.context_tokens = 128;
  options.max_sequences = 2;
  return options;
}

std::string model() { return testing::golden_path("tiny_gemma3_gguf/tiny.gguf"); }

Request request_of() {
  Request request;
  request.text = "some words to be taken apart";
  request.text_is_set = true;
  request.max_tokens = 4;
  request.ignore_eos = true;
  request.stop = {"a string longer than any that stands in its own room"};
  request.num_answers = 3;
  return request;
}

TEST(OutOfMemory, LoadSaysSoAtEveryAllocation) {
  const std::string path = model();
  const EngineOptions options = options_of();
  int64_t refused = 0;
  bool failed = true;
  // The first hundred one by one, then in growing strides: there are tens of thousands.
  for (int64_t nth = 0; failed; nth += 1 + nth / 100) {
    Result<Engine> engine = Error{};
    {
      const FailingNew failing(nth);
      engine = Engine::load(path, options);
      failed = failing.failed();
    }
    if (engine.ok()) continue;  // what failed could be done without
    ASSERT_TRUE(failed) << engine.error().message;
    EXPECT_EQ(engine.error().code, ErrorCode::kOutOfMemory)
        << "allocation " << nth << ": " << engine.error().message;
    ++refused;
  }
  EXPECT_GT(refused, 100);
}

TEST(OutOfMemory, SubmitSaysSoAtEveryAllocation) {
  Result<Engine> engine = Engine::load(model(), options_of());
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const auto expected = engine->generate(request_of())->ids;
  int64_t refused = 0;
  bool failed = true;
  for (int64_t nth = 0; failed; ++nth) {
    Result<std::shared_ptr<RequestHandle>> handle = Error{};
    {
      Request request = request_of();
      const FailingNew failing(nth);
      handle = engine->submit(std::move(request), [](const TokenEvent&) { return true; });
      failed = failing.failed();
    }
    if (handle.ok()) {
      const Result<Completion> answer = (*handle)->wait();
      ASSERT_TRUE(answer.ok()) << answer.error().message;
      EXPECT_EQ(answer->ids, expected);
    } else {
      EXPECT_EQ(handle.error().code, ErrorCode::kOutOfMemory) << handle.error().message;
      ++refused;
    }
  }
  EXPECT_GT(refused, 4);
  EXPECT_EQ(engine->generate(request_of())->ids, expected);
  EXPECT_EQ(engine->stats().running + engine->stats().waiting, 0);
}

// Two answers with stop strings and log probabilities, and prefixes that are kept on the way.
TEST(OutOfMemory, StepsSaySoAtEveryAllocation) {
  const testing::RandomDecoder decoder(testing::DecoderShape::kSharedKeys, quant::Format::kQ8_0,
                                       testing::RandomDecoder::kVocab, 64);
  EngineOptions options = options_of();
  options.num_threads = 1;
  runtime::RunnerOptions runner;
  runner.context_tokens = 256;
  runner.prefill_chunk_tokens = 32;
  runner.max_sequences = 2;
  runner.kept_windows = 2;
  const auto model = decoder.load(options, runner);
  const auto answers = [&](std::optional<int64_t> nth, bool* failed) {
    runtime::Batch batch(*model);
    Request request;
    for (int32_t i = 0; i < 140; ++i) request.ids.push_back(i % 50);
    request.max_tokens = 6;
    request.ignore_eos = true;
    request.num_answers = 2;
    request.top_logprobs = 3;
    request.sampling.temperature = 1.0F;
    request.stop = {"a string that never comes"};
    const auto on_event = [](const TokenEvent&) { return true; };
    const auto state =
        std::make_shared<runtime::RequestState>(request, request.ids, on_event, std::thread::id());
    batch.add(state);
    {
      std::optional<FailingNew> failing;
      if (nth) failing.emplace(*nth);
      while (batch.step()) {
      }
      if (nth) *failed = failing->failed();
    }
    model->runner->drop_prefixes();
    EXPECT_EQ(batch.stats().kv_blocks_used + batch.stats().kv_blocks_kept, 0);
    return state->wait_all();
  };
  const auto expected = answers({}, nullptr);
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  int64_t refused = 0;
  int64_t done_without = 0;
  bool failed = true;
  for (int64_t nth = 0; failed; ++nth) {
    const auto got = answers(nth, &failed);
    if (!got.ok()) {
      EXPECT_EQ(got.error().code, ErrorCode::kOutOfMemory) << got.error().message;
      ++refused;
      continue;
    }
    done_without += failed ? 1 : 0;
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ((*got)[i].ids, (*expected)[i].ids);
  }
  EXPECT_GT(refused, 4);
  EXPECT_GT(done_without, 4) << "keeping prefixes, at least";
}

}  // namespace
}  // namespace markbase
