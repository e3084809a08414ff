// Who comes in, who has to leave, and that nobody waits for nothing.
#include "runtime/scheduler.h"

#include <gtest/gtest.h>

#include "runtime/batch.h"
#include "support/random_decoder.h"

namespace markbase {
namespace {

using runtime::Batch;
using runtime::LoadedModel;
using runtime::RequestState;
using runtime::RunnerOptions;
using testing::DecoderShape;
using testing::RandomDecoder;

constexpr int64_t kContext = 512;

// Requests under way, on this thread.
class Desk {
 public:
  explicit Desk(int64_t max_sequences = 8, int64_t chunk = 64, int64_t kept_windows = 0)
      : decoder_(DecoderShape::kSharedKeys, quant::Format::kQ8_0, RandomDecoder::kVocab, 64),
        model_(load(max_sequences, chunk, kept_windows)),
        batch_(*model_) {}

  struct Visitor {
    std::shared_ptr<RequestState> state;
    int64_t num_tokens = 0;
  };

  // Prompts of one flavour begin alike; without one, of nobody else's.
  Visitor& come(int64_t num_ids, int64_t max_tokens, int priority = 0, float penalty = 1.0F,
                int64_t flavour = -1) {
    Request request;
    request.ids = ids_of(num_ids, flavour < 0 ? ++number_ : flavour);
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    request.priority = priority;
    request.sampling.temperature = 0.0F;
    request.sampling.repetition_penalty = penalty;
    auto visitor = std::make_unique<Visitor>();
    const auto on_event = [v = visitor.get()](const TokenEvent& event) {
      v->num_tokens += event.id >= 0 ? 1 : 0;
      return true;
    };
    visitor->state =
        std::make_shared<RequestState>(request, request.ids, on_event, std::thread::id());
    batch_.add(visitor->state);
    visitors_.push_back(std::move(visitor));
    return *visitors_.back();
  }

  // One that pools; what it has afterwards is in its state.
  Visitor& embed(int64_t num_ids) {
    auto visitor = std::make_unique<Visitor>();
    runtime::Pooler empty(Pooling::kMean, model_->config.hidden_size);
    visitor->state = std::make_shared<RequestState>(ids_of(num_ids, ++number_), std::move(empty),
                                                    std::thread::id());
    batch_.add(visitor->state);
    visitors_.push_back(std::move(visitor));
    return *visitors_.back();
  }

  // Until the visitor has so many tokens; false: not within `most` steps.
  bool step_until(const Visitor& visitor, int64_t num_tokens, int64_t most = 2000) {
    for (int64_t i = 0; i < most && visitor.num_tokens < num_tokens; ++i) batch_.step();
    return visitor.num_tokens >= num_tokens;
  }
  void finish() {
    while (batch_.step()) {
    }
  }
  Batch& batch() { return batch_; }

 private:
  static std::vector<int32_t> ids_of(int64_t count, int64_t flavour) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count; ++i)
      ids.push_back(static_cast<int32_t>((i * 7 + 3 * flavour) % RandomDecoder::kVocab));
    return ids;
  }
  std::unique_ptr<LoadedModel> load(int64_t max_sequences, int64_t chunk,
                                    int64_t kept_windows) const {
    EngineOptions options;
    options.backend = BackendKind::kCpu;
    options.num_threads = 1;
    RunnerOptions runner;
    runner.context_tokens = kContext;
    runner.prefill_chunk_tokens = chunk;
    runner.max_sequences = max_sequences;
    runner.kv_pool_tokens = kContext + 64;
    runner.kept_windows = kept_windows;
    return decoder_.load(options, runner);
  }

  RandomDecoder decoder_;
  std::unique_ptr<LoadedModel> model_;
  Batch batch_;
  std::vector<std::unique_ptr<Visitor>> visitors_;
  int64_t number_ = 100;
};

std::vector<int32_t> ids_of(const Desk::Visitor& visitor) {
  Result<Completion> done = visitor.state->wait();
  EXPECT_TRUE(done.ok());
  return done.ok() ? done->ids : std::vector<int32_t>();
}

TEST(Scheduler, OneThatWaitsAndLeavesHoldsUpNobody) {
  Desk desk;
  const auto& first = desk.come(64, 400);
  ASSERT_TRUE(desk.step_until(first, 20));
  const auto& large = desk.come(440, 3);
  ASSERT_TRUE(desk.step_until(first, 30));
  ASSERT_EQ(large.num_tokens, 0) << "it fits, and this test shows nothing";
  const auto& small = desk.come(3, 3);
  ASSERT_TRUE(desk.step_until(first, 35));
  ASSERT_EQ(small.num_tokens, 0) << "equals are served in the order in which they came";
  large.state->cancel();
  ASSERT_TRUE(desk.step_until(small, 3, 10));
  EXPECT_LT(first.num_tokens, 50);
  EXPECT_EQ(desk.batch().stats().preemptions, 0);
}

