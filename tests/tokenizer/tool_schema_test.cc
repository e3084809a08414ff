// Calls held against the declared tools.
#include "tokenizer/tool_schema.h"

#include <gtest/gtest.h>

namespace markbase::tokenizer {
namespace {

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object",
    "properties": {
      "city": {"type": "string", "description": "City"},
      "days": {"type": "INTEGER"},
      "unit": {"type": "string", "enum": ["C", "F"], "nullable": true},
      "at": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
      "tags": {"type": "array", "items": {"type": ["string", "null"]}},
      "any": {"anyOf": [{"type": "string"}]}
    },
    "required": ["city"]}}},
  {"name": "open", "parameters": {"type": "object", "additionalProperties": {"type": "boolean"}}},
  {"name": "loose", "parameters": {"type": "object", "properties": {"a": {}}, "additionalProperties": true}},
  {"name": "bare"}
])";

std::vector<std::string> faults(const std::string& name, const std::string& arguments) {
  const auto json = base::parse_json(kTools, "tools");
  const auto set = ToolSet::from_json(*json);
  EXPECT_TRUE(set.ok()) << set.error().message;
  return set->faults({name, arguments});
}

struct Row {
  const char* name;
  const char* arguments;
  const char* fault;  // a part of the only one; null: none
};

TEST(ToolSchema, Table) {
  const Row rows[] = {
      {"get_weather", R"({"city":"Lyon"})", nullptr},
      {"get_weather",
       R"({"city":"Lyon","days":3,"unit":"C","at":{"lat":1},"tags":["a",null],"any":1})", nullptr},
      {"get_weather", R"({"city":"Lyon","days":3.0})", nullptr},
      {"get_weather", R"({"city":"Lyon","days":123456789012345678901234567890})", nullptr},
      {"get_weather", R"({"city":"Lyon","unit":null})", nullptr},
      {"get_weather", R"({})", "'city' is required"},
      {"get_weather", R"({"city":5})", "arguments.city: expected string, got 5"},
      {"get_weather", R"({"city":null})", "arguments.city: expected string, got null"},
      {"get_weather", R"({"city":"L","days":"3"})", "arguments.days: expected integer, got \"3\""},
      {"get_weather", R"({"city":"L","days":3.5})", "arguments.days: expected integer, got 3.5"},
      {"get_weather", R"({"city":"L","days":true})", "arguments.days: expected integer, got true"},
      {"get_weather", R"({"city":"L","unit":"K"})", "arguments.unit: expected one of"},
      {"get_weather", R"({"city":"L","at":{}})", "arguments.at: 'lat' is required"},
      {"get_weather", R"({"city":"L","at":{"lat":"1"}})", "arguments.at.lat: expected number"},
      {"get_weather", R"({"city":"L","at":[]})", "arguments.at: expected object, got []"},
      {"get_weather", R"({"city":"L","tags":["a",2]})",
       "arguments.tags[1]: expected string or null, got 2"},
      {"get_weather", R"({"city":"L","town":"M"})", "no parameter 'town'"},
      {"open", R"({"x":true})", nullptr},
      {"open", R"({"x":1})", "arguments.x: expected boolean"},
      {"loose", R"({"b":1})", nullptr},
      {"bare", R"({})", nullptr},
      {"bare", R"({"x":1})", "no parameter 'x'"},
      {"get_wether", R"({})", "no tool 'get_wether'"},
  };
  for (const Row& row : rows) {
    const auto found = faults(row.name, row.arguments);
    if (row.fault == nullptr) {
      EXPECT_TRUE(found.empty()) << row.name << row.arguments << ": " << found[0];
    } else {
      ASSERT_EQ(found.size(), 1u) << row.name << row.arguments;
      EXPECT_NE(found[0].find(row.fault), std::string::npos) << found[0];
    }
  }
}

TEST(ToolSchema, ManyFaultsAreCutOff) {
  std::string arguments = R"({"city":"L","tags":[0)";
  for (int i = 0; i < 1000; ++i) arguments += ",0";
  EXPECT_EQ(faults("get_weather", arguments + "]}").size(), 100u);
}

TEST(ToolSchema, RefusesWhatIsNoList) {
  for (const char* text : {"{}", "3", "[3]", "[{}]", R"([{"name":1}])", R"([{"function":{}}])",
                           R"([{"name":"a"},{"function":{"name":"a"}}])"}) {
    const auto set = ToolSet::from_json(*base::parse_json(text, "tools"));
    ASSERT_FALSE(set.ok()) << text;
    EXPECT_EQ(set.error().code, ErrorCode::kUsage);
    EXPECT_TRUE(set.error().message.starts_with("tools: ")) << set.error().message;
  }
}

}  // namespace
}  // namespace markbase::tokenizer
