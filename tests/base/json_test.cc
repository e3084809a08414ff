#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

namespace markbase::base {
namespace {

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}

TEST(Json, KeepsTheOrderOfKeys) {
  const auto json = parse_json(R"({"b":1,"a":[true,null,"x"]})", "test");
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(dump_json(*json), R"({"b":1,"a":[true,null,"x"]})");
}

TEST(Json, ErrorsNameTheSourceAndTheByte) {
  for (const char* text :
       {"", "{", "{\"a\":}", "[1,]", "nul", "{} x", "\"\xff\"", "1e999", "\"\\ud800\""}) {
    const auto json = parse_json(text, "some/config.json");
    ASSERT_FALSE(json.ok()) << text;
    EXPECT_EQ(json.error().code, ErrorCode::kBadInput);
    EXPECT_NE(json.error().message.find("some/config.json"), std::string::npos);
  }
}

TEST(Json, DepthIsLimited) {
  EXPECT_TRUE(parse_json(nested(256), "t").ok());
  EXPECT_FALSE(parse_json(nested(257), "t").ok());
  EXPECT_FALSE(parse_json(std::string(1 << 20, '['), "t").ok());
  // Brackets inside strings are no nesting, behind an escaped quote too.
  EXPECT_TRUE(parse_json("\"" + std::string(1000, '[') + "\"", "t").ok());
  EXPECT_TRUE(parse_json("\"\\\"" + std::string(1000, '{') + "\"", "t").ok());
}

TEST(Json, DumpReplacesWhatIsNoUtf8) {
  EXPECT_EQ(dump_json(Json("a\xff"
                           "b")),
            "\"a\xef\xbf\xbd"
            "b\"");
  EXPECT_EQ(dump_json(Json{{"a", 1}}, 2), "{\n  \"a\": 1\n}");
}

}  // namespace
}  // namespace markbase::base
