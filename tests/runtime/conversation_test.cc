// A conversation of ten turns and 6,000 tokens: each turn begins with all that was said before, and
// computes hardly more than what is new, to the ids of a cold run.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "markbase/engine.h"
#include "ops/kv_cache.h"
#include "runtime/batch.h"
#include "support/golden.h"
#include "support/random.h"
#include "support/random_decoder.h"

namespace markbase {
namespace {

using runtime::Batch;
using runtime::LoadedModel;
using runtime::RequestState;
using runtime::RunnerOptions;
using testing::DecoderShape;
using testing::RandomDecoder;

constexpr int kTurns = 10;
constexpr int64_t kQuestionTokens = 560;
constexpr int64_t kAnswerTokens = 40;

std::vector<int32_t> question(int turn, int64_t vocab_size) {
  testing::Random random(static_cast<uint64_t>(turn) + 1);
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < kQuestionTokens; ++i)
    ids.push_back(static_cast<int32_t>(2 + random.below(vocab_size - 2)));
  return ids;
}

Request request_of(const std::vector<int32_t>& ids) {
  Request request;
  request.ids = ids;
  request.max_tokens = kAnswerTokens;
  request.ignore_eos = true;
  request.sampling.seed = 3;
  return request;
}

// Talks through `answer`; what a turn computes of its prompt is at most what is new, a block, and
// a window. Returns the last prompt.
template <class Ask>
std::vector<int32_t> talk(int64_t vocab_size, int64_t window, const Ask& ask) {
  std::vector<int32_t> ids;
  std::vector<int32_t> last;
  for (int turn = 0; turn < kTurns; ++turn) {
    const std::vector<int32_t> asked = question(turn, vocab_size);
    ids.insert(ids.end(), asked.begin(), asked.end());
    last = ids;
    const Completion answer = ask(ids);
    const int64_t computed = answer.timings.prompt_tokens - answer.timings.cached_tokens;
    // The last token of the answer was never computed.
    const int64_t fresh = kQuestionTokens + 1;
    EXPECT_LE(computed, fresh + ops::kKvBlockTokens + window) << "turn " << turn;
    ids.insert(ids.end(), answer.ids.begin(), answer.ids.end());
  }
  EXPECT_EQ(ids.size(), static_cast<size_t>(kTurns * (kQuestionTokens + kAnswerTokens)));
  return last;
}

class Conversation : public ::testing::TestWithParam<std::tuple<DecoderShape, int64_t>> {};

TEST_P(Conversation, ComputesWhatIsNew) {
  const auto [shape, window] = GetParam();
  const RandomDecoder decoder(shape, quant::Format::kQ4_0, RandomDecoder::kVocab, window);
  EngineOptions options;
  options.backend = BackendKind::kCpu;
  options.num_threads = 2;
  RunnerOptions runner;
  runner.context_tokens = 8192;
  runner.max_sequences = 1;
  runner.kept_windows = 9;
  runner.fill_freed_blocks = true;
  const auto load = [&](int64_t kept_windows) {
    runner.kept_windows = kept_windows;
    return decoder.load(options, runner);
  };
  const auto ask = [](Batch& batch, const std::vector<int32_t>& ids) {
    const auto state =
        std::make_shared<RequestState>(request_of(ids), ids, OnEvent(), std::thread::id());
    batch.add(state);
    while (batch.step()) {
    }
    return *state->wait();
  };
  const auto warm_model = load(9);
  Batch warm(*warm_model);
  std::vector<int32_t> warm_ids;
  const std::vector<int32_t> last =
      talk(RandomDecoder::kVocab, window, [&](const std::vector<int32_t>& ids) {
        Completion answer = ask(warm, ids);
        warm_ids = answer.ids;
        return answer;
      });
  const auto cold_model = load(0);
  Batch cold(*cold_model);
  const Completion answer = ask(cold, last);
  EXPECT_EQ(answer.timings.cached_tokens, 0);
  EXPECT_EQ(answer.ids, warm_ids);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Conversation,
                         ::testing::Combine(::testing::Values(DecoderShape::kPerLayerInputs,
                                                              DecoderShape::kSharedKeys,
                                                              DecoderShape::kExperts),
                                            ::testing::Values(int64_t{20}, int64_t{300})),
                         [](const auto& info) {
                           return testing::decoder_shape_name(std::get<0>(info.param)) + "Window" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(GoldenConversation, ARealModelComputesWhatIsNew) {
  const char* model = std::getenv("MARKBASE_TEST_MODEL");
  if (model == nullptr) GTEST_SKIP() << "MARKBASE_TEST_MODEL names no model file";
  EngineOptions options;
  options.backend = BackendKind::kCpu;
  options.context_tokens = 8192;
  options.max_sequences = 1;
  Result<Engine> warm = Engine::load(model, options);
  ASSERT_TRUE(warm.ok()) << warm.error().message;
  constexpr int64_t kWindow = 512;
  std::vector<int32_t> warm_ids;
  const std::vector<int32_t> last =
      talk(warm->info().vocab_size, kWindow, [&](const std::vector<int32_t>& ids) {
        Completion answer = *warm->generate(request_of(ids));
        warm_ids = answer.ids;
        return answer;
      });
  options.prefix_cache = false;
  Result<Engine> cold = Engine::load(model, options);
  ASSERT_TRUE(cold.ok()) << cold.error().message;
  const Result<Completion> answer = cold->generate(request_of(last));
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->timings.cached_tokens, 0);
  EXPECT_EQ(answer->ids, warm_ids);
}

}  // namespace
}  // namespace markbase
