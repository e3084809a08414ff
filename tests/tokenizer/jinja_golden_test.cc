// The template engine against jinja2, in the environment that transformers gives its templates.
#include <gtest/gtest.h>

#include "jinja_support.h"
#include "tiny_vocabulary.h"
#include "tokenizer/jinja/template.h"

namespace markbase::tokenizer::jinja {
namespace {

struct Variables {
  Arena arena;
  base::Json names;
  Template::Variables values;

  explicit Variables(const base::Json& json) : names(json) {
    for (const auto& [name, value] : names.items()) {
      // Beyond 64 bits the JSON type of the tests has only doubles.
      values.emplace_back(name, name == "big" ? arena.big_int("123456789012345678901234567890")
                                              : value_of(value, arena));
    }
  }
};

Result<Text> render(const std::string& source, const Template::Variables& variables) {
  MB_ASSIGN(const Template parsed, Template::parse(source));
  return parsed.render(variables);
}

TEST(JinjaGolden, SnippetsGiveWhatJinjaGives) {
  const auto rows = read_json_lines("jinja/snippets.jsonl");
  ASSERT_GE(rows.size(), 2000u);
  const Variables variables(rows[0]["variables"]);
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::string source = rows[i]["template"].get<std::string>();
    const auto text = render(source, variables.values);
    if (rows[i].contains("error")) {
      EXPECT_FALSE(text.ok()) << source << "\ngave " << text->bytes << "\nexpected "
                              << rows[i]["error"];
    } else if (text.ok()) {
      EXPECT_EQ(text->bytes, rows[i]["output"].get<std::string>()) << source;
    } else {
      ADD_FAILURE() << source << "\nfailed: " << text.error().message << "\nexpected "
                    << rows[i]["output"];
    }
  }
}

}  // namespace
}  // namespace markbase::tokenizer::jinja
