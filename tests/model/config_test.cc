// Configurations: what is read, and a row for each rule that refuses one.
#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"

namespace markbase::model {
namespace {

using base::Json;

Json small_hf() {
  return {{"model_type", "gemma3_text"},
          {"vocab_size", 300},
          {"hidden_size", 32},
          {"intermediate_size", 64},
          {"num_hidden_layers", 7},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 16},
          {"query_pre_attn_scalar", 24},
          {"sliding_window", 16},
          {"max_position_embeddings", 256}};
}

Json small_gguf() {
  return {{"general.architecture", "gemma3"},     {"gemma3.context_length", 256},
          {"gemma3.embedding_length", 32},        {"gemma3.block_count", 7},
          {"gemma3.feed_forward_length", 64},     {"gemma3.attention.head_count", 4},
          {"gemma3.attention.head_count_kv", 2},  {"gemma3.attention.key_length", 16},
          {"gemma3.attention.value_length", 16},  {"gemma3.attention.layer_norm_rms_epsilon", 1e-6},
          {"gemma3.attention.sliding_window", 16}};
}

TEST(HfConfig, OldKeys) {
  Json json = small_hf();
  json["rope_theta"] = 500000.0;
  json["rope_local_base_freq"] = 20000.0;
  json["sliding_window_pattern"] = 3;
  json["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  const Result<TextConfig> config = config_from_hf(json, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->layers[2].type, LayerType::kFull);
  EXPECT_EQ(config->layers[2].sliding_window, 0);
  EXPECT_EQ(config->layers[6].type, LayerType::kSliding);
  EXPECT_EQ(config->layers[6].sliding_window, 16);
  EXPECT_EQ(config->ropes[0], (RopeConfig{20000.0, 1.0, 16}));
  EXPECT_EQ(config->ropes[1], (RopeConfig{500000.0, 8.0, 16}));
  EXPECT_FLOAT_EQ(config->attention_scale, 1.0F / std::sqrt(24.0F));
  EXPECT_TRUE(config->tie_word_embeddings);
}

TEST(HfConfig, NewKeys) {
  Json json = small_hf();
  json["layer_types"] = Json::array();
  for (int i = 0; i < 7; ++i)
    json["layer_types"].push_back(i == 1 ? "full_attention" : "sliding_attention");
  json["rope_parameters"] = {
      {"full_attention", {{"rope_type", "default"}, {"rope_theta", 300000.0}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 9000.0}}}};
  const Result<TextConfig> config = config_from_hf(json, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->layers[1].type, LayerType::kFull);
  EXPECT_EQ(config->layers[5].type, LayerType::kSliding);
  EXPECT_EQ(config->ropes[0].rope_theta, 9000.0);
  EXPECT_EQ(config->ropes[1].rope_theta, 300000.0);
}

TEST(HfConfig, TextPartOfAMultimodalModel) {
  Json json = {{"model_type", "gemma3"}, {"text_config", small_hf()}};
  const Result<TextConfig> config = config_from_hf(json, "config.json");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->hidden_size, 32);
}

TEST(GgufConfig, Read) {
  const Result<TextConfig> config = config_from_gguf(small_gguf(), "m.gguf");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->layers[5].type, LayerType::kFull);
  EXPECT_EQ(config->layers[6].type, LayerType::kSliding);
  EXPECT_FLOAT_EQ(config->attention_scale, 0.25F);
  EXPECT_EQ(config->ropes[0].rope_theta, 1e4);
  EXPECT_EQ(config->ropes[1].rope_theta, 1e6);
}

TEST(Rope, FrequenciesOfFloat32) {
  const RopeConfig rope{1e4, 2.0, 8};
  const std::vector<float> got = rope.inv_freq();
  ASSERT_EQ(got.size(), 4U);
  EXPECT_FLOAT_EQ(got[0], 0.5F);
  EXPECT_FLOAT_EQ(got[1], 0.05F);
  EXPECT_FLOAT_EQ(got[3], 0.0005F);
}

// What one wrong value does: the error names the key.
struct Broken {
  const char* key;
  Json value;
};
std::ostream& operator<<(std::ostream& out, const Broken& row) {
  return out << row.key << " = " << row.value.dump();
}

class BrokenHf : public testing::TestWithParam<Broken> {};

