// What the reader of an answer sees: thoughts, text and calls, up to a stop string.
#include "runtime/answer_text.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "runtime/request_prompt.h"
#include "support/golden.h"
#include "support/mini_gemma4.h"

namespace markbase::runtime {
namespace {

class AnswerTextTest : public ::testing::Test {
 protected:
  std::vector<int32_t> ids(const std::string& text) const {
    return tokenizer_->encode(text, {.parse_special = true});
  }
  Completion answer(const Request& request, const std::string& prompt, const std::string& output,
                    const char* reason = "stop") const {
    AnswerText text(*tokenizer_, request, ids(prompt));
    std::string shown;
    for (const int32_t id : ids(output)) {
      if (text.stopped()) break;
      for (const OutputPiece& piece : text.push(id)) shown += piece.text;
    }
    for (const OutputPiece& piece : text.finish(std::string(reason) == "length")) {
      shown += piece.text;
    }
    Completion completion;
    completion.finish_reason = reason;
    text.move_to(&completion);
    EXPECT_EQ(shown, completion.reasoning + completion.text);
    return completion;
  }

  static Request chat() {
    Request request;
    request.messages = {{"user", "hi"}};
    return request;
  }
  const std::string prompt_ = "<bos><|turn>user\nhi<turn|>\n<|turn>model\n";
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_ = testing::mini_gemma4();
};

TEST_F(AnswerTextTest, ThoughtsTextAndCalls) {
  const Completion c = answer(
      chat(), prompt_, "<|channel>thought\nHm.\n<channel|>See:<|tool_call>call:f{a:1}<tool_call|>");
  EXPECT_EQ(c.reasoning, "Hm.");
  EXPECT_EQ(c.text, "See:");
  ASSERT_EQ(c.tool_calls.size(), 1u);
  EXPECT_EQ(c.tool_calls[0].arguments, R"({"a":1})");
  EXPECT_EQ(c.finish_reason, "tool_calls");
  EXPECT_EQ(answer(chat(), prompt_, "<|tool_call>call:f{}<tool_call|>", "cancelled").finish_reason,
            "cancelled");
}

TEST_F(AnswerTextTest, BeginsWhereThePromptEnds) {
  const Completion c = answer(chat(), prompt_ + "<|channel>thought\n", "Hm.\n<channel|>Yes");
  EXPECT_EQ(c.reasoning, "Hm.");
  EXPECT_EQ(c.text, "Yes");
}

TEST_F(AnswerTextTest, StopStringsAreLookedForInTheTextAlone) {
  Request request = chat();
  request.stop = {"END"};
  const Completion c = answer(request, prompt_,
                              "<|channel>thought\nEND\n<channel|><|tool_call>call:f{a:END}"
                              "<tool_call|>one END two<|tool_call>call:g{}<tool_call|>");
  EXPECT_EQ(c.reasoning, "END");
  EXPECT_EQ(c.text, "one ");
  ASSERT_EQ(c.tool_calls.size(), 1u);
  EXPECT_EQ(c.tool_calls[0].name, "f");
}

TEST_F(AnswerTextTest, ACallThatIsNoneIsText) {
  const Completion c = answer(chat(), prompt_, "a<|tool_call>call:f{a:1", "length");
  EXPECT_EQ(c.text, "a<|tool_call>call:f{a:1");
  EXPECT_EQ(c.finish_reason, "length");
  ASSERT_EQ(c.broken_calls.size(), 1u);
  EXPECT_TRUE(c.broken_calls[0].truncated);
}

TEST_F(AnswerTextTest, GoesOnPastTheEndWhereAsked) {
  Request request = chat();
  request.ignore_eos = true;
  EXPECT_EQ(answer(request, prompt_, "a<turn|>b<eos>c").text, "abc");
}

TEST_F(AnswerTextTest, PlainContinuationIsNotTakenApart) {
  Request request;
  request.text_is_set = true;
  const Completion c = answer(request, "<bos>x", "<|channel>thought\ny<channel|>z");
  EXPECT_EQ(c.text, "thought\nyz");
  EXPECT_EQ(c.reasoning, "");
  // Ids are a chat where they hold a turn.
  request = {};
  request.ids = {2, 3};
  EXPECT_EQ(answer(request, "<bos>x", "<|channel>thought\ny<channel|>z").text, "thought\nyz");
  EXPECT_EQ(answer(request, prompt_, "<|channel>thought\ny<channel|>z").text, "z");
}

TEST(RequestJson, HoldsTheConversation) {
  Request request;
  request.messages = {{"system", "be \"kind\""}, {"user", "hi"}, {"assistant", ""}, {"tool", "3"}};
  request.messages[2].reasoning = "hm";
  request.messages[2].tool_calls = {{"add", R"({"a":1.50,"b":12345678901234567890123})", "call_1"}};
  request.messages[3].tool_call_id = "call_1";
  request.tools = R"([{"type":"function","function":{"name":"add","x":1.50}}])";
  request.enable_thinking = true;
  const auto text = request_json(request);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, R"({"messages":[{"role":"system","content":"be \"kind\""},)"
                   R"({"role":"user","content":"hi"},)"
                   R"({"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[)"
                   R"({"id":"call_1","type":"function","function":{"name":"add",)"
                   R"("arguments":{"a":1.50,"b":12345678901234567890123}}}]},)"
                   R"({"role":"tool","content":"3","tool_call_id":"call_1"}],)"
                   R"("add_generation_prompt":true,"enable_thinking":true,)"
                   R"("tools":[{"type":"function","function":{"name":"add","x":1.50}}]})");
  request.messages.clear();
  request.enable_thinking = false;
  request.tools = R"([{"name":"add"}])";
  EXPECT_EQ(*request_json(request), R"({"messages":[],"add_generation_prompt":true,)"
                                    R"("tools":[{"type":"function","function":{"name":"add"}}]})");
}

