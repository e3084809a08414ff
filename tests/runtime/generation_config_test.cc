// Stop ids, suppressed ids and sampling defaults from GGUF metadata and from directories.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/model_files.h"
#include "support/mini_gemma4.h"
#include "support/temp_dir.h"

namespace markbase::runtime {
namespace {

using Ids = std::vector<int32_t>;

class GenerationConfigTest : public ::testing::Test {
 protected:
  int32_t id(const char* piece) const { return tokenizer_->find(piece).value(); }
  Ids ids(std::initializer_list<const char*> pieces) const {
    Ids out;
    for (const char* piece : pieces) out.push_back(id(piece));
    std::sort(out.begin(), out.end());
    return out;
  }
  static Ids sorted(Ids ids) {
    std::sort(ids.begin(), ids.end());
    return ids;
  }
  Result<GenerationConfig> gguf(const base::Json& metadata) const {
    return load_generation_config({PathKind::kGguf, "m.gguf"}, metadata, *tokenizer_,
                                  tokenizer_->vocab_size());
  }
  Result<GenerationConfig> directory(const std::string& generation,
                                     const base::Json& config) const {
    const testing::TempDir folder;
    folder.write("generation_config.json", generation);
    return load_generation_config({PathKind::kDirectory, folder.path().string()}, config,
                                  *tokenizer_, tokenizer_->vocab_size());
  }

  std::unique_ptr<tokenizer::Tokenizer> tokenizer_ = testing::mini_gemma4();
};

TEST_F(GenerationConfigTest, GgufStopsAtEveryEnd) {
  const auto config = gguf(base::Json::object());
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(sorted(config->stop_ids), ids({"<eos>", "<turn|>", "<|tool_response>"}));
  const auto with_eom = gguf({{"tokenizer.ggml.eom_token_id", 40u}});
  ASSERT_TRUE(with_eom.ok()) << with_eom.error().message;
  EXPECT_EQ(std::count(with_eom->stop_ids.begin(), with_eom->stop_ids.end(), 40), 1);
}

TEST_F(GenerationConfigTest, OldGgufFilesSuppressTheEndsOfMedia) {
  EXPECT_EQ(sorted(gguf(base::Json::object())->suppress_ids), ids({"<image|>", "<audio|>"}));
  EXPECT_EQ(gguf({{"tokenizer.ggml.suppress_tokens", {7, 9}}})->suppress_ids, (Ids{7, 9}));
  EXPECT_EQ(gguf({{"tokenizer.ggml.suppress_tokens", base::Json::array()}})->suppress_ids, Ids{});
  EXPECT_FALSE(gguf({{"tokenizer.ggml.suppress_tokens", {1 << 20}}}).ok());
}

TEST_F(GenerationConfigTest, GgufSampling) {
  const auto config = gguf({{"general.sampling.temp", 0.5}, {"general.sampling.top_k", 7}});
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->sampling.temperature, 0.5F);
  EXPECT_EQ(config->sampling.top_k, 7);
  EXPECT_EQ(gguf(base::Json::object())->sampling.top_k, 64);
}

TEST_F(GenerationConfigTest, DirectoriesMergeBothLists) {
  const int32_t response = id("<|tool_response>");
  const auto stops = [&](const std::string& generation, const base::Json& config) {
    const auto read = directory(generation, config);
    EXPECT_TRUE(read.ok()) << read.error().message;
    return sorted(read->stop_ids);
  };
  EXPECT_EQ(stops(R"({"eos_token_id": [1, 40]})", {{"eos_token_id", {1, 41}}}),
            sorted({1, 40, 41, response}));
  EXPECT_EQ(stops(R"({"eos_token_id": 1})", base::Json::object()), sorted({1, response}));
  EXPECT_EQ(stops("{}", {{"text_config", {{"eos_token_id", 42}}}}), sorted({42, response}));
  EXPECT_EQ(stops(R"({"eos_token_id": null})", base::Json::object()),
            ids({"<eos>", "<turn|>", "<|tool_response>"}));
}

// What a directory says is taken as it is: no list means that nothing is suppressed.
TEST_F(GenerationConfigTest, DirectoriesSuppressWhatTheyList) {
  EXPECT_EQ(directory("{}", base::Json::object())->suppress_ids, Ids{});
  EXPECT_EQ(directory(R"({"suppress_tokens": [22, 21]})", base::Json::object())->suppress_ids,
            (Ids{22, 21}));
}

// Each was read as something else (no id, or a zero that every request with it was refused for), or
// left nothing to say.
TEST_F(GenerationConfigTest, WhatCannotBeHonouredIsRefused) {
  base::Json all = base::Json::array();
  for (int64_t i = 0; i < tokenizer_->vocab_size(); ++i) all.push_back(i);
  const std::pair<const char*, base::Json> cases[] = {{"eos_token_id", UINT64_MAX},
                                                      {"eos_token_id", {1, UINT64_MAX - 1}},
                                                      {"suppress_tokens", INT64_MIN},
                                                      {"suppress_tokens", all},
                                                      {"top_p", 1e-50},
                                                      {"repetition_penalty", 1e-50},
                                                      {"eos_token_id", tokenizer_->vocab_size()}};
  for (const auto& [key, value] : cases) {
    const auto read = directory(base::Json{{key, value}}.dump(), base::Json::object());
    ASSERT_FALSE(read.ok()) << key;
    EXPECT_NE(read.error().message.find(key), std::string::npos) << read.error().message;
  }
  EXPECT_FALSE(gguf({{"tokenizer.ggml.suppress_tokens", all}}).ok());
  all.erase(0);
  EXPECT_TRUE(directory(base::Json{{"suppress_tokens", all}}.dump(), base::Json::object()).ok());
}

}  // namespace
}  // namespace markbase::runtime
