// Memory that runs out at every allocation of load and of submit, one after the other: an error
// that says so, nothing lost, and the next try works.
#include <gtest/gtest.h>

#include "markbase/engine.h"
#include "support/failing_new.h"
#include "support/golden.h"

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

}  // namespace
}  // namespace markbase
