// Conversations through templates, against what transformers makes of them.
#include "tokenizer/chat_template.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "small_gemma4.h"
#include "support/golden.h"
#include "tiny_vocabulary.h"

namespace markbase::tokenizer {
namespace {

using base::Json;

// A format and the tokenizer that it looks at.
struct Chat {
  std::unique_ptr<Tokenizer> tokenizer;
  std::optional<ChatTemplate> format;

  explicit Chat(const std::string& source) : tokenizer(small_gemma4(source)) {
    auto made = ChatTemplate::create(*tokenizer);
    if (made.ok()) format = *std::move(made);
    EXPECT_TRUE(format.has_value()) << (made.ok() ? "no format" : made.error().message);
  }
  Result<RenderedChat> render(const std::string& json) const {
    MB_ASSIGN(ChatRequest request, parse_chat_request(json));
    return format->render(std::move(request));
  }
  std::string text(const std::string& json) const {
    const auto chat = render(json);
    return chat.ok() ? rendered_text(chat->segments) : "error: " + chat.error().message;
  }
};

std::string template_file(const std::string& name) {
  return testing::read_file(testing::golden_path("chat/" + name));
}

// The line as it stands, since the JSON type of the tests has no long integers.
std::string request_of(const std::string& line) {
  const std::string begin = R"({"request":)";
  const size_t end = line.find(R"(,"spelled":)");
  return line.substr(begin.size(), end - begin.size());
}

void compare(const Chat& chat, const char* name, size_t least) {
  const std::string all = template_file("lists.jsonl");
  size_t compared = 0;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = all.find('\n', begin);
    const std::string line = all.substr(begin, end - begin);
    begin = end + 1;
    const Json row = Json::parse(line);
    if (!row.contains(name)) continue;
    const auto rendered = chat.render(request_of(line));
    ++compared;
    if (!row[name].is_string()) {
      EXPECT_FALSE(rendered.ok()) << line << "\ngave " << rendered_text(rendered->segments);
    } else if (rendered.ok()) {
      EXPECT_EQ(rendered_text(rendered->segments), row[name].get<std::string>())
          << request_of(line);
    } else {
      ADD_FAILURE() << rendered.error().message << "\n" << line;
    }
  }
  EXPECT_GE(compared, least);
}

TEST(ChatTemplate, CanonicalGivesWhatTransformersGives) {
  compare(Chat(template_file("gemma4-chat-template.jinja")), "canonical", 400);
}

TEST(ChatTemplate, InterleavedGivesWhatTransformersGives) {
  compare(Chat(template_file("gemma4-chat-template-interleaved.jinja")), "interleaved", 400);
}

TEST(ChatTemplate, IdsAreThoseOfTheWholeText) {
  size_t compared = 0;
  for (const char* name :
       {"gemma4-chat-template.jinja", "gemma4-chat-template-interleaved.jinja"}) {
    const Chat chat(template_file(name));
    const std::string all = template_file("lists.jsonl");
    for (size_t begin = 0; begin < all.size(); begin = all.find('\n', begin) + 1) {
      const std::string line = all.substr(begin, all.find('\n', begin) - begin);
      if (line.find(R"("spelled":true)") != line.npos) continue;
      const auto rendered = chat.render(request_of(line));
      if (!rendered.ok()) continue;
      const auto ids = encode_chat(*chat.tokenizer, rendered->segments);
      EXPECT_EQ(ids,
                chat.tokenizer->encode(rendered_text(rendered->segments), {.parse_special = true}));
      ++compared;
    }
  }
  EXPECT_GE(compared, 400u);
}

// A request with every field of a message in it; `field` counts up to the one that gets the text.
// Returns the number of fields.
int fields_with(const std::string& text, int field, Json& request) {
  int count = 0;
  const auto put = [&](const char* usual) { return count++ == field ? text : std::string(usual); };
  Json user = {{"role", "user"}, {"content", put("hi")}};
  Json parts = {{"role", "user"},
                {"content",
                 {{{"type", "text"}, {"text", put("a")}},
                  {{"type", "image"}},
                  {{"type", "text"}, {"text", put("b")}}}}};
  Json call = {
      {"id", put("c1")},
      {"type", "function"},
      {"function",
       {{"name", put("f")},
        {"arguments", {{put("k"), put("v")}, {"n", {{{put("kk"), put("vv")}}, put("x")}}}}}}};
  Json assistant = {{"role", "assistant"},
                    {"reasoning_content", put("so")},
                    {"tool_calls", {call}},
                    {"content", put("done")}};
  Json tool = {
      {"role", "tool"}, {"tool_call_id", put("c1")}, {"name", put("f")}, {"content", put("sunny")}};
  Json native = {{"role", "assistant"},
                 {"reasoning", put("so")},
                 {"tool_calls", {call}},
                 {"tool_responses", {{{"name", put("f")}, {"response", {{put("r"), put("s")}}}}}},
                 {"content", put("")}};
  Json system = {{"role", "system"}, {"content", put("be kind")}};
  Json role = {{"role", put("other")}, {"content", "x"}};
  Json schema = {
      {"type", "object"},
      {"properties",
       {{put("p"), {{"type", "string"}, {"description", put("d")}, {"enum", {put("e")}}}},
        {"q", {{"type", put("integer")}}},
        {"o",
         {{"type", "object"},
          {"properties", {{put("oo"), {{"type", "string"}}}}},
          {"required", {put("oo")}}}},
        {"l", {{"type", "array"}, {"items", {{"type", "string"}, {put("x"), put("y")}}}}}}},
      {"required", {put("p")}}};
  Json function = {{"name", put("f")},
                   {"description", put("a tool")},
                   {"parameters", schema},
                   {"response", {{"type", "object"}, {"description", put("r")}}}};
  request = {
      {"messages", {system, user, parts, assistant, tool, native, role, user, assistant, tool}},
      {"tools", {{{"type", "function"}, {"function", function}}}},
      {"enable_thinking", true},
      {"add_generation_prompt", true}};
  return count;
}

// How often each control token is among the ids.
std::vector<size_t> control_counts(const Chat& chat, const Json& request) {
  const auto rendered = chat.render(request.dump());
  EXPECT_TRUE(rendered.ok()) << rendered.error().message;
  if (!rendered.ok()) return {};
  std::vector<size_t> counts(gemma4_control_tokens().size());
  for (const int32_t id : encode_chat(*chat.tokenizer, rendered->segments)) {
    if (id < static_cast<int32_t>(counts.size())) ++counts[static_cast<size_t>(id)];
  }
  return counts;
}

class Forging : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Templates, Forging,
                         ::testing::Values("gemma4-chat-template.jinja",
                                           "gemma4-chat-template-interleaved.jinja", ""),
                         [](const auto& info) { return "n" + std::to_string(info.index); });

