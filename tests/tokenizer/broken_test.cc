// A row for every rule by which a vocabulary is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tiny_vocabulary.h"

namespace markbase::tokenizer {
namespace {

using base::Json;

void expect_refused(const Result<std::unique_ptr<Tokenizer>>& result, const std::string& needle) {
  ASSERT_FALSE(result.ok()) << needle;
  EXPECT_EQ(result.error().code, ErrorCode::kBadInput);
  EXPECT_NE(result.error().message.find(needle), std::string::npos) << result.error().message;
  EXPECT_EQ(result.error().message.find("FILE"), 0u) << result.error().message;
}

struct JsonRow {
  const char* needle;
  std::function<void(Json&)> breaks;
};

TEST(BrokenTokenizerJson, IsRefusedByName) {
  const Json level = {{"type", "ByteLevel"}};
  const JsonRow rows[] = {
      {"key 'surprise'", [](Json& j) { j["surprise"] = 1; }},
      {"model is null", [](Json& j) { j.erase("model"); }},
      {"model.type", [](Json& j) { j["model"]["type"] = "WordPiece"; }},
      {"model.dropout", [](Json& j) { j["model"]["dropout"] = 0.1; }},
      {"model.continuing_subword_prefix",
       [](Json& j) { j["model"]["continuing_subword_prefix"] = "##"; }},
      {"model.end_of_word_suffix", [](Json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }},
      {"model.ignore_merges", [](Json& j) { j["model"]["ignore_merges"] = true; }},
      {"model.byte_fallback", [](Json& j) { j["model"]["byte_fallback"] = false; }},
      {"model.byte_fallback", [](Json& j) { j["model"].erase("byte_fallback"); }},
      {"model.fuse_unk", [](Json& j) { j["model"]["fuse_unk"] = 3; }},
      {"model.unk_token", [](Json& j) { j["model"]["unk_token"] = "<none>"; }},
      {"model.news", [](Json& j) { j["model"]["news"] = true; }},
      {"model.vocab is missing", [](Json& j) { j["model"].erase("vocab"); }},
      {"model.vocab is a list", [](Json& j) { j["model"]["vocab"] = Json::array(); }},
      {"model.vocab is null", [](Json& j) { j["model"]["vocab"] = nullptr; }},
      {"model.vocab: 'the'", [](Json& j) { j["model"]["vocab"]["the"] = "x"; }},
      {"model.vocab: 'the'", [](Json& j) { j["model"]["vocab"]["the"] = -1; }},
      {"model.vocab: 'the'", [](Json& j) { j["model"]["vocab"]["the"] = 1 << 30; }},
      {"model.vocab: id 20 is there twice", [](Json& j) { j["model"]["vocab"]["new"] = 20; }},
      {"empty piece", [](Json& j) { j["model"]["vocab"][""] = 9999; }},
      {"model.merges is missing", [](Json& j) { j["model"].erase("merges"); }},
      {"model.merges is number", [](Json& j) { j["model"]["merges"] = 1; }},
      {"model.merges: entry 39", [](Json& j) { j["model"]["merges"].push_back("ab"); }},
      {"model.merges: entry 39", [](Json& j) { j["model"]["merges"].push_back("a b c"); }},
      {"model.merges: entry 39", [](Json& j) { j["model"]["merges"].push_back({"a"}); }},
      {"model.merges: entry 39",
       [](Json& j) {
         j["model"]["merges"].push_back({"a", "b", "c"});
       }},
      {"model.merges: entry 39", [](Json& j) { j["model"]["merges"].push_back(7); }},
      {"'zz' is not in the vocabulary", [](Json& j) { j["model"]["merges"].push_back("zz a"); }},
      {"'bb' is not in the vocabulary", [](Json& j) { j["model"]["merges"].push_back("b b"); }},
      {"repeats merge", [](Json& j) { j["model"]["merges"].push_back(j["model"]["merges"][3]); }},
      {"joins a byte",
       [](Json& j) {
         j["model"]["vocab"]["<0x41>a"] = 323;
         j["model"]["merges"].push_back("<0x41> a");
       }},
      {"normalizer", [](Json& j) { j["normalizer"] = nullptr; }},
      {"normalizer",
       [](Json& j) {
         j["normalizer"] = {{"type", "NFKC"}};
       }},
      {"normalizer", [](Json& j) { j["normalizer"]["content"] = "_"; }},
      {"pre_tokenizer", [&](Json& j) { j["pre_tokenizer"] = level; }},
      {"pre_tokenizer", [](Json& j) { j["pre_tokenizer"]["invert"] = true; }},
      {"post_processor", [&](Json& j) { j["post_processor"] = level; }},
      {"decoder", [&](Json& j) { j["decoder"]["decoders"].push_back(level); }},
      {"added_tokens is {}", [](Json& j) { j["added_tokens"] = Json::object(); }},
      {"'content'", [](Json& j) { j["added_tokens"][0]["content"] = ""; }},
      {"'id'", [](Json& j) { j["added_tokens"][0]["id"] = -4; }},
      {"'special'", [](Json& j) { j["added_tokens"][0]["special"] = 1; }},
      {"'lstrip'", [](Json& j) { j["added_tokens"][0]["lstrip"] = true; }},
      {"'rstrip'", [](Json& j) { j["added_tokens"][0]["rstrip"] = true; }},
      {"'single_word'", [](Json& j) { j["added_tokens"][0]["single_word"] = true; }},
      {"'normalized'", [](Json& j) { j["added_tokens"][0]["normalized"] = true; }},
      {"id 1 is there twice", [](Json& j) { j["added_tokens"][0]["id"] = 1; }},
      {"model.vocab has '<pad>' there", [](Json& j) { j["added_tokens"][0]["content"] = "<x>"; }},
      {"has two ids",
       [](Json& j) {
         j["added_tokens"].push_back({{"id", 323}, {"content", "the"}, {"special", false}});
       }},
  };
  for (const JsonRow& row : rows) {
    Json json = tiny_json();
    row.breaks(json);
    expect_refused(from_tokenizer_json(json.dump(), "", "", "FILE"), row.needle);
  }
}

TEST(BrokenTokenizerJson, TextThatIsNoSuchFile) {
  const std::string text = tiny_json_text();
  expect_refused(from_tokenizer_json("", "", "", "FILE"), "not valid JSON at byte");
  expect_refused(from_tokenizer_json(text.substr(0, text.size() / 2), "", "", "FILE"),
                 "not valid JSON at byte");
  expect_refused(from_tokenizer_json("[]", "", "", "FILE"), "expected a JSON object");
  expect_refused(from_tokenizer_json("{\"a\":1,\"a\":2}", "", "", "FILE"),
                 "key 'a' is there twice");
  expect_refused(from_tokenizer_json(std::string(10000, '['), "", "", "FILE"), "nested deeper");
}

TEST(BrokenTokenizerConfig, NamesTheKey) {
  const std::string text = tiny_json_text();
  const auto load = [&](const char* config) {
    return from_tokenizer_json(text, config, "", "FILE");
  };
  expect_refused(load("{\"bos_token\":\"<nope>\"}"), "bos_token");
  expect_refused(load("{\"eos_token\":7}"), "eos_token");
  expect_refused(load("{\"chat_template\":7}"), "chat_template");
  expect_refused(load("{\"chat_template\":[{\"name\":\"rag\",\"template\":\"T\"}]}"),
                 "a template named default");
  EXPECT_FALSE(load("{").ok());
  expect_refused(load("[]"), "tokenizer_config.json is [], expected a JSON object");
  const auto named = load(
      "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"R\"},{\"name\":\"default\","
      "\"template\":\"D\"}]}");
  ASSERT_TRUE(named.ok());
  EXPECT_EQ((*named)->chat_template(), "D");
  const auto good = load("{\"eos_token\":{\"content\":\"<end_of_turn>\"},\"chat_template\":\"T\"}");
  ASSERT_TRUE(good.ok());
  EXPECT_EQ((*good)->eos_id(), 5);
  EXPECT_EQ((*good)->extra_stop_ids(), std::vector<int32_t>{1});
  EXPECT_EQ((*good)->chat_template(), "T");
}

TEST(TokenizerJson, BothSpellingsOfMergesAndTemplateMeanTheSame) {
  Json json = tiny_json();
  for (Json& merge : json["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  json["post_processor"] = Json::parse(
      R"({"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<bos>"}},{"Sequence":{"id":"A"}}]})");
  json["model"]["vocab"]["far"] = 400;  // ids may have holes
  const auto tokenizer = from_tokenizer_json(json.dump(), "", "", "FILE");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->vocab_size(), 401);
  EXPECT_EQ((*tokenizer)->kind(399), TokenKind::kUnused);
  for (const Json& row : read_json_lines("tokenizer/tiny.jsonl")) {
    EXPECT_EQ((*tokenizer)->encode(row["text"].get<std::string>(), {}),
              row["plain"].get<std::vector<int32_t>>());
  }
}

struct GgufRow {
  const char* needle;
  std::function<void(TinyGguf&)> breaks;
};

TEST(BrokenGgufVocabulary, IsRefusedByName) {
  const GgufRow rows[] = {
      {"tokenizer.ggml.model is 'bert'", [](TinyGguf& g) { g.vocabulary.model = "bert"; }},
      {"add_space_prefix", [](TinyGguf& g) { g.vocabulary.add_space_prefix = true; }},
      {"tokenizer.ggml.tokens is empty", [](TinyGguf& g) { g.vocabulary.tokens.clear(); }},
      {"tokenizer.ggml.token_type has 322",
       [](TinyGguf& g) { g.vocabulary.token_types.pop_back(); }},
      {"tokenizer.ggml.token_type: entry 9 is 7",
       [](TinyGguf& g) { g.vocabulary.token_types[9] = 7; }},
      {"tokenizer.ggml.scores has 322", [](TinyGguf& g) { g.vocabulary.scores.pop_back(); }},
      {"tokenizer.ggml.scores: entry 9", [](TinyGguf& g) { g.vocabulary.scores[9] = NAN; }},
      {"neither tokenizer.ggml.merges", [](TinyGguf& g) { g.vocabulary.scores.clear(); }},
      {"entry 300 is not UTF-8", [](TinyGguf& g) { g.vocabulary.tokens[300] = "\xC3("; }},
      {"entry 20 is a byte token spelled 'x'", [](TinyGguf& g) { g.vocabulary.tokens[20] = "x"; }},
      {"has two ids", [](TinyGguf& g) { g.vocabulary.tokens[300] = g.vocabulary.tokens[301]; }},
      {"bos_token_id is 323", [](TinyGguf& g) { g.vocabulary.bos_id = 323; }},
      {"eos_token_id", [](TinyGguf& g) { g.vocabulary.eos_id = int64_t{1} << 40; }},
      {"padding_token_id", [](TinyGguf& g) { g.vocabulary.pad_id = 323; }},
      {"unknown_token_id", [](TinyGguf& g) { g.vocabulary.unk_id = 323; }},
      {"eot_token_id", [](TinyGguf& g) { g.vocabulary.eot_id = 323; }},
      {"merge 0 is 'ab'", [](TinyGguf& g) { g.vocabulary.merges = {"ab"}; }},
      {"'zz' is not in the vocabulary", [](TinyGguf& g) { g.vocabulary.merges = {"zz a"}; }},
      {"repeats merge 0",
       [](TinyGguf& g) {
         g.vocabulary.merges = {"t h", "t h"};
       }},
      {"no token <0x41>",
       [](TinyGguf& g) {
         g.vocabulary.tokens[3] = "<nothing>";
         g.vocabulary.tokens[16 + 0x41] = "unlike";
         g.vocabulary.token_types[16 + 0x41] = 1;
       }},
      {"gpt2 with byte-level pieces",
       [](TinyGguf& g) {
         g.vocabulary.model = "gpt2";
         g.vocabulary.tokens[16] = "nul";
         g.vocabulary.token_types[16] = 1;
       }},
  };
  for (const GgufRow& row : rows) {
    const auto gguf = tiny_gguf();
    row.breaks(*gguf);
    expect_refused(from_gguf(gguf->vocabulary, "FILE"), row.needle);
  }
}

}  // namespace
}  // namespace markbase::tokenizer
