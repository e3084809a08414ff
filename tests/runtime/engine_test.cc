// Many requests at once through the public door: each gets what it gets alone, whatever its
// callback does and whoever comes, goes, or takes the engine away.
#include "markbase/engine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "support/golden.h"

namespace markbase {
namespace {

EngineOptions options_of(int64_t max_sequences = 4) {
  EngineOptions options;
  options.backend = BackendKind::kCpu;
  options.num_threads = 2;
  options.max_sequences = max_sequences;
  options.context_tokens = 256;
  return options;
}

Engine load(const EngineOptions& options = options_of()) {
  Result<Engine> engine = Engine::load(testing::golden_path("tiny_gemma3_gguf/tiny.gguf"), options);
  if (!engine.ok()) ADD_FAILURE() << engine.error().message;
  return *std::move(engine);
}

Request request_of(uint64_t seed, int64_t max_tokens = 20) {
  Request request;
  request.ids = {2, 7, 9, static_cast<int32_t>(11 + seed % 100)};
  request.max_tokens = max_tokens;
  request.ignore_eos = true;
  request.sampling.seed = seed;
  return request;
}

// Opened once; whoever waits goes on then.
class Gate {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [&] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

TEST(ManyRequests, EachGetsWhatItGetsAlone) {
  Engine alone = load(options_of(1));
  Engine shared = load(options_of(8));
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t seed = 0; seed < 24; ++seed)
    expected.push_back(alone.generate(request_of(seed))->ids);
  std::vector<std::shared_ptr<RequestHandle>> handles;
  for (uint64_t seed = 0; seed < 24; ++seed)
    handles.push_back(*shared.submit(request_of(seed), {}));
  for (size_t i = 0; i < handles.size(); ++i) {
    const Result<Completion> got = handles[i]->wait();
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ(got->ids, expected[i]) << "request " << i;
    EXPECT_EQ(got->finish_reason, "length");
  }
  EXPECT_EQ(shared.stats().running + shared.stats().waiting, 0);
}

TEST(ManyRequests, AnswersToOnePromptDifferByTheirNumberAlone) {
  Engine engine = load();
  Request request = request_of(5);
  request.num_answers = 6;
  request.answer_idx = 3;
  const auto handle = engine.submit(request, {});
  ASSERT_TRUE(handle.ok());
  const Result<std::vector<Completion>> answers = (*handle)->wait_all();
  ASSERT_TRUE(answers.ok()) << answers.error().message;
  ASSERT_EQ(answers->size(), 6U);
  for (uint32_t i = 0; i < 6; ++i) {
    Request single = request_of(5);
    single.answer_idx = 3 + i;
    EXPECT_EQ((*answers)[i].ids, engine.generate(single)->ids) << "answer " << i;
    EXPECT_EQ((*answers)[i].answer_idx, 3 + i);
  }
}

TEST(ManyRequests, EventsNameTheirAnswer) {
  Engine engine = load();
  Request request = request_of(6, 10);
  request.num_answers = 3;
  std::vector<std::vector<int32_t>> streamed(3);
  const auto handle = engine.submit(request, [&](const TokenEvent& event) {
    if (event.id >= 0) streamed[event.answer_idx].push_back(event.id);
    return true;
  });
  const auto answers = (*handle)->wait_all();
  ASSERT_TRUE(answers.ok());
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(streamed[i], (*answers)[i].ids);
}

TEST(ManyRequests, ACallbackMaySubmit) {
  Engine engine = load();
  std::vector<std::shared_ptr<RequestHandle>> more;
  const auto first = engine.submit(request_of(1), [&](const TokenEvent&) {
    if (more.size() < 3) more.push_back(*engine.submit(request_of(10 + more.size()), {}));
    return true;
  });
  ASSERT_TRUE((*first)->wait().ok());
  ASSERT_EQ(more.size(), 3U);
  for (size_t i = 0; i < more.size(); ++i)
    EXPECT_EQ(more[i]->wait()->ids, engine.generate(request_of(10 + i))->ids);
}

TEST(ManyRequests, ACallbackMayCancelItsOwnAndOthers) {
  Engine engine = load();
  const auto other = engine.submit(request_of(1, 200), {});
  const auto own = engine.submit(request_of(2, 200), [&](const TokenEvent&) {
    (*other)->cancel();
    return false;
  });
  EXPECT_EQ((*own)->wait()->finish_reason, "cancelled");
  EXPECT_EQ((*other)->wait()->finish_reason, "cancelled");
}

TEST(ManyRequests, ACallbackThatThrowsEndsItsRequestAlone) {
  Engine engine = load();
  const auto good = engine.submit(request_of(1), {});
  const auto bad = engine.submit(
      request_of(2), [](const TokenEvent&) -> bool { throw std::runtime_error("no more paper"); });
  const auto odd = engine.submit(request_of(3), [](const TokenEvent&) -> bool { throw 7; });
  const Result<Completion> failed = (*bad)->wait();
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kFailed);
  EXPECT_NE(failed.error().message.find("no more paper"), std::string::npos);
  EXPECT_FALSE((*odd)->wait().ok());
  EXPECT_EQ((*good)->wait()->ids, engine.generate(request_of(1))->ids);
}

TEST(ManyRequests, ACallbackCannotWaitForItself) {
  Engine engine = load();
  ErrorCode waited{};
  ErrorCode asked{};
  std::shared_ptr<RequestHandle> other;
  const auto handle = engine.submit(request_of(1, 3), [&](const TokenEvent&) {
    if (other != nullptr) return true;
    other = *engine.submit(request_of(2), {});
    waited = other->wait().error().code;
    asked = engine.logits(request_of(3).ids, true, {}).error().code;
    return true;
  });
  ASSERT_TRUE((*handle)->wait().ok());
  EXPECT_EQ(waited, ErrorCode::kUsage);
  EXPECT_EQ(asked, ErrorCode::kUsage);
  EXPECT_TRUE(other->wait().ok());
}

// What a callback cannot wait for does not run unseen either.
TEST(ManyRequests, WhatACallbackCannotWaitForIsNotBegun) {
  Engine engine = load();
  std::vector<std::string> refused;
  const auto handle = engine.submit(request_of(1, 1), [&](const TokenEvent& event) {
    if (event.id < 0) return true;
    EmbedRequest embedded;
    embedded.ids = {2, 7, 9};
    const Result<Completion> one = engine.generate(request_of(2, 50));
    const auto all = engine.generate_all(request_of(2, 50));
    const Result<std::vector<float>> vector = engine.embed(embedded);
    for (const Error* error : {one.ok() ? nullptr : &one.error(), all.ok() ? nullptr : &all.error(),
                               vector.ok() ? nullptr : &vector.error()}) {
      if (error != nullptr && error->code == ErrorCode::kUsage) refused.push_back(error->message);
    }
    return true;
  });
  ASSERT_TRUE((*handle)->wait().ok());
  ASSERT_EQ(refused.size(), 3U);
  for (const std::string& message : refused)
    EXPECT_NE(message.find("callback"), std::string::npos) << message;
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.generated_tokens, 1);
  EXPECT_EQ(stats.prompt_tokens, 4);
}