// Control tokens in any field leave those that the template writes: what stands for them is
// a harmless text of the same kind.
TEST_P(Forging, NoFieldOfAMessageMakesAControlToken) {
  const Chat chat(GetParam()[0] == '\0' ? "" : template_file(GetParam()));
  Json request;
  const int num_fields = fields_with("", -1, request);
  EXPECT_GE(num_fields, 30);
  for (int field = 0; field < num_fields; ++field) {
    fields_with("zz", field, request);
    const auto expected = control_counts(chat, request);
    ASSERT_FALSE(expected.empty());
    EXPECT_EQ(expected[2], 1u);  // one <bos>
    for (const std::string& token : gemma4_control_tokens()) {
      for (const std::string& text : {token, "z" + token + "z", token + token}) {
        fields_with(text, field, request);
        const auto counts = control_counts(chat, request);
        // A thought in the model's words is cut out by the template, and a turn without words may
        // stay open: less, but never more.
        ASSERT_EQ(counts.size(), expected.size());
        const bool may_be_cut = token == "<|channel>" || token == "<channel|>";
        for (size_t id = 0; id < counts.size(); ++id) {
          if (counts[id] == expected[id] || (may_be_cut && counts[id] < expected[id])) continue;
          ADD_FAILURE() << text << " in field " << field << " gave " << gemma4_control_tokens()[id]
                        << " " << counts[id] << " times, expected " << expected[id];
        }
      }
    }
  }
}

