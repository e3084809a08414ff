// Stop strings, globs and parameter checks: no model needed.
#include <gtest/gtest.h>

#include <limits>

#include "runtime/generation.h"
#include "runtime/logits.h"
#include "runtime/model_files.h"
#include "runtime/stop_strings.h"

namespace markbase::runtime {
namespace {

struct StopCase {
  std::vector<std::string> stops;
  std::vector<std::string> pieces;
  std::string shown;
  bool stopped;
};

TEST(StopStrings, Table) {
  const StopCase cases[] = {
      {{"END"}, {"one END two"}, "one ", true},
      {{"END"}, {"one E", "N", "D two"}, "one ", true},
      {{"END"}, {"one E", "N", "X two"}, "one ENX two", false},
      {{"END"}, {"EN"}, "EN", false},
      {{"aab"}, {"a", "a", "a", "b", "c"}, "a", true},
      {{"\n\n", "User:"}, {"Hi\n", "User", ":"}, "Hi\n", true},
      {{"bc", "abcd"}, {"a", "b", "c", "d"}, "a", true},
      {{"é"}, {"caf", "é!"}, "caf", true},
      {{}, {"x", "y"}, "xy", false},
  };
  for (const StopCase& row : cases) {
    StopScanner scanner(row.stops);
    std::string shown;
    for (const std::string& piece : row.pieces) shown += scanner.push(piece);
    shown += scanner.finish();
    EXPECT_EQ(shown, row.shown);
    EXPECT_EQ(scanner.stopped(), row.stopped) << row.shown;
  }
}

TEST(StopStrings, HoldsBackOnlyWhatCouldStillStop) {
  StopScanner scanner({"END"});
  EXPECT_EQ(scanner.push("one E"), "one ");
  EXPECT_EQ(scanner.push("at"), "Eat");
}

TEST(Glob, Table) {
  EXPECT_TRUE(glob_matches("*", "layer.0.attn.q"));
  EXPECT_TRUE(glob_matches("layer.*.attn.q", "layer.12.attn.q"));
  EXPECT_TRUE(glob_matches("layer.?.output", "layer.3.output"));
  EXPECT_FALSE(glob_matches("layer.?.output", "layer.33.output"));
  EXPECT_FALSE(glob_matches("layer.*.attn.q", "layer.1.attn.q_norm"));
  EXPECT_TRUE(glob_matches("**norm*", "final_norm"));
  EXPECT_FALSE(glob_matches("", "x"));
}

TEST(CheckRequest, RefusesWhatIsOutOfRange) {
  const auto refused = [](auto change) {
    Request request;
    change(request);
    const Result<void> result = check_request(request);
    return !result.ok() && result.error().code == ErrorCode::kUsage;
  };
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(refused([](Request&) {}));
  EXPECT_TRUE(refused([](Request& r) { r.sampling.temperature = -0.1F; }));
  EXPECT_TRUE(refused([&](Request& r) { r.sampling.temperature = kNan; }));
  EXPECT_TRUE(refused([&](Request& r) { r.sampling.temperature = kInfinity; }));
  EXPECT_TRUE(refused([](Request& r) { r.sampling.top_k = -1; }));
  EXPECT_TRUE(refused([](Request& r) { r.sampling.top_p = 0.0F; }));
  EXPECT_TRUE(refused([](Request& r) { r.sampling.top_p = 1.5F; }));
  EXPECT_TRUE(refused([](Request& r) { r.sampling.min_p = -0.5F; }));
  EXPECT_TRUE(refused([&](Request& r) { r.sampling.min_p = kNan; }));
  EXPECT_TRUE(refused([](Request& r) { r.sampling.repetition_penalty = 0.0F; }));
  EXPECT_TRUE(refused([](Request& r) { r.max_tokens = -2; }));
  EXPECT_TRUE(refused([](Request& r) { r.stop = {""}; }));
  EXPECT_TRUE(refused([](Request& r) { r.num_answers = 0; }));
  EXPECT_TRUE(refused([](Request& r) { r.num_answers = 65; }));
  EXPECT_FALSE(refused([](Request& r) { r.num_answers = 64; }));
  EXPECT_TRUE(refused([](Request& r) { r.top_logprobs = -2; }));
  EXPECT_TRUE(refused([](Request& r) { r.top_logprobs = 21; }));
  EXPECT_FALSE(refused([](Request& r) { r.top_logprobs = 20; }));
  EXPECT_TRUE(refused([](Request& r) { r.timeout_ms = -1; }));
  EXPECT_TRUE(refused([](Request& r) { r.timeout_ms = std::numeric_limits<int64_t>::max(); }));
  EXPECT_FALSE(refused([](Request& r) { r.timeout_ms = kMostTimeoutMs; }));
}

TEST(CheckRequest, ControlTokensAreReadInTextAlone) {
  const auto message_of = [](auto change) {
    Request request;
    request.parse_special = true;
    change(request);
    const Result<void> result = check_request(request);
    return result.ok() ? std::string() : result.error().message;
  };
  const char* refused = "parse_special: goes with text, got another prompt";
  EXPECT_EQ(message_of([](Request& r) { r.text = "<bos>"; }), "");
  EXPECT_EQ(message_of([](Request& r) { r.text_is_set = true; }), "");
  EXPECT_EQ(message_of([](Request& r) { r.ids = {2}; }), refused);
  EXPECT_EQ(message_of([](Request& r) { r.messages = {{"user", "<bos>"}}; }), refused);
}

TEST(CheckRequest, ThereIsOnePrompt) {
  const auto message_of = [](auto change) {
    Request request;
    change(request);
    const Result<void> result = check_request(request);
    return result.ok() ? std::string() : result.error().message;
  };
  const char* refused = "prompt: expected one of ids, text and messages, got more than one";
  EXPECT_EQ(message_of([](Request& r) { r.ids = {2}, r.text = "a"; }), refused);
  EXPECT_EQ(message_of([](Request& r) { r.ids = {2}, r.text_is_set = true; }), refused);
  EXPECT_EQ(message_of([](Request& r) { r.ids = {2}, r.messages = {{"user", "a"}}; }), refused);
  EXPECT_EQ(message_of([](Request& r) { r.text = "a", r.messages = {{"user", "a"}}; }), refused);
  EXPECT_EQ(message_of([](Request& r) { r.text = "a", r.text_is_set = true; }), "");
}

TEST(CheckRequest, AnswersAreNumberedWithinTheirType) {
  Request request;
  request.num_answers = 3;
  request.answer_idx = std::numeric_limits<uint32_t>::max() - 2;
  EXPECT_TRUE(check_request(request).ok());
  ++request.answer_idx;
  const Result<void> result = check_request(request);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().message,
            "answer_idx: expected at most 4294967293 for 3 answers, got 4294967294");
}

TEST(Splits, FirstOfASet) {
  EXPECT_EQ(first_split("/m/a-00003-of-00007.gguf"), "/m/a-00001-of-00007.gguf");
  EXPECT_EQ(first_split("/m/a.gguf"), "/m/a.gguf");
  EXPECT_EQ(first_split("a-0003-of-00007.gguf"), "a-0003-of-00007.gguf");
}

}  // namespace
}  // namespace markbase::runtime
