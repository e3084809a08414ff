#include "tiny_vocabulary.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/check.h"
#include "support/golden.h"

namespace markbase::tokenizer {

std::vector<base::Json> read_json_lines(const std::string& golden) {
  std::istringstream in(testing::read_file(testing::golden_path(golden)));
  std::vector<base::Json> rows;
  for (std::string line; std::getline(in, line);) {
    auto row = base::parse_json(line, golden);
    MB_CHECK(row.ok());
    rows.push_back(std::move(*row));
  }
  return rows;
}

std::string tiny_json_text() {
  return testing::read_file(testing::golden_path("tokenizer/tiny_tokenizer.json"));
}

base::Json tiny_json() {
  auto json = base::parse_json(tiny_json_text(), "tiny_tokenizer.json");
  MB_CHECK(json.ok());
  return std::move(*json);
}

std::unique_ptr<TinyGguf> tiny_gguf() {
  auto gguf = std::make_unique<TinyGguf>();
  GgufVocabulary& v = gguf->vocabulary;
  v.model = "llama";
  for (const base::Json& row : read_json_lines("tokenizer/tiny_pieces.jsonl")) {
    gguf->pieces.push_back(row["piece"].get<std::string>());
    v.scores.push_back(row["score"].get<float>());
    v.token_types.push_back(row["type"].get<int32_t>());
  }
  // Converters write the spaces of user-defined pieces as spaces.
  for (size_t id = 0; id < gguf->pieces.size(); ++id) {
    if (v.token_types[id] != 4) continue;
    std::string spaced;
    for (const char c : gguf->pieces[id]) {
      // U+2581 is E2 96 81.
      if (c == '\xE2') spaced.push_back(' ');
      if (static_cast<unsigned char>(c) < 0x80) spaced.push_back(c);
    }
    gguf->pieces[id] = spaced;
  }
  v.tokens.assign(gguf->pieces.begin(), gguf->pieces.end());
  return gguf;
}

void use_merges(TinyGguf& gguf) {
  const base::Json json = tiny_json();
  for (const base::Json& pair : json["model"]["merges"]) {
    gguf.merges.push_back(pair[0].get<std::string>() + " " + pair[1].get<std::string>());
  }
  gguf.vocabulary.model = "gemma4";
  gguf.vocabulary.merges.assign(gguf.merges.begin(), gguf.merges.end());
  gguf.vocabulary.scores.clear();
}

std::unique_ptr<Tokenizer> tiny_tokenizer(const std::string& kind) {
  if (kind == "json")
    return std::move(from_tokenizer_json(tiny_json_text(), "", "", "tiny")).value();
  const auto gguf = tiny_gguf();
  if (kind == "merges") use_merges(*gguf);
  return std::move(from_gguf(gguf->vocabulary, "tiny")).value();
}

namespace {

class TinyVocabulary : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Kinds, TinyVocabulary, ::testing::Values("json", "scores", "merges"),
                         [](const auto& info) { return std::string(info.param); });

using Ids = std::vector<int32_t>;

TEST_P(TinyVocabulary, GivesTheLibrarysIdsAndText) {
  const auto tokenizer = tiny_tokenizer(GetParam());
  const auto rows = read_json_lines("tokenizer/tiny.jsonl");
  ASSERT_GE(rows.size(), 500u);
  for (const base::Json& row : rows) {
    const std::string text = row["text"].get<std::string>();
    const Ids ids = row["ids"].get<Ids>();
    EXPECT_EQ(tokenizer->encode(text, {.parse_special = true}), ids) << text;
    EXPECT_EQ(tokenizer->encode(text, {}), row["plain"].get<Ids>()) << text;
    EXPECT_EQ(tokenizer->decode(ids, false), row["decoded"].get<std::string>());
    EXPECT_EQ(tokenizer->decode(ids, true), row["decoded_skip"].get<std::string>());
  }
}

TEST_P(TinyVocabulary, KnowsItsTokens) {
  const auto tokenizer = tiny_tokenizer(GetParam());
  EXPECT_EQ(tokenizer->pad_id(), 0);
  EXPECT_EQ(tokenizer->eos_id(), 1);
  EXPECT_EQ(tokenizer->bos_id(), 2);
  EXPECT_EQ(tokenizer->unk_id(), 3);
  EXPECT_EQ(tokenizer->extra_stop_ids(), Ids{5});
  EXPECT_EQ(tokenizer->kind(2), TokenKind::kControl);
  EXPECT_EQ(tokenizer->kind(*tokenizer->find("<h1>")), TokenKind::kUserDefined);
  EXPECT_EQ(tokenizer->kind(*tokenizer->find("<0x0A>")), TokenKind::kByte);
  EXPECT_EQ(tokenizer->kind(*tokenizer->find("the")), TokenKind::kNormal);
  EXPECT_EQ(tokenizer->piece(tokenizer->vocab_size()), "");
  EXPECT_EQ(tokenizer->piece(-1), "");
  EXPECT_FALSE(tokenizer->find("no such piece"));
  EXPECT_EQ(tokenizer->encode("the", {.add_bos = true}).front(), 2);
}

}  // namespace
}  // namespace markbase::tokenizer