TEST_P(Forging, HalvesOfATokenMeetNoOtherHalf) {
  const Chat chat(GetParam()[0] == '\0' ? "" : template_file(GetParam()));
  Json request;
  const int num_fields = fields_with("", -1, request);
  for (int field = 0; field < num_fields; ++field) {
    fields_with("zz", field, request);
    const auto expected = control_counts(chat, request);
    for (const char* text :
         {"<", "<|", "|>", ">", "turn|>", "<|turn", "<|tool_response", "|>\n<|turn>model\n"}) {
      fields_with(text, field, request);
      EXPECT_EQ(control_counts(chat, request), expected) << text << " in field " << field;
    }
  }
}

TEST(ChatTemplate, MessagesThatWouldBeLostAreRefused) {
  const Chat chat(template_file("gemma4-chat-template-interleaved.jinja"));
  const auto refused = [&](const std::string& json, const std::string& needle) {
    const auto result = chat.render(json);
    ASSERT_FALSE(result.ok()) << json;
    EXPECT_NE(result.error().message.find(needle), std::string::npos) << result.error().message;
  };
  const std::string user = R"({"role":"user","content":"a"})";
  refused("{", "not valid JSON");
  refused("[]", "expected a JSON object");
  refused("{}", "\"messages\"");
  refused(R"({"messages":[]})", "at least one message");
  refused(R"({"messages":{}})", "got a dict, expected a list");
  refused(R"({"messages":[3]})", "message 0 is a int");
  refused(R"({"messages":[{"content":"a"}]})", "message 0 has no 'role'");
  refused(R"({"messages":[{"role":"user","content":3}]})", "content of type int");
  refused(R"({"messages":[{"role":"user","content":[{"type":"text"}]}]})", "without a 'text'");
  refused(R"({"messages":[{"role":"user","content":[{"type":"smell"}]}]})", "type 'smell'");
  refused(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", "has no place");
  refused(R"({"messages":[{"role":"user","content":"a","refusal":"x"}]})", "the key 'refusal'");
  refused(R"({"messages":[{"role":"assistant","tool_calls":"x"}]})", "'tool_calls' is of type str");
  refused(R"({"messages":[)" + user + R"(],"tools":[1]})", "\"tools\"");
  refused(R"({"messages":[)" + user + R"(],"tools":"f"})", "\"tools\"");
  refused(R"({"messages":[)" + user + R"(],"enable_thinking":"yes"})", "\"enable_thinking\"");
  refused(R"({"messages":[)" + user + R"(],"temperature":1})", "no such variable");
  refused(R"({"messages":[)" + user +
              R"(],"continue_final_message":true,"add_generation_prompt":true})",
          "give one of them");
  refused(R"({"messages":[)" + user + R"(],"continue_final_message":"reasoning_content"})",
          "no text under");
  const auto good =
      chat.render(R"({"messages":[)" + user + R"(],"preserve_thinking":true,"tools":null})");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->ignored, std::vector<std::string>{"preserve_thinking"});
}

