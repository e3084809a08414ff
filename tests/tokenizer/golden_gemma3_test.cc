// The real Gemma 3 vocabulary, from the GGUF that MARKBASE_TEST_MODEL names, against the goldens.
#include <gtest/gtest.h>

#include <cstdlib>

#include "formats/gguf/gguf_file.h"
#include "tiny_vocabulary.h"

namespace markbase::tokenizer {
namespace {

using Ids = std::vector<int32_t>;

// Not converted into GGUF vocabularies: its spelling is plain text there.
constexpr std::string_view kMissingInGguf = "<image_soft_token>";

std::unique_ptr<Tokenizer> load(const std::string& path) {
  const auto file = formats::GgufFile::open(path);
  EXPECT_TRUE(file.ok()) << file.error().message;
  GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = *file->string_array("tokenizer.ggml.tokens");
  vocabulary.scores = *file->float_array("tokenizer.ggml.scores");
  const auto types = *file->integer_array("tokenizer.ggml.token_type");
  vocabulary.token_types.assign(types.begin(), types.end());
  return std::move(from_gguf(vocabulary, path)).value();
}

TEST(GoldenTokenizerGemma3, IdsAndTextAreTheLibrarys) {
  const char* path = std::getenv("MARKBASE_TEST_MODEL");
  if (path == nullptr) GTEST_SKIP() << "MARKBASE_TEST_MODEL is not set";
  const auto tokenizer = load(path);
  const auto rows = read_json_lines("tokenizer/gemma3.jsonl");
  ASSERT_GE(rows.size(), 20000u);
  size_t num_compared = 0;
  for (const base::Json& row : rows) {
    const std::string text = row["text"].get<std::string>();
    if (text.find(kMissingInGguf) != text.npos) continue;
    const Ids ids = row["ids"].get<Ids>();
    const Ids plain = row.contains("plain") ? row["plain"].get<Ids>() : ids;
    const std::string decoded = row.value("decoded", text);
    EXPECT_EQ(tokenizer->encode(text, {.parse_special = true}), ids) << text;
    EXPECT_EQ(tokenizer->encode(text, {}), plain) << text;
    EXPECT_EQ(tokenizer->decode(ids, false), decoded);
    EXPECT_EQ(tokenizer->decode(ids, true), row.value("decoded_skip", decoded));
    ++num_compared;
  }
  EXPECT_GE(num_compared, 20000u);
}

}  // namespace
}  // namespace markbase::tokenizer
