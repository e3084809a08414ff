// The real Gemma 4 vocabulary from its file kinds, against the `tokenizers` library.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <sstream>

#include "formats/gguf/gguf_file.h"
#include "support/golden.h"
#include "tiny_vocabulary.h"
#include "tokenizer/chat_template.h"

namespace markbase::tokenizer {
namespace {

using base::Json;
using Ids = std::vector<int32_t>;

std::string unpacked(const std::string& name) {
  return std::string(MARKBASE_UNPACKED_DIR) + "/" + name;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::unique_ptr<Tokenizer> from_json(const std::string& chat_template = "") {
  auto made = from_tokenizer_json(testing::read_file(unpacked("gemma4_tokenizer_tokenizer.json")),
                                  "", chat_template, "tokenizer.json");
  EXPECT_TRUE(made.ok()) << made.error().message;
  return *std::move(made);
}

// A GGUF without weights; `with_merges` false: by its scores, as older converters wrote them.
std::unique_ptr<Tokenizer> from_vocabulary_only(const std::string& chat_template = "") {
  const auto file = formats::GgufFile::open(unpacked("gemma4_tokenizer_vocab.gguf"));
  EXPECT_TRUE(file.ok()) << file.error().message;
  GgufVocabulary v;
  v.model = file->metadata()["tokenizer.ggml.model"].get<std::string>();
  v.tokens = *file->string_array("tokenizer.ggml.tokens");
  if (file->metadata().contains("tokenizer.ggml.scores"))
    v.scores = *file->float_array("tokenizer.ggml.scores");
  v.merges = *file->string_array("tokenizer.ggml.merges");
  const auto types = *file->integer_array("tokenizer.ggml.token_type");
  v.token_types.assign(types.begin(), types.end());
  v.chat_template = chat_template;
  auto made = from_gguf(v, "vocab.gguf");
  EXPECT_TRUE(made.ok()) << made.error().message;
  return *std::move(made);
}

class Gemma4Vocabulary : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(unpacked("gemma4_tokenizer_tokenizer.json")))
      GTEST_SKIP() << "neither xz nor python3 was there to unpack the goldens";
  }
  static std::unique_ptr<Tokenizer> load(const std::string& chat_template = "") {
    return std::string(GetParam()) == "json" ? from_json(chat_template)
                                             : from_vocabulary_only(chat_template);
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, Gemma4Vocabulary, ::testing::Values("json", "gguf"),
                         [](const auto& info) { return std::string(info.param); });

std::string streamed(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDecoder decoder(tokenizer, false);
  std::string text;
  for (const int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

TEST_P(Gemma4Vocabulary, GivesTheLibrarysIdsAndText) {
  const auto tokenizer = load();
  size_t compared = 0;
  for (const std::string& line : lines_of(testing::read_file(unpacked("tokenizer_gemma4.jsonl")))) {
    const Json row = Json::parse(line);
    const std::string text = row["text"].get<std::string>();
    const Ids ids = row["ids"].get<Ids>();
    const Ids plain = row.contains("plain") ? row["plain"].get<Ids>() : ids;
    const std::string decoded = row.value("decoded", text);
    ASSERT_EQ(tokenizer->encode(text, {.parse_special = true}), ids) << text;
    ASSERT_EQ(tokenizer->encode(text, {}), plain) << text;
    ASSERT_EQ(tokenizer->decode(ids, false), decoded);
    ASSERT_EQ(tokenizer->decode(ids, true), row.value("decoded_skip", decoded));
    if (decoded == text) {
      ASSERT_EQ(streamed(*tokenizer, ids), decoded);
    }
    ++compared;
  }
  EXPECT_GE(compared, 20000u);
}

TEST_P(Gemma4Vocabulary, ControlTokensComeFromParsingAlone) {
  const auto tokenizer = load();
  size_t count = 0;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    if (tokenizer->kind(id) != TokenKind::kControl && tokenizer->kind(id) != TokenKind::kUnknown)
      continue;
    ++count;
    const std::string piece(tokenizer->piece(id));
    EXPECT_EQ(tokenizer->encode(piece, {.parse_special = true}), Ids{id});
    for (const std::string& text : {piece, piece + piece, "a" + piece + "b"}) {
      for (const int32_t got : tokenizer->encode(text, {})) {
        EXPECT_NE(tokenizer->kind(got), TokenKind::kControl) << text;
        EXPECT_NE(tokenizer->kind(got), TokenKind::kUnknown) << text;
      }
    }
  }
  EXPECT_EQ(count, 24u);
}

TEST_P(Gemma4Vocabulary, ChatsGiveTheLibrarysIds) {
  const std::pair<const char*, const char*> templates[] = {
      {"canonical", "chat/gemma4-chat-template.jinja"},
      {"interleaved", "chat/gemma4-chat-template-interleaved.jinja"},
  };
  const auto requests = lines_of(testing::read_file(testing::golden_path("chat/lists.jsonl")));
  const auto answers = lines_of(testing::read_file(unpacked("chat_lists_ids.jsonl")));
  ASSERT_EQ(requests.size(), answers.size());
  size_t compared = 0;
  for (const auto& [name, file] : templates) {
    const auto tokenizer = load(testing::read_file(testing::golden_path(file)));
    const auto format = ChatTemplate::create(*tokenizer);
    ASSERT_TRUE(format.ok());
    for (size_t i = 0; i < requests.size(); ++i) {
      const Json ids = Json::parse(answers[i]);
      if (!ids.contains(name)) continue;
      const size_t end = requests[i].find(R"(,"spelled":)");
      auto request = parse_chat_request(std::string_view(requests[i]).substr(11, end - 11));
      ASSERT_TRUE(request.ok()) << request.error().message;
      const auto chat = (*format)->render(*std::move(request));
      ASSERT_TRUE(chat.ok());
      EXPECT_EQ(encode_chat(*tokenizer, chat->segments), ids[name].get<Ids>()) << requests[i];
      ++compared;
    }
  }
  EXPECT_GE(compared, 300u);
}

}  // namespace
}  // namespace markbase::tokenizer