TEST(ManyRequests, GenerateAllGivesEveryAnswer) {
  Engine engine = load();
  Request request = request_of(5);
  request.num_answers = 3;
  const auto all = engine.generate_all(request);
  ASSERT_TRUE(all.ok()) << all.error().message;
  ASSERT_EQ(all->size(), 3U);
  const auto handle = engine.submit(request, {});
  const auto waited = (*handle)->wait_all();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ((*all)[i].ids, (*waited)[i].ids);
}

TEST(ManyRequests, AFullQueueIsRefusedAndEmptiesAgain) {
  EngineOptions options = options_of(2);
  options.max_queue = 3;
  Gate gate;
  Engine engine = load(options);
  const auto held = engine.submit(request_of(0, 3), [&](const TokenEvent&) {
    gate.wait();
    return true;
  });
  std::vector<std::shared_ptr<RequestHandle>> taken;
  for (uint64_t i = 1; i < 5; ++i) taken.push_back(*engine.submit(request_of(i), {}));
  const auto refused = engine.submit(request_of(9), {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  gate.open();
  for (const auto& handle : taken) EXPECT_TRUE(handle->wait().ok());
  ASSERT_TRUE((*held)->wait().ok());
  EXPECT_TRUE(engine.generate(request_of(9)).ok());
}

TEST(ManyRequests, ALateAnswerEndsWithWhatItHas) {
  Engine engine = load();
  Request request = request_of(1, 200);
  request.timeout_ms = 1;
  const auto handle = engine.submit(request, [&](const TokenEvent&) {
    // The first token is held until the time is over.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return true;
  });
  const Result<Completion> answer = (*handle)->wait();
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->finish_reason, "timeout");
  EXPECT_LT(answer->ids.size(), 200U);
}

TEST(ManyRequests, HigherPrioritiesAreServedFirst) {
  Gate gate;
  Engine engine = load(options_of(1));
  const auto held = engine.submit(request_of(0, 1), [&](const TokenEvent&) {
    gate.wait();
    return true;
  });
  std::vector<int> order;
  std::vector<std::shared_ptr<RequestHandle>> handles;
  for (const int priority : {0, 2, 1, 2}) {
    Request request = request_of(1, 1);
    request.priority = priority;
    handles.push_back(*engine.submit(request, [&order, priority](const TokenEvent& event) {
      if (event.id >= 0) order.push_back(priority);
      return true;
    }));
  }
  gate.open();
  for (const auto& handle : handles) EXPECT_TRUE(handle->wait().ok());
  EXPECT_EQ(order, (std::vector<int>{2, 2, 1, 0}));
  EXPECT_TRUE((*held)->wait().ok());
}

TEST(ManyRequests, LogitsBetweenStepsDisturbNobody) {
  Gate begun;
  Engine engine = load();
  const auto expected = engine.generate(request_of(4, 60))->ids;
  std::vector<float> alone;
  const auto last_row = [&](std::vector<float>* out) {
    return engine.logits(request_of(8).ids, true, [out](int64_t, std::span<const float> row) {
      out->assign(row.begin(), row.end());
      return Result<void>();
    });
  };
  ASSERT_TRUE(last_row(&alone).ok());
  const auto handle = engine.submit(request_of(4, 60), [&](const TokenEvent&) {
    begun.open();
    return true;
  });
  begun.wait();
  for (int i = 0; i < 5; ++i) {
    std::vector<float> among;
    ASSERT_TRUE(last_row(&among).ok());
    EXPECT_EQ(among, alone);
  }
  EXPECT_EQ((*handle)->wait()->ids, expected);
}

TEST(ManyRequests, DestructionEndsAllOfThemWithAReason) {
  std::vector<std::shared_ptr<RequestHandle>> handles;
  {
    Gate begun;  // callbacks open it until the engine is gone
    Engine engine = load(options_of(8));
    for (uint64_t i = 0; i < 32; ++i) {
      handles.push_back(*engine.submit(request_of(i, 250), [&](const TokenEvent&) {
        begun.open();
        return true;
      }));
    }
    begun.wait();
  }
  for (const auto& handle : handles) {
    const Result<Completion> answer = handle->wait();
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_TRUE(answer->finish_reason == "cancelled" || answer->finish_reason == "length");
  }
}

// Neither a vector of what was read so far nor none at all.
TEST(ManyRequests, DestructionCancelsEmbeddings) {
  int64_t num_cancelled = 0;
  // A slow machine may have read a text before the engine goes: then once more.
  for (int i = 0; i < 100 && num_cancelled < 2; ++i) {
    EngineOptions options = options_of(1);
    options.prefill_chunk_tokens = 1;
    auto engine = std::make_unique<Engine>(load(options));
    EmbedRequest request;
    request.ids.assign(200, 7);
    request.pooling = i % 2 == 0 ? Pooling::kMean : Pooling::kLast;
    const auto expected = engine->embed(request);
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    Result<std::vector<float>> vector = Error{};
    std::atomic<bool> answered{false};
    std::thread asker([&] {
      vector = engine->embed(request);
      answered = true;
    });
    while (!answered && engine->stats().running + engine->stats().waiting == 0)
      std::this_thread::yield();
    engine.reset();
    asker.join();
    if (vector.ok()) {
      EXPECT_EQ(*vector, *expected);
      continue;
    }
    EXPECT_EQ(vector.error().code, ErrorCode::kCancelled) << vector.error().message;
    ++num_cancelled;
  }
  EXPECT_GT(num_cancelled, 0);
}

TEST(ManyRequests, AnEmbeddingIsOfOneThing) {
  Engine engine = load();
  EmbedRequest request;
  request.ids = {2, 7, 9};
  ASSERT_TRUE(engine.embed(request).ok());
  request.text = "and a text";
  EXPECT_EQ(engine.embed(request).error().code, ErrorCode::kUsage);
  request.text.clear();
  request.pooling = static_cast<Pooling>(7);
  EXPECT_EQ(engine.embed(request).error().code, ErrorCode::kUsage);
}

TEST(ManyRequests, AProgressThatThrowsIsAnErrorAtMost) {
  EngineOptions options = options_of(1);
  options.prefill_chunk_tokens = 2;
  bool throws = false;
  options.progress = [&](const Progress&) {
    if (throws) throw std::runtime_error("no terminal");
  };
  Engine engine = load(options);
  const auto expected = engine.generate(request_of(1))->ids;
  throws = true;
  const auto ignore = [](int64_t, std::span<const float>) { return Result<void>(); };
  EXPECT_FALSE(engine.logits(request_of(1).ids, false, ignore).ok());
  EXPECT_FALSE(
      engine
          .trace(
              request_of(1).ids, "*", [](const TraceTensor&) { return Result<void>(); }, ignore)
          .ok());
  EXPECT_EQ(engine.generate(request_of(1))->ids, expected);
}

TEST(ManyRequests, TheProgressOfAPromptEndsBeforeItsFirstToken) {
  std::vector<std::string> shown;
  EngineOptions options = options_of(1);
  options.prefill_chunk_tokens = 2;
  options.prefix_cache = false;
  options.progress = [&](const Progress& p) {
    if (p.what == "reading the prompt") shown.push_back(fmt::format("{}/{}", p.done, p.total));
  };
  Engine engine = load(options);
  ASSERT_TRUE(engine
                  .generate(request_of(1, 2),
                            [&](const TokenEvent& event) {
                              if (event.id >= 0) shown.push_back("token");
                              return true;
                            })
                  .ok());
  EXPECT_EQ(shown, (std::vector<std::string>{"0/4", "2/4", "4/4", "token", "token"}));
}

TEST(ManyRequests, ThreadsSubmitAndCancelAtOnce) {
  Engine engine = load(options_of(4));
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t seed = 0; seed < 8; ++seed)
    expected.push_back(engine.generate(request_of(seed))->ids);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < 16; ++i) {
        const uint64_t seed = (i + static_cast<uint64_t>(t)) % 8;
        const auto handle = engine.submit(request_of(seed), {});
        if (!handle.ok()) {
          ++wrong;
          continue;
        }
        if (i % 4 == 3) (*handle)->cancel();
        const Result<Completion> answer = (*handle)->wait();
        const std::vector<int32_t>& whole = expected[seed];
        const bool prefix = answer.ok() && answer->ids.size() <= whole.size() &&
                            std::equal(answer->ids.begin(), answer->ids.end(), whole.begin());
        if (!prefix || (answer->finish_reason == "length" && answer->ids != whole)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace markbase