// Nearly 100,000 messages, tools among them: neither the limits nor a step for each pair of
// messages may stand in the way. Written out by what is around each message, not by another
// rendering.
TEST_P(Forging, AVeryLongConversationIsRendered) {
  const Chat chat(GetParam()[0] == '\0' ? "" : template_file(GetParam()));
  // A range of more than 100,000 numbers is refused, as Jinja's sandbox does.
  constexpr int kRounds = 24999;
  std::string request = R"({"messages":[)";
  for (int i = 0; i < kRounds; ++i) {
    request +=
        R"({"role":"user","content":"go"},{"role":"assistant","tool_calls":[{"id":"c","type":"function",)"
        R"("function":{"name":"f","arguments":{"k":1}}}]},{"role":"tool","tool_call_id":"c",)"
        R"("name":"f","content":"x"},{"role":"assistant","content":"done"},)";
  }
  request += R"({"role":"user","content":"end"}]})";
  const auto rendered = chat.render(request);
  ASSERT_TRUE(rendered.ok()) << rendered.error().message;
  const std::string text = rendered_text(rendered->segments);
  const auto count = [&](std::string_view needle) {
    int found = 0;
    for (size_t at = text.find(needle); at != text.npos; at = text.find(needle, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<|turn>user\ngo<turn|>\n"), kRounds);
  EXPECT_EQ(count("<|tool_call>call:f{k:1}<tool_call|>"), kRounds);
  EXPECT_EQ(count("done<turn|>\n"), kRounds);
  EXPECT_TRUE(text.ends_with("<|turn>user\nend<turn|>\n"));
}

TEST(ChatTemplate, MediaKeepTheirPlaceAndAreCounted) {
  const Chat chat(template_file("gemma4-chat-template.jinja"));
  const auto rendered = chat.render(
      R"({"messages":[{"role":"user","content":[{"type":"image"},{"type":"text","text":" a "},{"type":"video"}]}]})");
  ASSERT_TRUE(rendered.ok());
  EXPECT_EQ(rendered->num_media, 2u);
  EXPECT_EQ(rendered_text(rendered->segments), "<bos><|turn>user\n<|image|>a<|video|><turn|>\n");
}

TEST(ChatTemplate, ATemplateThatIsNoneIsNamed) {
  const auto tokenizer = small_gemma4("{% if %}");
  const auto made = ChatTemplate::create(*tokenizer);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kBadInput);
  EXPECT_NE(made.error().message.find("small Gemma 4: line 1, column 7"), std::string::npos)
      << made.error().message;
}

TEST(ChatTemplate, WhatTheTemplateRefusesIsSaid) {
  const Chat chat("{{ raise_exception('Roles must alternate') }}");
  const auto result = chat.render(R"({"messages":[{"role":"user","content":"a"}]})");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kUsage);
  EXPECT_NE(result.error().message.find("Roles must alternate"), std::string::npos);
}

TEST(ChatTemplate, BytesThatAreNoTextArePassedOn) {
  const Chat chat("");
  const std::vector<ChatMessage> messages = {{"user", " \xff\xc3 "}};
  const auto rendered = chat.format->render(chat_request_of(messages, true));
  ASSERT_TRUE(rendered.ok());
  EXPECT_EQ(rendered_text(rendered->segments), "<bos><|turn>user\n\xff\xc3<turn|>\n<|turn>model\n");
}

// The published format's examples, as the canonical template renders them.
const char* const kWeather =
    R"("tools":[{"type":"function","function":{"name":"get_weather","description":"Weather forecast","parameters":{"type":"object","properties":{"city":{"type":"string","description":"City name"},"days":{"type":"integer"}},"required":["city"]}}}])";
#define WEATHER_HEAD                                                                               \
  "<|tool>declaration:get_weather{description:<|\"|>Weather "                                      \
  "forecast<|\"|>,parameters:{properties:{city:{description:<|\"|>City "                           \
  "name<|\"|>,type:<|\"|>STRING<|\"|>},days:{type:<|\"|>INTEGER<|\"|>}},required:[<|\"|>city<|\"|" \
  ">],type:<|\"|>OBJECT<|\"|>}}<tool|>"
#define LYON_CALL "<|tool_call>call:get_weather{city:<|\"|>Lyon<|\"|>,days:3}<tool_call|>"
#define LYON_MESSAGES \
  R"({"role":"user","content":"Weather in Lyon?"},{"role":"assistant","reasoning_content":"Need the tool.","tool_calls":[{"id":"1","type":"function","function":{"name":"get_weather","arguments":{"days":3,"city":"Lyon"}}}]},{"role":"tool","tool_call_id":"1","content":"sunny"})"

TEST(Gemma4BuiltIn, ExamplesOfThePublishedFormat) {
  const std::string tools = kWeather;
  const std::string lyon = LYON_MESSAGES;
  const std::string answered = R"([{"role":"system","content":"You are terse."},)" + lyon;
  const std::string head = "<bos><|turn>system\n<|think|>\nYou are terse." WEATHER_HEAD
                           "<turn|>\n<|turn>user\nWeather in Lyon?<turn|>\n<|turn>model\n";
  const std::string response =
      "<|tool_response>response:get_weather{value:<|\"|>sunny<|\"|>}<tool_response|>";
  const std::pair<std::string, std::string> rows[] = {
      {R"({"messages":[{"role":"user","content":"Hi"}],"add_generation_prompt":true})",
       "<bos><|turn>user\nHi<turn|>\n<|turn>model\n"},
      {R"({"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"enable_thinking":true,"add_generation_prompt":true})",
       "<bos><|turn>system\n<|think|>\nBe brief.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\n"},
      {R"({"messages":[{"role":"user","content":"2+2?"},{"role":"assistant","reasoning":"easy","content":"4"},{"role":"user","content":"and 3+3?"}],"enable_thinking":true,"add_generation_prompt":true})",
       "<bos><|turn>system\n<|think|>\n<turn|>\n<|turn>user\n2+2?<turn|>\n<|turn>model\n4<turn|>\n<"
       "|turn>user\nand 3+3?<turn|>\n<|turn>model\n"},
      {R"({"messages":[{"role":"user","content":[{"type":"image"},{"type":"text","text":" What is this? "},{"type":"audio"},{"type":"video"}]}],"add_generation_prompt":true})",
       "<bos><|turn>user\n<|image|>What is this?<|audio|><|video|><turn|>\n<|turn>model\n"},
      {R"({"messages":[{"role":"system","content":"You are terse."},{"role":"user","content":"Weather in Lyon?"}],"enable_thinking":true,"add_generation_prompt":true,)" +
           tools + "}",
       head},
      {"{\"messages\":" + answered + R"(],"enable_thinking":true,"add_generation_prompt":true,)" +
           tools + "}",
       head + "<|channel>thought\nNeed the tool.\n<channel|>" LYON_CALL + response +
           "<|channel>thought\n"},
      {"{\"messages\":" + answered +
           R"(,{"role":"assistant","content":"It is sunny."},{"role":"user","content":"And Nice?"}],"enable_thinking":true,"add_generation_prompt":true,)" +
           tools + "}",
       head + LYON_CALL + response +
           "It is sunny.<turn|>\n<|turn>user\nAnd Nice?<turn|>\n<|turn>model\n"},
      {"{\"messages\":" + answered +
           R"(,{"role":"assistant","reasoning":"no","content":"It is sunny."},{"role":"user","content":"And Nice?"}],"enable_thinking":true,"preserve_thinking":true,"add_generation_prompt":true,)" +
           tools + "}",
       head + "<|channel>thought\nNeed the tool.\n<channel|>" LYON_CALL + response +
           "It is sunny.<turn|>\n<|turn>user\nAnd Nice?<turn|>\n<|turn>model\n"},
      {R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":{}}},{"id":"b","function":{"name":"g","arguments":{"x":1}}}]},{"role":"tool","tool_call_id":"b","content":"B"},{"role":"tool","tool_call_id":"a","content":"A"}],"add_generation_prompt":true})",
       "<bos><|turn>user\nq<turn|>\n<|turn>model\n<|tool_call>call:f{}<tool_call|><|tool_call>call:"
       "g{x:1}<tool_call|><|tool_response>response:g{value:<|\"|>B<|\"|>}<tool_response|><|tool_"
       "response>response:f{value:<|\"|>A<|\"|>}<tool_response|>"},
      {R"({"messages":[)" + lyon +
           R"(,{"role":"assistant","tool_calls":[{"id":"2","function":{"name":"f","arguments":null}}]},{"role":"tool","tool_call_id":"2","content":"ok"}]})",
       "<bos><|turn>user\nWeather in Lyon?<turn|>\n<|turn>model\n<|channel>thought\nNeed the "
       "tool.\n<channel|>" LYON_CALL +
           response +
           "<|tool_call>call:f{}<tool_call|><|tool_response>response:f{value:<|\"|>ok<|\"|>}<tool_"
           "response|>"},
      {R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"b":true,"Z":null,"a":[1,2.0,1e20,{"k":"v \"q\"\n"}],"e":[],"o":{}}}}]}],"add_generation_prompt":true})",
       "<bos><|turn>user\nq<turn|>\n<|turn>model\n<|tool_call>call:f{a:[1,2.0,1e+20,{k:<|\"|>v "
       "\"q\"\n<|\"|>}],b:true,e:[],o:{},Z:null}<tool_call|><|tool_response>"},
      {R"({"messages":[{"role":"user","content":"q"}],"tools":[{"function":{"name":"k","description":"","parameters":{"type":"object","properties":{"rows":{"type":"array","description":"Rows","items":{"type":"object","properties":{"a":{"type":"integer","minimum":1}},"required":["a"],"additionalProperties":false}},"free":{"type":"object"},"n":{"type":"number","enum":[1,2]},"t":{"type":"array","items":{"type":"string","enum":["x","y"]}},"u":{"anyOf":[]}}}}}]})",
       "<bos><|turn>system\n<|tool>declaration:k{description:<|\"|><|\"|>,parameters:{properties:{"
       "free:{properties:{},type:<|\"|>OBJECT<|\"|>},n:{type:<|\"|>NUMBER<|\"|>},rows:{description:"
       "<|\"|>Rows<|\"|>,items:{additionalProperties:false,properties:{a:{type:<|\"|>INTEGER<|\"|>}"
       "},required:[<|\"|>a<|\"|>],type:<|\"|>OBJECT<|\"|>},type:<|\"|>ARRAY<|\"|>},t:{items:{enum:"
       "[<|\"|>x<|\"|>,<|\"|>y<|\"|>],type:<|\"|>STRING<|\"|>},type:<|\"|>ARRAY<|\"|>},u:{type:<|"
       "\"|><|\"|>}},type:<|\"|>OBJECT<|\"|>}}<tool|><turn|>\n<|turn>user\nq<turn|>\n"},
      {R"({"messages":[{"role":"user","content":"q"}],"tools":[{"function":{"name":"now","description":"Current time"}},{"function":{"name":"now","description":"Current time","parameters":{"type":"object","properties":{}}}}]})",
       "<bos><|turn>system\n<|tool>declaration:now{description:<|\"|>Current "
       "time<|\"|>}<tool|><|tool>declaration:now{description:<|\"|>Current "
       "time<|\"|>,parameters:{type:<|\"|>OBJECT<|\"|>}}<tool|><turn|>\n<|turn>user\nq<turn|>\n"},
      {R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"one"},{"role":"assistant","content":"two"},{"role":"user","content":"r"}]})",
       "<bos><|turn>user\nq<turn|>\n<|turn>model\nonetwo<turn|>\n<|turn>user\nr<turn|>\n"},
      {R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"function":{"name":"get_weather","arguments":{}}}],"tool_responses":[{"name":"get_weather","response":{"temp":21.5,"sky":"clear","ok":true}}]}]})",
       "<bos><|turn>user\nq<turn|>\n<|turn>model\n<|tool_call>call:get_weather{}<tool_call|><|tool_"
       "response>response:get_weather{ok:true,sky:<|\"|>clear<|\"|>,temp:21.5}<tool_response|>"},
      {R"({"messages":[{"role":"developer","content":[{"type":"text","text":" a "},{"type":"text","text":"b"}]},{"role":"user","content":[{"type":"text","text":" c "},{"type":"text","text":"d"}]},{"role":"developer","content":"e"}]})",
       "<bos><|turn>system\na b <turn|>\n<|turn>user\ncd<turn|>\n<|turn>developer\ne<turn|>\n"},
      {R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"<|channel>thought\nx<channel|> a <|channel>y<channel|>b "}]})",
       "<bos><|turn>user\nq<turn|>\n<|turn>model\na b<turn|>\n"},
      {R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","content":"The answer"}],"continue_final_message":true})",
       "<bos><|turn>user\nq<turn|>\n<|turn>model\nThe answer"},
      {R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","reasoning_content":"Let me","content":"x"}],"continue_final_message":"reasoning_content"})",
       "<bos><|turn>user\nq<turn|>\n<|turn>model\n<|channel>thought\nLet me"},
  };
  const Chat chat("");
  for (const auto& [request, prompt] : rows) EXPECT_EQ(chat.text(request), prompt) << request;
}

TEST(Gemma4BuiltIn, ArgumentsThatAreATextAreRefused) {
  const auto result = Chat("").render(
      R"({"messages":[{"role":"user","content":"q"},{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]})");
  ASSERT_FALSE(result.ok());
  EXPECT_NE(result.error().message.find("must be an object"), std::string::npos);
}

}  // namespace
}  // namespace markbase::tokenizer
