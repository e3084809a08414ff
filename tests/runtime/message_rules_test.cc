// What a message may hold: the same for messages of the library and for those that come as JSON.
#include "runtime/message_rules.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "runtime/request_prompt.h"
#include "support/golden.h"
#include "support/mini_gemma4.h"
#include "tokenizer/gemma3_template.h"

namespace markbase::runtime {
namespace {

using base::Json;

struct Format {
  const char* name;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
};
std::vector<Format> formats() {
  std::vector<Format> formats;
  formats.push_back({"built-in Gemma 4", testing::mini_gemma4()});
  for (const char* name :
       {"gemma4-chat-template.jinja", "gemma4-chat-template-interleaved.jinja"}) {
    const std::string path = testing::golden_path("chat/" + std::string(name));
    formats.push_back({name, testing::mini_gemma4(testing::read_file(path))});
  }
  formats.push_back({"Gemma 3", testing::mini_gemma4(std::string(tokenizer::kGemma3Template))});
  return formats;
}

Message message(const char* role, const char* content) {
  Message made;
  made.role = role;
  made.content = content;
  return made;
}

// The list as somebody else's JSON.
std::string json_of(const std::vector<Message>& messages) {
  Json list = Json::array();
  for (const Message& m : messages) {
    Json item = {{"role", m.role}, {"content", m.content}};
    if (!m.reasoning.empty()) item["reasoning_content"] = m.reasoning;
    if (!m.tool_call_id.empty()) item["tool_call_id"] = m.tool_call_id;
    for (const ToolCall& call : m.tool_calls) {
      item["tool_calls"].push_back(
          {{"id", call.id},
           {"type", "function"},
           {"function", {{"name", call.name}, {"arguments", Json::parse(call.arguments)}}}});
    }
    list.push_back(item);
  }
  return Json{{"messages", list}, {"add_generation_prompt", true}}.dump();
}

// By both ways; the messages of the errors are the same.
void expect_refused(const Format& format, const std::vector<Message>& messages,
                    const std::vector<std::string>& parts) {
  Request request;
  request.messages = messages;
  const auto made = request_prompt(*format.tokenizer, request);
  const auto parsed = chat_prompt(*format.tokenizer, json_of(messages), false);
  for (const auto* prompt : {&made, &parsed}) {
    ASSERT_FALSE(prompt->ok()) << format.name << " gave " << (*prompt)->text;
    EXPECT_EQ(prompt->error().code, ErrorCode::kUsage);
    for (const std::string& part : parts) {
      EXPECT_NE(prompt->error().message.find(part), std::string::npos)
          << format.name << ": " << prompt->error().message;
    }
  }
}

std::string text_of(const Format& format, const std::vector<Message>& messages) {
  Request request;
  request.messages = messages;
  const auto made = request_prompt(*format.tokenizer, request);
  const auto parsed = chat_prompt(*format.tokenizer, json_of(messages), false);
  if (!made.ok() || !parsed.ok()) {
    return "error: " + (made.ok() ? parsed.error().message : made.error().message);
  }
  EXPECT_EQ(made->text, parsed->text);
  return made->text;
}

TEST(MessageRules, UnknownRolesAreRefusedWithThoseThatThereAre) {
  for (const Format& format : formats()) {
    const bool tools = std::string_view(format.name) != "Gemma 3";
    const char* roles =
        tools ? "system, developer, user, assistant, tool" : "system, user, assistant";
    for (const char* role : {"zz", "", "User", "model", "tool_responses", "<|turn>"}) {
      const std::string named = "has the role \"" + std::string(role) + "\"";
      expect_refused(format, {message(role, "hi")}, {"message 0 " + named, roles});
      expect_refused(format, {message("user", "hi"), message(role, "yo")},
                     {"message 1 " + named, roles});
    }
  }
}

TEST(MessageRules, ThoughtsAndCallsAreTheAssistantsAlone) {
  for (const Format& format : formats()) {
    for (const char* role : {"system", "user"}) {
      std::vector<Message> messages = {message(role, "hi"), message("user", "ho")};
      messages[0].reasoning = "because";
      expect_refused(format, messages, {"message 0 of role", role, "reasoning", "assistant"});
      messages[0].reasoning.clear();
      messages[0].tool_calls = {{"f", "{}", "c1"}};
      expect_refused(format, messages, {"message 0 of role", role, "'tool_calls'", "assistant"});
      messages[0].tool_calls.clear();
      messages[0].tool_call_id = "c1";
      expect_refused(format, messages, {"message 0 of role", role, "'tool_call_id'", "results"});
    }
    std::vector<Message> talk = {message("user", "hi"), message("assistant", "yo"),
                                 message("user", "k")};
    talk[1].tool_call_id = "c1";
    expect_refused(format, talk, {"message 1 of role 'assistant'", "'tool_call_id'"});
  }
}

TEST(MessageRules, WhatTheFormatHasNoPlaceForIsRefused) {
  const std::vector<Format> all = formats();
  const Format& gemma3 = all.back();
  std::vector<Message> talk = {message("user", "hi"), message("assistant", "yo"),
                               message("user", "k")};
  EXPECT_TRUE(text_of(gemma3, talk).ends_with("<start_of_turn>model\n"));
  talk[1].reasoning = "deep";
  expect_refused(gemma3, talk, {"message 1 has reasoning", "no place"});
  talk[1].reasoning.clear();
  talk[1].tool_calls = {{"f", "{}", "c1"}};
  expect_refused(gemma3, talk, {"message 1", "no tools"});
  talk[1] = message("tool", "3");
  expect_refused(gemma3, talk, {"message 1", "no tools"});
}

TEST(MessageRules, AResultBelongsToACall) {
  for (const Format& format : formats()) {
    if (std::string_view(format.name) == "Gemma 3") continue;
    std::vector<Message> messages = {message("user", "1+2?"), message("assistant", "so"),
                                     message("tool", "3"), message("tool", "4")};
    messages[2].tool_call_id = "c1";
    messages[3].tool_call_id = "c2";
    expect_refused(format, messages, {"message 2 is the result of a tool"});
    expect_refused(format, {messages[2], messages[0]}, {"message 0 is the result of a tool"});
    messages[1].tool_calls = {{"f", "{}", "c1"}, {"g", "{}", "c2"}};
    Request request;
    request.messages = messages;
    const auto prompt = request_prompt(*format.tokenizer, request);
    ASSERT_TRUE(prompt.ok()) << format.name << ": " << prompt.error().message;
    EXPECT_NE(prompt->text.find("response:f{"), std::string::npos) << prompt->text;
    EXPECT_NE(prompt->text.find("response:g{"), std::string::npos) << prompt->text;
  }
}

TEST(MessageRules, ACallHasOneResult) {
  for (const Format& format : formats()) {
    if (std::string_view(format.name) == "Gemma 3") continue;
    std::vector<Message> messages = {message("user", "1+2?"), message("assistant", ""),
                                     message("tool", "3"), message("tool", "4")};
    messages[1].tool_calls = {{"f", "{}", "c1"}, {"g", "{}", "c2"}};
    messages[2].tool_call_id = "c1";
    messages[3].tool_call_id = "zz";
    expect_refused(format, messages, {"message 3 is the result of the call \"zz\"", "none"});
    messages[3].tool_call_id = "c1";
    expect_refused(format, messages, {"message 3 is a second result of the call \"c1\""});
    // Each message's calls have their own results.
    messages[3] = messages[1];
    messages.push_back(messages[2]);
    Request request;
    request.messages = messages;
    EXPECT_TRUE(request_prompt(*format.tokenizer, request).ok()) << format.name;
    EXPECT_TRUE(chat_prompt(*format.tokenizer, json_of(messages), false).ok()) << format.name;
    messages[4].tool_call_id = "c3";
    expect_refused(format, messages, {"message 4 is the result of the call \"c3\""});
    messages[1].tool_calls[1].id = "c1";
    expect_refused(format, messages, {"message 1 has two calls with the id \"c1\""});
  }
}

TEST(MessageRules, AResultWithoutAnIdIsOfAnyCall) {
  for (const Format& format : formats()) {
    if (std::string_view(format.name) == "Gemma 3") continue;
    std::vector<Message> messages = {message("user", "1+2?"), message("assistant", ""),
                                     message("tool", "3"), message("tool", "4")};
    for (const char* id : {"", "c1"}) {
      messages[1].tool_calls = {{"f", "{}", id}, {"g", "{}", ""}};
      Request request;
      request.messages = messages;
      // A template may still have no name for it.
      const auto prompt = request_prompt(*format.tokenizer, request);
      if (prompt.ok()) continue;
      EXPECT_TRUE(prompt.error().message.starts_with("the chat template"))
          << prompt.error().message;
    }
  }
}

TEST(MessageRules, BytesThatAreNoUtf8AreKeptOrRefused) {
  const auto tokenizer = testing::mini_gemma4();
  Request plain;
  plain.messages = {message("system", "ok"), message("user", "a\xff\xfe z")};
  const auto kept = request_prompt(*tokenizer, plain);
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  EXPECT_NE(kept->text.find("a\xff\xfe z"), std::string::npos);

  const auto refused = [&](const Request& request) {
    const auto prompt = request_prompt(*tokenizer, request);
    return !prompt.ok() && prompt.error().code == ErrorCode::kUsage &&
           prompt.error().message.starts_with("messages: message 1 holds bytes that are no UTF-8");
  };
  Request request = plain;
  request.tools = R"([{"type":"function","function":{"name":"f"}}])";
  EXPECT_TRUE(refused(request));
  request = plain;
  request.enable_thinking = true;
  EXPECT_TRUE(refused(request));
  Request talk;
  talk.messages = {message("user", "q"), message("assistant", "")};
  const auto with = [&](auto change) {
    request = talk;
    request.messages[1].tool_calls = {{"f", "{}", "c1"}};
    change(request.messages[1]);
    return request;
  };
  EXPECT_FALSE(refused(with([](Message&) {})));
  EXPECT_TRUE(refused(with([](Message& m) { m.content = "\xc3"; })));
  EXPECT_TRUE(refused(with([](Message& m) { m.reasoning = "\xff"; })));
  EXPECT_TRUE(refused(with([](Message& m) { m.tool_calls[0].name = "\xff"; })));
  EXPECT_TRUE(refused(with([](Message& m) { m.tool_calls[0].id = "\xff"; })));
}

TEST(MessageRules, ASystemMessageAloneIsPlacedOrRefused) {
  for (const Format& format : formats()) {
    if (std::string_view(format.name) == "Gemma 3") {
      expect_refused(format, {message("system", "Be kind.")}, {"system message alone", "user"});
      // Nothing that could be lost.
      EXPECT_EQ(text_of(format, {message("system", " \n")}), "<bos><start_of_turn>model\n");
      EXPECT_EQ(text_of(format, {message("system", "Be kind."), message("user", "Hi")}),
                "<bos><start_of_turn>user\nBe kind.\n\nHi<end_of_turn>\n<start_of_turn>model\n");
    } else {
      EXPECT_NE(text_of(format, {message("system", "Be kind.")})
                    .find("<|turn>system\nBe kind.<turn|>\n<|turn>model\n"),
                std::string::npos)
          << format.name;
    }
  }
}

TEST(MessageRules, KeysWithoutAnythingInThemSayNothing) {
  for (const Format& format : formats()) {
    const auto prompt = chat_prompt(
        *format.tokenizer,
        R"({"messages":[{"role":"user","content":"hi","reasoning_content":"","tool_calls":[],)"
        R"("tool_call_id":null,"name":null}],"add_generation_prompt":true})",
        false);
    EXPECT_TRUE(prompt.ok()) << format.name << ": " << prompt.error().message;
  }
}

}  // namespace
}  // namespace markbase::runtime