TEST(Scheduler, AHigherPriorityDoesNotWaitBehindALowerOne) {
  Desk desk;
  const auto& first = desk.come(64, 400);
  ASSERT_TRUE(desk.step_until(first, 20));
  const auto& large = desk.come(440, 3);
  ASSERT_TRUE(desk.step_until(first, 30));
  const auto& small = desk.come(3, 3, 1);
  ASSERT_TRUE(desk.step_until(small, 3, 10));
  EXPECT_EQ(large.num_tokens, 0);
  desk.finish();
  EXPECT_EQ(large.num_tokens, 3);
}

TEST(Scheduler, AHigherPriorityTakesTheBlocksOfLowerOnes) {
  Desk desk;
  const auto& first = desk.come(64, 400);
  ASSERT_TRUE(desk.step_until(first, 30));
  const auto& large = desk.come(420, 3, 1);
  ASSERT_TRUE(desk.step_until(large, 3, 20));
  EXPECT_EQ(first.num_tokens, 30);
  EXPECT_EQ(desk.batch().stats().preemptions, 1);
  desk.finish();
  Desk alone;
  const auto& expected = alone.come(64, 400);
  alone.finish();
  EXPECT_EQ(ids_of(first), ids_of(expected));
}

// Nobody is thrown out for a place in which there would be too few blocks: these are held by an
// answer that matters as much.
TEST(Scheduler, NobodyIsThrownOutForNothing) {
  Desk desk(2);
  const auto& equal = desk.come(200, 150, 1);
  ASSERT_TRUE(desk.step_until(equal, 1));
  const auto& lower = desk.come(64, 100);
  ASSERT_TRUE(desk.step_until(lower, 10));
  const auto& large = desk.come(440, 3, 1);
  ASSERT_TRUE(desk.step_until(lower, 20, 20));
  EXPECT_EQ(large.num_tokens, 0);
  EXPECT_EQ(desk.batch().stats().preemptions, 0);
  desk.finish();
  EXPECT_EQ(large.num_tokens, 3);
}

// The newcomer's prompt is there already, with one that stays.
TEST(Scheduler, RoomIsMadeForWhatIsYetToBeComputed) {
  Desk desk(8, 64, 8);
  const auto& first = desk.come(256, 150, 5, 1.0F, 1);
  ASSERT_TRUE(desk.step_until(first, 20));
  const auto& lower = desk.come(10, 40);
  ASSERT_TRUE(desk.step_until(lower, 2));
  const auto& large = desk.come(258, 3, 3, 1.0F, 1);
  ASSERT_TRUE(desk.step_until(large, 3, 10));
  EXPECT_EQ(large.state->wait()->timings.cached_tokens, 256);
  EXPECT_LT(lower.num_tokens, 5) << "thrown out, it does not come in again at once";
  EXPECT_EQ(desk.batch().stats().preemptions, 1);
  desk.finish();
  EXPECT_EQ(lower.num_tokens, 40);
}

// What the lower one holds is the other's as well, who stays: it would free one block.
TEST(Scheduler, BlocksThatOthersHoldMakeNoRoom) {
  Desk desk(8, 64, 8);
  const auto& first = desk.come(258, 150, 5, 1.0F, 1);
  ASSERT_TRUE(desk.step_until(first, 2));
  const auto& lower = desk.come(258, 50, 0, 1.0F, 1);
  ASSERT_TRUE(desk.step_until(lower, 2));
  const auto& large = desk.come(200, 3, 3);
  ASSERT_TRUE(desk.step_until(lower, 20, 20));
  EXPECT_EQ(large.num_tokens, 0);
  EXPECT_EQ(desk.batch().stats().preemptions, 0);
  desk.finish();
  EXPECT_EQ(large.num_tokens, 3);
}

TEST(Scheduler, WhoFitsOnceAPrefixIsKeptComesIn) {
  Desk desk(8, 64, 8);
  const auto& first = desk.come(330, 100, 0, 1.0F, 1);
  desk.batch().step();
  desk.batch().step();
  const auto& second = desk.come(330, 3, 0, 1.0F, 1);
  desk.batch().step();
  ASSERT_EQ(desk.batch().stats().waiting, 1) << "it fits as it is, and this test shows nothing";
  ASSERT_TRUE(desk.step_until(first, 1));
  ASSERT_TRUE(desk.step_until(second, 1, 4));
  EXPECT_LT(first.num_tokens, 10);
}

