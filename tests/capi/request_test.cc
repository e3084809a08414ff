// Requests of the C API, what they refuse, and completions: no model needed.
#include <gtest/gtest.h>

#include <vector>

#include "capi/handles.h"
#include "capi/requests.h"
#include "markbase/markbase.h"

namespace markbase::capi {
namespace {

mb_request fresh() {
  mb_request request;
  EXPECT_EQ(mb_request_init(&request, sizeof(request), nullptr, nullptr), MB_OK);
  return request;
}

TEST(CRequest, DefaultsAreThoseOfTheCppApi) {
  mb_request from = fresh();
  from.text = mb_text("Hi");
  const auto request = request_of(&from);
  ASSERT_TRUE(request.ok()) << request.error().message;
  const Request plain;
  EXPECT_EQ(request->text, "Hi");
  EXPECT_TRUE(request->text_is_set);
  EXPECT_FALSE(request->parse_special || request->enable_thinking || request->ignore_eos);
  EXPECT_EQ(request->max_tokens, plain.max_tokens);
  EXPECT_EQ(request->sampling.temperature, plain.sampling.temperature);
  EXPECT_EQ(request->sampling.top_k, plain.sampling.top_k);
  EXPECT_EQ(request->sampling.top_p, plain.sampling.top_p);
  EXPECT_EQ(request->sampling.min_p, plain.sampling.min_p);
  EXPECT_EQ(request->sampling.repetition_penalty, plain.sampling.repetition_penalty);
  EXPECT_EQ(request->sampling.seed, plain.sampling.seed);
  EXPECT_EQ(request->answer_idx, plain.answer_idx);
  EXPECT_EQ(request->num_answers, plain.num_answers);
  EXPECT_EQ(request->top_logprobs, plain.top_logprobs);
  EXPECT_EQ(request->priority, plain.priority);
  EXPECT_EQ(request->timeout_ms, plain.timeout_ms);
  EXPECT_TRUE(request->stop.empty() && request->tools.empty() && request->messages.empty());
}

TEST(CRequest, EveryFieldArrives) {
  const std::vector<mb_tool_call> calls = {
      {sizeof(mb_tool_call), mb_text("f"), mb_text(R"({"a":1})"), mb_text("c1")},
      {sizeof(mb_tool_call), mb_text("g"), mb_text("{}"), {}}};
  std::vector<mb_message> messages(3);
  for (mb_message& message : messages) message.size = sizeof(message);
  messages[0].role = mb_text("user");
  messages[0].content = {"a\0b", 3};
  messages[1].role = mb_text("assistant");
  messages[1].reasoning = mb_text("hm");
  messages[1].tool_calls = calls.data();
  messages[1].num_tool_calls = calls.size();
  messages[2].role = mb_text("tool");
  messages[2].content = mb_text("42");
  messages[2].tool_call_id = mb_text("c1");
  const std::vector<mb_string> stops = {mb_text("END"), mb_text("\n")};

  mb_request from = fresh();
  from.messages = messages.data();
  from.num_messages = messages.size();
  from.enable_thinking = 1;
  from.tools = mb_text("[]");
  from.max_tokens = 7;
  from.temperature = 0.5F;
  from.top_k = 40;
  from.top_p = 0.9F;
  from.min_p = 0.1F;
  from.repetition_penalty = 1.1F;
  from.seed = 0xFFFFFFFFFFFFFFFF;
  from.stop = stops.data();
  from.num_stop = stops.size();
  from.ignore_eos = 1;
  from.answer_idx = 3;
  from.num_answers = 4;
  from.top_logprobs = 5;
  from.priority = -2;
  from.timeout_ms = 60'000;
  const auto request = request_of(&from);
  ASSERT_TRUE(request.ok()) << request.error().message;
  ASSERT_EQ(request->messages.size(), 3U);
  EXPECT_EQ(request->messages[0].content, std::string("a\0b", 3));
  EXPECT_EQ(request->messages[1].role, "assistant");
  EXPECT_EQ(request->messages[1].reasoning, "hm");
  ASSERT_EQ(request->messages[1].tool_calls.size(), 2U);
  EXPECT_EQ(request->messages[1].tool_calls[0].arguments, R"({"a":1})");
  EXPECT_EQ(request->messages[1].tool_calls[0].id, "c1");
  EXPECT_EQ(request->messages[1].tool_calls[1].name, "g");
  EXPECT_EQ(request->messages[2].tool_call_id, "c1");
  EXPECT_TRUE(request->enable_thinking);
  EXPECT_EQ(request->tools, "[]");
  EXPECT_EQ(request->max_tokens, 7);
  EXPECT_EQ(request->sampling.temperature, 0.5F);
  EXPECT_EQ(request->sampling.top_k, 40);
  EXPECT_EQ(request->sampling.top_p, 0.9F);
  EXPECT_EQ(request->sampling.min_p, 0.1F);
  EXPECT_EQ(request->sampling.repetition_penalty, 1.1F);
  EXPECT_EQ(request->sampling.seed, 0xFFFFFFFFFFFFFFFF);
  EXPECT_EQ(request->stop, (std::vector<std::string>{"END", "\n"}));
  EXPECT_TRUE(request->ignore_eos);
  EXPECT_EQ(request->answer_idx, 3U);
  EXPECT_EQ(request->num_answers, 4);
  EXPECT_EQ(request->top_logprobs, 5);
  EXPECT_EQ(request->priority, -2);
  EXPECT_EQ(request->timeout_ms, 60'000);
}

// A program that was built when messages were larger than the library knows them.
TEST(CRequest, MessagesAreAsFarApartAsTheirSizeSays) {
  struct Larger {
    mb_message known;
    int64_t unknown;
  };
  std::vector<Larger> messages(2);
  for (Larger& message : messages) message.known.size = sizeof(Larger);
  messages[0].known.role = mb_text("user");
  messages[1].known.role = mb_text("assistant");
  mb_request from = fresh();
  from.messages = &messages[0].known;
  from.num_messages = 2;
  const auto request = request_of(&from);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->messages[1].role, "assistant");
  messages[1].unknown = 1;
  EXPECT_FALSE(request_of(&from).ok());
  messages[1].unknown = 0;
  messages[1].known.size = sizeof(mb_message);
  EXPECT_EQ(request_of(&from).error().message,
            "messages[1]: size: expected 96 as in the first, got 88");
}

TEST(CRequest, RefusesWhatIsNoRequest) {
  const auto refused = [](auto change) {
    mb_request request = fresh();
    request.text = mb_text("Hi");
    change(request);
    const auto got = request_of(&request);
    EXPECT_FALSE(got.ok());
    if (got.ok()) return std::string();
    EXPECT_EQ(got.error().code, ErrorCode::kUsage);
    return got.error().message;
  };
  const int32_t id = 5;
  mb_message message = {};
  message.size = sizeof(message);
  mb_tool_call bad_call = {};
  const mb_string bad_stop = {nullptr, 2};
  using R = mb_request;
  EXPECT_NE(refused([](R& r) { r.text = {}; }).find("got none"), std::string::npos);
  EXPECT_NE(refused([&](R& r) { r.ids = &id, r.num_ids = 1; }).find("more than one"),
            std::string::npos);
  EXPECT_NE(refused([&](R& r) { r.messages = &message, r.num_messages = 1; }).find("more than one"),
            std::string::npos);
  EXPECT_EQ(refused([](R& r) { r.text = {}, r.num_ids = 3; }), "ids: expected a pointer, got NULL");
  EXPECT_EQ(refused([](R& r) { r.text = {}, r.num_messages = 3; }),
            "messages: expected a pointer, got NULL");
  EXPECT_EQ(refused([](R& r) { r.num_stop = 1; }), "stop: expected a pointer, got NULL");
  EXPECT_EQ(refused([&](R& r) { r.stop = &bad_stop, r.num_stop = 1; }),
            "stop[0]: expected a pointer, got NULL");
  EXPECT_EQ(refused([](R& r) { r.ignore_eos = 2; }), "ignore_eos: expected 0 or 1, got 2");
  EXPECT_EQ(refused([](R& r) { r.parse_special = -1; }), "parse_special: expected 0 or 1, got -1");
  EXPECT_EQ(refused([&](R& r) { r.text = {}, r.ids = &id, r.num_ids = 1, r.parse_special = 1; }),
            "parse_special: goes with text, got another prompt");
  EXPECT_EQ(refused([](R& r) { r.size = 3; }),
            "request: size: expected 160 bytes (sizeof the struct), got 3");
  EXPECT_EQ(refused([](R& r) { r.text = {nullptr, 4}; }), "text: expected a pointer, got NULL");
  message.tool_calls = &bad_call;
  message.num_tool_calls = 1;
  EXPECT_EQ(refused([&](R& r) { r.text = {}, r.messages = &message, r.num_messages = 1; }),
            "messages[0].tool_calls[0]: size: expected 56 bytes (sizeof the struct), got 0");
}

TEST(CCompletions, ShowWhatACompletionHolds) {
  Completion first;
  first.text = "Hello";
  first.reasoning = "hm";
  first.labels = {"plan"};
  first.tool_calls = {{.name = "f", .arguments = "{}"}};
  first.broken_calls = {{.text = "call:g{", .why = "no end", .truncated = true}};
  first.ids = {4, 5};
  first.prompt_ids = {2};
  first.finish_reason = "tool_calls";
  first.logprobs = {{.chosen = {4, -0.5F}, .top = {{4, -0.5F}, {9, -1.0F}}},
                    {.chosen = {5, -2.0F}, .top = {}}};
  first.timings.cached_tokens = 1;
  first.timings.tokens_per_s = 12.5;
  Completion second;
  second.finish_reason = "timeout";
  second.answer_idx = 1;
  const mb_completions completions({first, second});

  mb_completion got = {};
  got.size = sizeof(got);
  ASSERT_EQ(mb_completion_get(&completions, 0, &got, nullptr), MB_OK);
  EXPECT_STREQ(got.text.data, "Hello");
  EXPECT_EQ(got.text.num_bytes, 5U);
  EXPECT_STREQ(got.reasoning.data, "hm");
  EXPECT_STREQ(got.finish_reason.data, "tool_calls");
  ASSERT_EQ(got.num_ids, 2U);
  EXPECT_EQ(got.ids[1], 5);
  EXPECT_EQ(got.prompt_ids[0], 2);
  EXPECT_EQ(got.num_tool_calls + got.num_broken_calls + got.num_labels, 3U);
  ASSERT_EQ(got.num_logprobs, 2U);

  mb_tool_call call = {};
  call.size = sizeof(call);
  ASSERT_EQ(mb_completion_tool_call(&completions, 0, 0, &call, nullptr), MB_OK);
  EXPECT_STREQ(call.name.data, "f");
  mb_broken_call broken = {};
  broken.size = sizeof(broken);
  ASSERT_EQ(mb_completion_broken_call(&completions, 0, 0, &broken, nullptr), MB_OK);
  EXPECT_STREQ(broken.why.data, "no end");
  EXPECT_EQ(broken.truncated, 1);
  mb_string label = {};
  ASSERT_EQ(mb_completion_label(&completions, 0, 0, &label, nullptr), MB_OK);
  EXPECT_STREQ(label.data, "plan");
  mb_token_logprobs logprobs = {};
  logprobs.size = sizeof(logprobs);
  ASSERT_EQ(mb_completion_logprobs(&completions, 0, 0, &logprobs, nullptr), MB_OK);
  EXPECT_EQ(logprobs.chosen.id, 4);
  ASSERT_EQ(logprobs.num_top, 2U);
  EXPECT_EQ(logprobs.top[1].id, 9);
  EXPECT_EQ(logprobs.top[1].logprob, -1.0F);
  ASSERT_EQ(mb_completion_logprobs(&completions, 0, 1, &logprobs, nullptr), MB_OK);
  EXPECT_EQ(logprobs.chosen.logprob, -2.0F);
  EXPECT_EQ(logprobs.num_top, 0U);
  mb_timings timings = {};
  timings.size = sizeof(timings);
  ASSERT_EQ(mb_completion_timings(&completions, 0, &timings, nullptr), MB_OK);
  EXPECT_EQ(timings.cached_tokens, 1);
  EXPECT_EQ(timings.tokens_per_s, 12.5);

  ASSERT_EQ(mb_completion_get(&completions, 1, &got, nullptr), MB_OK);
  EXPECT_EQ(got.answer_idx, 1U);
  EXPECT_STREQ(got.text.data, "");
  mb_error* error = nullptr;
  EXPECT_EQ(mb_completion_get(&completions, 2, &got, &error), MB_USAGE);
  EXPECT_STREQ(mb_error_message(error), "idx: expected less than 2, got 2");
  mb_error_free(error);
  EXPECT_EQ(mb_completion_tool_call(&completions, 1, 0, &call, nullptr), MB_USAGE);
  EXPECT_EQ(mb_completion_broken_call(&completions, 1, 0, &broken, nullptr), MB_USAGE);
  EXPECT_EQ(mb_completion_label(&completions, 0, 1, &label, nullptr), MB_USAGE);
  EXPECT_EQ(mb_completion_logprobs(&completions, 0, 2, &logprobs, nullptr), MB_USAGE);
}

}  // namespace
}  // namespace markbase::capi