TEST_P(BrokenHf, IsRefusedByName) {
  Json json = small_hf();
  json[GetParam().key] = GetParam().value;
  const Result<TextConfig> config = config_from_hf(json, "config.json");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::kBadInput);
  EXPECT_NE(config.error().message.find(GetParam().key), std::string::npos)
      << config.error().message;
  EXPECT_NE(config.error().message.find("config.json"), std::string::npos)
      << config.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Table, BrokenHf,
    testing::Values(
        Broken{"model_type", "llama"}, Broken{"model_type", nullptr}, Broken{"model_type", 3},
        Broken{"text_config", 3}, Broken{"vocab_size", 0}, Broken{"vocab_size", -1},
        Broken{"vocab_size", int64_t{1} << 40}, Broken{"vocab_size", "300"},
        Broken{"hidden_size", 0}, Broken{"hidden_size", nullptr}, Broken{"hidden_size", 1.5},
        Broken{"hidden_size", uint64_t{1} << 63}, Broken{"num_hidden_layers", 0},
        Broken{"num_hidden_layers", 1000000000}, Broken{"num_attention_heads", 0},
        Broken{"num_key_value_heads", 0}, Broken{"num_key_value_heads", 3},
        Broken{"num_key_value_heads", 8}, Broken{"head_dim", 0}, Broken{"head_dim", 15},
        Broken{"head_dim", 1 << 20}, Broken{"intermediate_size", 0},
        Broken{"max_position_embeddings", 0}, Broken{"max_position_embeddings", int64_t{1} << 40},
        Broken{"rms_norm_eps", 0.0}, Broken{"rms_norm_eps", -1e-6}, Broken{"rms_norm_eps", 2.0},
        Broken{"query_pre_attn_scalar", 0}, Broken{"query_pre_attn_scalar", -256},
        Broken{"final_logit_softcapping", -30.0}, Broken{"attn_logit_softcapping", 50.0},
        Broken{"attention_bias", true}, Broken{"hidden_activation", "silu"},
        Broken{"use_bidirectional_attention", true}, Broken{"sliding_window", 0},
        Broken{"sliding_window", -512}, Broken{"sliding_window_pattern", 0},
        Broken{"layer_types", Json::array({"full_attention"})},
        Broken{"layer_types", Json::array({"a", "a", "a", "a", "a", "a", "a"})},
        Broken{"rope_theta", 0.0}, Broken{"rope_theta", 1e300},
        Broken{"rope_local_base_freq", -1.0},
        Broken{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 8.0}}},
        Broken{"rope_scaling", {{"rope_type", "linear"}, {"factor", 0.0}}},
        Broken{"rope_scaling", {{"rope_type", "linear"}}}, Broken{"rope_scaling", 8},
        Broken{"rope_parameters", {{"full_attention", 1}}}, Broken{"rope_parameters", 7},
        Broken{"tie_word_embeddings", "yes"}));

class BrokenGguf : public testing::TestWithParam<Broken> {};

TEST_P(BrokenGguf, IsRefusedByName) {
  Json json = small_gguf();
  json[GetParam().key] = GetParam().value;
  const Result<TextConfig> config = config_from_gguf(json, "m.gguf");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::kBadInput);
  EXPECT_NE(config.error().message.find(GetParam().key), std::string::npos)
      << config.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Table, BrokenGguf,
    testing::Values(
        Broken{"general.architecture", "llama"}, Broken{"general.architecture", nullptr},
        Broken{"gemma3.context_length", 0}, Broken{"gemma3.embedding_length", -1},
        Broken{"gemma3.block_count", int64_t{1} << 32}, Broken{"gemma3.feed_forward_length", 0},
        Broken{"gemma3.feed_forward_length", Json::array({64, 64})},
        Broken{"gemma3.attention.head_count", 0}, Broken{"gemma3.attention.head_count_kv", 3},
        Broken{"gemma3.attention.key_length", 17}, Broken{"gemma3.attention.value_length", 32},
        Broken{"gemma3.attention.layer_norm_rms_epsilon", 0.0},
        Broken{"gemma3.attention.layer_norm_rms_epsilon", nullptr},
        Broken{"gemma3.attention.sliding_window", 0},
        Broken{"gemma3.attention.sliding_window_pattern", Json::array({true})},
        Broken{"gemma3.attention.sliding_window_pattern", 0}, Broken{"gemma3.rope.freq_base", -1.0},
        Broken{"gemma3.rope.scaling.type", "yarn"}, Broken{"gemma3.attn_logit_softcapping", 50.0},
        Broken{"gemma3.final_logit_softcapping", -1.0}));

}  // namespace
}  // namespace markbase::model