// It would have to begin again, and again with the next one.
TEST(Scheduler, WhoPoolsIsNotThrownOutForAHigherPriority) {
  Desk desk;
  const auto& text = desk.embed(400);
  for (int i = 0; i < 4; ++i) desk.batch().step();
  const auto& higher = desk.come(300, 3, 5);
  desk.finish();
  EXPECT_EQ(higher.num_tokens, 3);
  EXPECT_EQ(desk.batch().stats().preemptions, 0);
  EXPECT_EQ(text.state->wait()->finish_reason, "stop");
}

// What a prompt has yet to take is not there for the next one.
TEST(Scheduler, PromptsThatDoNotFitTogetherWaitForOneAnother) {
  Desk desk;
  const auto& first = desk.come(300, 3);
  const auto& second = desk.come(300, 3);
  const auto& third = desk.come(40, 3);
  desk.batch().step();
  EXPECT_EQ(desk.batch().stats().running, 1);
  desk.finish();
  EXPECT_EQ(first.num_tokens + second.num_tokens + third.num_tokens, 9);
  EXPECT_EQ(desk.batch().stats().preemptions, 0);
}

// A step that fails is run again answer by answer, and has then marked ids that nobody has.
TEST(Scheduler, AFailingNeighbourChangesNoPenalty) {
  Desk alone;
  const auto& expected = alone.come(8, 60, 0, 5.0F);
  alone.finish();
  Desk desk;
  const auto& answer = desk.come(8, 60, 0, 5.0F);
  std::vector<Desk::Visitor*> failing;
  for (int64_t tokens = 5; tokens < 60; tokens += 5) {
    ASSERT_TRUE(desk.step_until(answer, tokens));
    // Logits divided by it are no numbers; requests are checked before they come here.
    failing.push_back(&desk.come(8, 10, 0, 1e-45F));
  }
  desk.finish();
  for (Desk::Visitor* visitor : failing) EXPECT_FALSE(visitor->state->wait().ok());
  EXPECT_EQ(ids_of(answer), ids_of(expected));
}

// Each pause throws everybody out, and nothing is kept of what was computed.
TEST(Scheduler, WhoWasPausedCatchesUpFirst) {
  Desk desk(8, 32);
  const auto& answer = desk.come(300, 4);
  int64_t pauses = 0;
  for (int64_t i = 0; i < 200 && answer.num_tokens < 4; ++i) {
    if (!desk.batch().is_catching_up()) {
      desk.batch().pause();
      ++pauses;
    }
    desk.batch().step();
  }
  EXPECT_EQ(answer.num_tokens, 4);
  EXPECT_GE(pauses, 4) << "and whoever pauses has a turn for every token";
}

// A stream of them may keep it from every token.
TEST(Scheduler, NobodyCatchesUpForWhomHigherPrioritiesLeaveNothing) {
  Desk desk(8, 32);
  const auto& lower = desk.come(200, 4);
  desk.batch().step();
  desk.batch().pause();
  desk.batch().step();
  EXPECT_TRUE(desk.batch().is_catching_up());
  const auto& higher = desk.come(100, 4, 5);
  desk.batch().step();
  EXPECT_EQ(desk.batch().stats().running, 2);
  EXPECT_EQ(lower.num_tokens + higher.num_tokens, 0);
  EXPECT_FALSE(desk.batch().is_catching_up());
  desk.batch().pause();
  desk.batch().step();
  EXPECT_TRUE(desk.batch().is_catching_up()) << "the higher one was paused too now";
  desk.finish();
  EXPECT_EQ(lower.num_tokens + higher.num_tokens, 8);
}

TEST(Scheduler, RoomIsAskedForSeldomAndNotWithEveryCall) {
  std::vector<int> elements;
  size_t moved = 0;
  for (size_t count = 1; count <= 1000; ++count) {
    const size_t before = elements.capacity();
    runtime::reserve_for(count, &elements);
    moved += elements.capacity() != before ? 1 : 0;
    ASSERT_GE(elements.capacity(), count);
  }
  EXPECT_LE(moved, 11U);
  const size_t most = elements.capacity();
  for (int i = 0; i < 1000; ++i) runtime::reserve_for(3, &elements);
  EXPECT_EQ(elements.capacity(), most);
}

}  // namespace
}  // namespace markbase