TEST(RequestJson, ResultsCanStandWithTheirCalls) {
  Request request;
  request.messages = {
      {"user", "q"}, {"assistant", ""}, {"tool", "B"}, {"tool", "A"}, {"user", "r"}};
  request.messages[1].tool_calls = {{"f", "{}", "1"}, {"g", "{}", "2"}};
  request.messages[2].tool_call_id = "2";
  request.messages[3].tool_call_id = "1";
  const auto json = base::parse_json(*request_json(request, ResultForm::kWithCaller), "request");
  ASSERT_TRUE(json.ok()) << json.error().message;
  ASSERT_EQ((*json)["messages"].size(), 3u);
  EXPECT_EQ(base::dump_json((*json)["messages"][1]["tool_responses"]),
            R"([{"name":"g","response":"B"},{"name":"f","response":"A"}])");
}

TEST(RequestPrompt, ResultsStandWhereTheTemplateLooksForThem) {
  Request request;
  request.messages = {{"user", "1+2?"}, {"assistant", ""}, {"tool", "3"}};
  request.messages[1].tool_calls = {{"add", R"({"a":1})", "call_1"}};
  request.messages[2].tool_call_id = "call_1";
  for (const char* name :
       {"gemma4-chat-template.jinja", "gemma4-chat-template-interleaved.jinja"}) {
    const std::string path = testing::golden_path("chat/" + std::string(name));
    const auto tokenizer = testing::mini_gemma4(testing::read_file(path));
    const ChatAbilities can = chat_abilities(*tokenizer);
    EXPECT_TRUE(can.thinking && can.tools) << name;
    const auto prompt = request_prompt(*tokenizer, request);
    ASSERT_TRUE(prompt.ok()) << prompt.error().message;
    EXPECT_NE(prompt->text.find("<|tool_call>call:add{a:1}<tool_call|><|tool_response>response:add{"
                                "value:<|\"|>3<|\"|>}<tool_response|>"),
              std::string::npos)
        << prompt->text;
  }
  EXPECT_FALSE(chat_abilities(*testing::mini_gemma4("{{ messages[0].content }}")).tools);
}

TEST(RequestPrompt, AlwaysEndsWhereTheModelGoesOn) {
  const auto tokenizer = testing::mini_gemma4();
  Request request;
  request.messages = {{"user", "1+2?"}, {"assistant", ""}, {"tool", "3"}};
  request.messages[1].tool_calls = {{"add", R"({"b":2,"a":1})", "call_1"}};
  request.messages[2].tool_call_id = "call_1";
  const auto prompt = [&] {
    const auto made = request_prompt(*tokenizer, request);
    EXPECT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ(tokenizer->decode(made->ids, false), made->text);
    EXPECT_EQ(tokenizer->encode(made->text, {.parse_special = true}), made->ids);
    return made->text;
  };
  const std::string call =
      "<bos><|turn>user\n1+2?<turn|>\n<|turn>model\n<|tool_call>call:add{a:1,b:2}<tool_call|>"
      "<|tool_response>response:add{value:<|\"|>3<|\"|>}<tool_response|>";
  EXPECT_EQ(prompt(), call);
  // With a text beside the call the turn is closed; a new one is opened.
  request.messages[1].content = "Let me see.";
  EXPECT_EQ(prompt(), call + "Let me see.<turn|>\n<|turn>model\n");
  request.messages.pop_back();
  request.messages.pop_back();
  request.enable_thinking = true;
  EXPECT_EQ(prompt(),
            "<bos><|turn>system\n<|think|>\n<turn|>\n<|turn>user\n1+2?<turn|>\n<|turn>model\n");
}

TEST(RequestJson, RefusesJsonThatIsNone) {
  Request request;
  request.messages = {{"assistant", ""}};
  for (const char* arguments : {"", "3", "{", "{}}],\"x\":[{", "[]"}) {
    request.messages[0].tool_calls = {{"f", arguments}};
    const auto text = request_json(request);
    ASSERT_FALSE(text.ok()) << arguments;
    EXPECT_EQ(text.error().code, ErrorCode::kUsage);
  }
  request.messages[0].tool_calls.clear();
  for (const char* tools : {"{}", "[", "[] []"}) {
    request.tools = tools;
    EXPECT_FALSE(request_json(request).ok()) << tools;
  }
}

TEST(RequestJson, RefusesAKeyThatIsThereTwice) {
  Request request;
  request.messages = {{"assistant", ""}};
  request.messages[0].tool_calls = {{"f", R"({"a":1,"b":{"c":1,"\u0063":2}})"}};
  auto text = request_json(request);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::kUsage);
  EXPECT_EQ(text.error().message,
            R"(arguments of 'f': "c": expected once in an object, got twice)");
  request.messages[0].tool_calls.clear();
  request.tools = R"([{"name":"f","description":"a","description":"b"}])";
  text = request_json(request);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::kUsage);
  EXPECT_EQ(text.error().message, R"(tools: "description": expected once in an object, got twice)");
}

}  // namespace
}  // namespace markbase::runtime
