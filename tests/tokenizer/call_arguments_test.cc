// Arguments of calls: JSON text where servers write messages, objects where templates read them.
#include "tokenizer/call_arguments.h"

#include <gtest/gtest.h>

#include "tokenizer/jinja/python.h"

namespace markbase::tokenizer {
namespace {

std::string request_with(const std::string& function) {
  return R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[)"
         R"({"function":)" +
         function + "}]}]}";
}

// What the arguments of the call are after the reading: as Python prints them, or the error.
std::string read(const std::string& function) {
  auto request = parse_chat_request(request_with(function));
  EXPECT_TRUE(request.ok());
  const Result<void> done = read_call_arguments(*request);
  if (!done.ok()) {
    EXPECT_EQ(done.error().code, ErrorCode::kUsage);
    return "error: " + done.error().message;
  }
  const jinja::Dict& message = *request->messages.list->items[1].dict;
  const jinja::Dict& call = *message.find("tool_calls")->list->items[0].dict;
  const jinja::Value* arguments = call.find("function")->dict->find("arguments");
  return std::string(arguments == nullptr ? "none" : jinja::type_name(*arguments));
}

TEST(CallArguments, AnObjectAndItsTextAreTheSame) {
  EXPECT_EQ(read(R"({"name":"f","arguments":{"a":1}})"), "dict");
  EXPECT_EQ(read(R"({"name":"f","arguments":" {\"a\": 1}\n"})"), "dict");
  EXPECT_EQ(read(R"({"arguments":"{}"})"), "dict");
  EXPECT_EQ(read(R"({"name":"f"})"), "none");
  EXPECT_EQ(read(R"({"name":"f","arguments":null})"), "NoneType");
}

TEST(CallArguments, NumbersOfATextKeepTheirDigits) {
  auto request = parse_chat_request(
      request_with(R"({"name":"f","arguments":"{\"a\":12345678901234567890123,\"b\":2.0}"})"));
  ASSERT_TRUE(request.ok());
  ASSERT_TRUE(read_call_arguments(*request).ok());
  const jinja::Dict& message = *request->messages.list->items[1].dict;
  const jinja::Dict& call = *message.find("tool_calls")->list->items[0].dict;
  const jinja::Dict& arguments = *call.find("function")->dict->find("arguments")->dict;
  EXPECT_EQ(arguments.find("a")->view(), "12345678901234567890123");
  EXPECT_TRUE(arguments.find("b")->is(jinja::Type::kFloat));
}

TEST(CallArguments, AnythingElseIsRefused) {
  const std::pair<const char*, const char*> rows[] = {
      {R"("a=1")", "arguments of 'f': not valid JSON at byte 1"},
      {R"("[1]")", "arguments of 'f': expected object, got array"},
      {R"("\"x\"")", "arguments of 'f': expected object, got string"},
      {"[1]", "arguments of 'f': expected object, got array"},
      {"1.5", "arguments of 'f': expected object, got number"},
      {"12345678901234567890123", "arguments of 'f': expected object, got number"},
      {"true", "arguments of 'f': expected object, got boolean"}};
  for (const auto& [arguments, message] : rows) {
    const std::string got = read(std::string(R"({"name":"f","arguments":)") + arguments + "}");
    EXPECT_TRUE(got.starts_with(std::string("error: ") + message)) << got;
  }
}

TEST(CallArguments, OtherShapesAreLeftToTheTemplatesChecks) {
  for (const char* request :
       {R"({"messages":[3,"x",{"role":"assistant","tool_calls":"f"}]})",
        R"({"messages":[{"role":"assistant","tool_calls":["f",{"function":"f"},{"id":"1"}]}]})"}) {
    auto parsed = parse_chat_request(request);
    ASSERT_TRUE(parsed.ok());
    EXPECT_TRUE(read_call_arguments(*parsed).ok()) << request;
  }
}

}  // namespace
}  // namespace markbase::tokenizer
