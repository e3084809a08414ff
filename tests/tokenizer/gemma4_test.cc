// The real Gemma 4 vocabulary from its file kinds, against the `tokenizers` library.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <sstream>

#include "formats/gguf/gguf_file.h"
#include "markbase/engine.h"
#include "runtime/model_files.h"
#include "support/golden.h"
#include "support/tiny_gemma4.h"
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

// Tensors and keys of a small Gemma 4, with one row of the embedding for each of `vocab_size` ids.
testing::TinyCheckpoint small_weights(int64_t vocab_size) {
  auto checkpoint = testing::tiny_gemma4_gguf(testing::Gemma4Shape::k31B);
  checkpoint.tensors.at("token_embd.weight").shape.front() = vocab_size;
  return checkpoint;
}

// The keys "tokenizer.*" as the vocabulary file has them, long arrays included.
void copy_vocabulary(const formats::GgufFile& file, Json* metadata) {
  for (const auto& [key, value] : file.metadata().items()) {
    if (key.starts_with("tokenizer.")) (*metadata)[key] = value;
  }
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"})
    (*metadata)[key] = *file.string_array(key);
  (*metadata)["tokenizer.ggml.scores"] = *file.float_array("tokenizer.ggml.scores");
  (*metadata)["tokenizer.ggml.token_type"] = *file.integer_array("tokenizer.ggml.token_type");
}

// The vocabulary in a GGUF of its own, or in one of a small model.
std::string write_gguf(const testing::TempDir& dir, bool with_weights,
                       const std::string& chat_template) {
  const auto file = formats::GgufFile::open(unpacked("gemma4_tokenizer_vocab.gguf"));
  EXPECT_TRUE(file.ok()) << file.error().message;
  testing::TinyCheckpoint checkpoint;
  checkpoint.config["general.architecture"] = "gemma4";
  if (with_weights) checkpoint = small_weights(262144);
  copy_vocabulary(*file, &checkpoint.config);
  checkpoint.config["tokenizer.chat_template"] = chat_template;
  return checkpoint.write_gguf(dir);
}

std::unique_ptr<Tokenizer> from_file(const std::string& path) {
  auto made = runtime::load_tokenizer({runtime::PathKind::kGguf, path});
  EXPECT_TRUE(made.ok()) << made.error().message;
  return *std::move(made);
}

std::unique_ptr<Tokenizer> from_vocabulary_only(const std::string& chat_template) {
  if (chat_template.empty()) return from_file(unpacked("gemma4_tokenizer_vocab.gguf"));
  const testing::TempDir dir;
  return from_file(write_gguf(dir, false, chat_template));
}

std::unique_ptr<Tokenizer> from_weights(const std::string& chat_template) {
  const testing::TempDir dir;
  return from_file(write_gguf(dir, true, chat_template));
}

class Gemma4Vocabulary : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(unpacked("gemma4_tokenizer_tokenizer.json")))
      GTEST_SKIP() << "neither xz nor python3 was there to unpack the goldens";
  }
  static std::unique_ptr<Tokenizer> load(const std::string& chat_template = "") {
    const std::string kind = GetParam();
    if (kind == "json") return from_json(chat_template);
    return kind == "gguf" ? from_vocabulary_only(chat_template) : from_weights(chat_template);
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, Gemma4Vocabulary, ::testing::Values("json", "gguf", "weights"),
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

// What makes the third kind more than a vocabulary: a model with as many rows comes out of the
// file.
TEST(Gemma4WithWeights, IsAModel) {
  if (!std::filesystem::exists(unpacked("gemma4_tokenizer_vocab.gguf")))
    GTEST_SKIP() << "neither xz nor python3 was there to unpack the goldens";
  const testing::TempDir dir;
  EngineOptions options;
  options.num_threads = 1;
  const auto engine = Engine::load(write_gguf(dir, true, ""), options);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  EXPECT_EQ(engine->info().vocab_size, 262144);
}

}  // namespace
}  // namespace markbase::tokenizer
