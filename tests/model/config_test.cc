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
  EXPECT_EQ(config->ropes[0], (RopeConfig{20000.0, 1.0, 1.0, 16}));
  EXPECT_EQ(config->ropes[1], (RopeConfig{500000.0, 8.0, 1.0, 16}));
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
  const RopeConfig rope{1e4, 2.0, 1.0, 8};
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

// llama.cpp's reading: "linear" where no type stands.
TEST(GgufConfig, AFactorOfPositionsNeedsNoType) {
  Json json = small_gguf();
  json["gemma3.rope.scaling.factor"] = 8.0;
  const Result<TextConfig> bare = config_from_gguf(json, "m.gguf");
  ASSERT_TRUE(bare.ok()) << bare.error().message;
  const auto factor = [](const TextConfig& config) {
    double found = 1.0;
    for (const RopeConfig& rope : config.ropes) found = std::max(found, rope.factor);
    return found;
  };
  EXPECT_EQ(factor(*bare), 8.0);
  json["gemma3.rope.scaling.type"] = "none";
  const Result<TextConfig> none = config_from_gguf(json, "m.gguf");
  ASSERT_TRUE(none.ok()) << none.error().message;
  EXPECT_EQ(factor(*none), 1.0);
}

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

// ---- Gemma 4 ----

Json small_gemma4() {
  return {{"model_type", "gemma4_text"},
          {"vocab_size", 300},
          {"hidden_size", 32},
          {"intermediate_size", 64},
          {"num_hidden_layers", 7},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 16},
          {"global_head_dim", 32},
          {"sliding_window", 16},
          {"hidden_size_per_layer_input", 0}};
}

// The published defaults, one by one.
TEST(Gemma4Config, DefaultsOfTheClass) {
  const Result<TextConfig> read = config_from_hf({{"model_type", "gemma4_text"}}, "config.json");
  ASSERT_TRUE(read.ok()) << read.error().message;
  const TextConfig& config = *read;
  EXPECT_EQ(config.model_type, "gemma4_text");
  EXPECT_EQ(config.vocab_size, 262144);
  EXPECT_EQ(config.hidden_size, 2304);
  EXPECT_EQ(config.num_hidden_layers, 30);
  EXPECT_EQ(config.num_attention_heads, 8);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  EXPECT_EQ(config.rms_norm_eps, 1e-6F);
  EXPECT_EQ(config.attention_scale, 1.0F);
  EXPECT_EQ(config.final_logit_softcapping, 0.0F);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_TRUE(config.value_norm);
  EXPECT_TRUE(config.layer_scalar);
  EXPECT_EQ(config.hidden_size_per_layer_input, 256);
  EXPECT_EQ(config.vocab_size_per_layer_input, 262144);
  EXPECT_EQ(config.num_experts, 0);
  EXPECT_EQ(config.ropes.size(), 2U);
  for (size_t i = 0; i < 30; ++i) {
    const LayerConfig& layer = config.layers[i];
    const bool full = (i + 1) % 6 == 0;
    EXPECT_EQ(layer.type, full ? LayerType::kFull : LayerType::kSliding) << i;
    EXPECT_EQ(layer.head_dim, full ? 512 : 256);
    EXPECT_EQ(layer.num_key_value_heads, 4);
    EXPECT_EQ(layer.intermediate_size, 9216);
    EXPECT_EQ(layer.sliding_window, full ? 0 : 512);
    EXPECT_TRUE(layer.owns_kv());
    EXPECT_FALSE(layer.attention_k_eq_v);
    const RopeConfig expected =
        full ? RopeConfig{1e6, 1.0, 0.25, 512} : RopeConfig{1e4, 1.0, 1.0, 256};
    EXPECT_EQ(config.ropes[static_cast<size_t>(layer.rope_idx)], expected);
  }
}

TEST(Gemma4Config, DefaultsOfTheUnifiedClass) {
  for (const char* type : {"gemma4_unified_text", "gemma4_unified"}) {
    const Result<TextConfig> read = config_from_hf({{"model_type", type}}, "config.json");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->model_type, "gemma4_unified_text");
    EXPECT_EQ(read->layers[0].sliding_window, 1024);
    EXPECT_EQ(read->max_position_embeddings, 262144);
    EXPECT_EQ(read->hidden_size_per_layer_input, 0);
  }
}

struct Published {
  const char* name;
  Json keys;
  int64_t sliding_kv_heads, full_kv_heads;
  std::vector<int64_t> full_layers;           // the first and the last
  int64_t source_of_sliding, source_of_full;  // of the last layers; -1: their own
  int64_t last_width;
};

// The released sizes by their published configuration.
TEST(Gemma4Config, ReleasedSizes) {
  const auto types = [](int layers, int pattern) {
    Json out = Json::array();
    for (int i = 1; i <= layers; ++i)
      out.push_back(i % pattern == 0 ? "full_attention" : "sliding_attention");
    return out;
  };
  const std::vector<Published> table = {{"E2B",
                                         {{"model_type", "gemma4_text"},
                                          {"hidden_size", 1536},
                                          {"intermediate_size", 6144},
                                          {"num_hidden_layers", 35},
                                          {"layer_types", types(35, 5)},
                                          {"num_key_value_heads", 1},
                                          {"num_kv_shared_layers", 20},
                                          {"use_double_wide_mlp", true}},
                                         1,
                                         1,
                                         {4, 34},
                                         13,
                                         14,
                                         12288},
                                        {"E4B",
                                         {{"model_type", "gemma4_text"},
                                          {"hidden_size", 2560},
                                          {"intermediate_size", 10240},
                                          {"num_hidden_layers", 42},
                                          {"num_key_value_heads", 2},
                                          {"num_kv_shared_layers", 18}},
                                         2,
                                         2,
                                         {5, 41},
                                         22,
                                         23,
                                         10240},
                                        {"12B",
                                         {{"model_type", "gemma4_unified_text"},
                                          {"hidden_size", 3840},
                                          {"intermediate_size", 15360},
                                          {"num_hidden_layers", 48},
                                          {"num_attention_heads", 16},
                                          {"num_key_value_heads", 8},
                                          {"num_global_key_value_heads", 1},
                                          {"attention_k_eq_v", true},
                                          {"vocab_size_per_layer_input", 262144},
                                          {"hidden_size_per_layer_input", 0},
                                          {"use_bidirectional_attention", "vision"}},
                                         8,
                                         1,
                                         {5, 47},
                                         -1,
                                         -1,
                                         15360},
                                        {"26B",
                                         {{"model_type", "gemma4_text"},
                                          {"hidden_size", 2816},
                                          {"intermediate_size", 2112},
                                          {"num_hidden_layers", 30},
                                          {"num_attention_heads", 16},
                                          {"num_key_value_heads", 8},
                                          {"num_global_key_value_heads", 2},
                                          {"attention_k_eq_v", true},
                                          {"hidden_size_per_layer_input", nullptr},
                                          {"enable_moe_block", true},
                                          {"num_experts", 128},
                                          {"top_k_experts", 8},
                                          {"expert_intermediate_size", 704}},
                                         8,
                                         2,
                                         {5, 29},
                                         -1,
                                         -1,
                                         2112},
                                        {"31B",
                                         {{"model_type", "gemma4_text"},
                                          {"hidden_size", 5376},
                                          {"intermediate_size", 21504},
                                          {"num_hidden_layers", 60},
                                          {"num_attention_heads", 32},
                                          {"num_key_value_heads", 16},
                                          {"num_global_key_value_heads", 4},
                                          {"attention_k_eq_v", true},
                                          {"hidden_size_per_layer_input", 0}},
                                         16,
                                         4,
                                         {5, 59},
                                         -1,
                                         -1,
                                         21504}};
  for (const Published& row : table) {
    const Result<TextConfig> read = config_from_hf(row.keys, "config.json");
    ASSERT_TRUE(read.ok()) << row.name << read.error().message;
    const auto last = static_cast<size_t>(read->num_hidden_layers - 1);
    EXPECT_EQ(read->layers[0].num_key_value_heads, row.sliding_kv_heads) << row.name;
    EXPECT_EQ(read->layers[last].num_key_value_heads, row.full_kv_heads) << row.name;
    for (const int64_t i : row.full_layers)
      EXPECT_EQ(read->layers[static_cast<size_t>(i)].type, LayerType::kFull) << row.name;
    EXPECT_EQ(read->layers[last].kv_source_idx, row.source_of_full) << row.name;
    EXPECT_EQ(read->layers[last - 1].kv_source_idx, row.source_of_sliding) << row.name;
    EXPECT_EQ(read->layers[last].intermediate_size, row.last_width) << row.name;
  }
  EXPECT_EQ(config_from_hf(table[3].keys, "c")->moe_intermediate_size, 704);
  EXPECT_EQ(config_from_hf(table[2].keys, "c")->hidden_size_per_layer_input, 0);
}

TEST(Gemma4Config, TextPartOfAMultimodalModel) {
  for (const char* type : {"gemma4", "gemma4_unified"}) {
    Json text = small_gemma4();
    text.erase("model_type");
    const Result<TextConfig> config =
        config_from_hf({{"model_type", type}, {"text_config", text}}, "config.json");
    ASSERT_TRUE(config.ok()) << config.error().message;
    EXPECT_EQ(config->hidden_size, 32);
    EXPECT_EQ(config->model_type, std::string(type) + "_text");
  }
}

TEST(Gemma4Config, TheLastLayerIsFull) {
  Json json = small_gemma4();
  EXPECT_EQ(config_from_hf(json, "c")->layers[6].type, LayerType::kFull);
  json["layer_types"] = Json::array();
  for (int i = 0; i < 7; ++i) json["layer_types"].push_back("sliding_attention");
  const Result<TextConfig> config = config_from_hf(json, "c");
  EXPECT_EQ(config->layers[5].type, LayerType::kSliding);
  EXPECT_EQ(config->layers[6].type, LayerType::kFull);
  EXPECT_EQ(config->layers[6].head_dim, 32);
}

TEST(Gemma4Config, GlobalHeadsCountOnlyWhereKeysServeAsValues) {
  Json json = small_gemma4();
  json["num_global_key_value_heads"] = 1;
  EXPECT_EQ(config_from_hf(json, "c")->layers[5].num_key_value_heads, 2);
  json["attention_k_eq_v"] = true;
  const Result<TextConfig> config = config_from_hf(json, "c");
  EXPECT_EQ(config->layers[5].num_key_value_heads, 1);
  EXPECT_TRUE(config->layers[5].attention_k_eq_v);
  EXPECT_FALSE(config->layers[4].attention_k_eq_v);
  EXPECT_EQ(config->layers[4].num_key_value_heads, 2);
}

TEST(Gemma4Config, KeysOfSingleLayers) {
  Json json = small_gemma4();
  json.erase("global_head_dim");
  json["per_layer_config"] = {{"05", {{"head_dim", 64}, {"num_key_value_heads", 1}}},
                              {"6", {{"head_dim", 48}}}};
  const Result<TextConfig> config = config_from_hf(json, "c");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->layers[5].head_dim, 64);
  EXPECT_EQ(config->layers[5].num_key_value_heads, 1);
  EXPECT_EQ(config->layers[6].head_dim, 48);
  EXPECT_EQ(config->layers[0].head_dim, 16);
  EXPECT_EQ(config->ropes.size(), 3U);
  EXPECT_EQ(config->ropes[static_cast<size_t>(config->layers[6].rope_idx)],
            (RopeConfig{1e6, 1.0, 0.25, 48}));
  // The global size stands for the layers that are not named.
  json["global_head_dim"] = 32;
  json["per_layer_config"].erase("6");
  EXPECT_EQ(config_from_hf(json, "c")->layers[6].head_dim, 32);
}

TEST(Gemma4Config, RopeParameters) {
  Json json = small_gemma4();
  json["rope_parameters"] = {
      {"full_attention",
       {{"rope_type", "proportional"},
        {"partial_rotary_factor", 0.5},
        {"rope_theta", 5e5},
        {"factor", 4.0}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 2e4}}}};
  const Result<TextConfig> config = config_from_hf(json, "c");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->ropes[0], (RopeConfig{2e4, 1.0, 1.0, 16}));
  EXPECT_EQ(config->ropes[1], (RopeConfig{5e5, 4.0, 0.5, 32}));
}

TEST(Rope, ProportionalFrequencies) {
  // theta^(-2k/8) for the first int(0.5 * 8 / 2) = 2 pairs, then none.
  const std::vector<float> got = RopeConfig{1e4, 1.0, 0.5, 8}.inv_freq();
  ASSERT_EQ(got.size(), 4U);
  EXPECT_FLOAT_EQ(got[0], 1.0F);
  EXPECT_FLOAT_EQ(got[1], 0.1F);
  EXPECT_EQ(got[2], 0.0F);
  EXPECT_EQ(got[3], 0.0F);
  const RopeConfig published{1e6, 1.0, 0.25, 512};
  EXPECT_EQ(published.num_rotated_pairs(), 64);
  EXPECT_NE(published.inv_freq()[63], 0.0F);
  EXPECT_EQ(published.inv_freq()[64], 0.0F);
}

class BrokenGemma4 : public testing::TestWithParam<Broken> {};

TEST_P(BrokenGemma4, IsRefusedByName) {
  Json json = small_gemma4();
  json["num_experts"] = 4;
  json["top_k_experts"] = 2;
  json["moe_intermediate_size"] = 32;
  json[GetParam().key] = GetParam().value;
  if (std::string(GetParam().key).find("expert") != std::string::npos ||
      GetParam().key == std::string("moe_intermediate_size"))
    json["enable_moe_block"] = true;
  const Result<TextConfig> config =
      config_from_hf({{"model_type", "gemma4"}, {"text_config", json}}, "config.json");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::kBadInput);
  const std::string& message = config.error().message;
  EXPECT_NE(message.find(GetParam().key), std::string::npos) << message;
  EXPECT_NE(message.find("config.json: text_config"), std::string::npos) << message;
  EXPECT_NE(message.find("expected "), std::string::npos) << message;
  EXPECT_NE(message.find(", got "), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Table, BrokenGemma4,
    testing::Values(
        Broken{"vocab_size", 0}, Broken{"hidden_size", "32"}, Broken{"num_hidden_layers", 0},
        Broken{"num_attention_heads", 1.5}, Broken{"num_key_value_heads", 3},
        Broken{"head_dim", 15}, Broken{"global_head_dim", 1}, Broken{"intermediate_size", 0},
        Broken{"sliding_window", 0}, Broken{"num_kv_shared_layers", 7},
        Broken{"num_kv_shared_layers", 8}, Broken{"num_kv_shared_layers", 6},
        Broken{"use_double_wide_mlp", 1}, Broken{"attention_k_eq_v", "yes"},
        Broken{"hidden_size_per_layer_input", -1}, Broken{"num_experts", 0},
        Broken{"num_experts", 1 << 20}, Broken{"top_k_experts", 5}, Broken{"top_k_experts", 0},
        Broken{"moe_intermediate_size", 0}, Broken{"expert_intermediate_size", 48},
        Broken{"use_bidirectional_attention", "all"}, Broken{"use_bidirectional_attention", true},
        Broken{"attention_bias", true}, Broken{"attn_logit_softcapping", 50.0},
        Broken{"hidden_activation", "silu"}, Broken{"final_logit_softcapping", -1.0},
        Broken{"rope_scaling", {{"rope_type", "yarn"}}}, Broken{"rope_parameters", 7},
        Broken{"rope_parameters", {{"rope_theta", 1e4}}},
        Broken{"rope_parameters", {{"full_attention", 1}}},
        Broken{"rope_parameters", {{"full_attention", {{"rope_type", "yarn"}}}}},
        Broken{"rope_parameters",
               {{"sliding_attention", {{"rope_type", "default"}, {"partial_rotary_factor", 0.5}}}}},
        Broken{
            "rope_parameters",
            {{"full_attention", {{"rope_type", "proportional"}, {"partial_rotary_factor", 1.5}}}}},
        Broken{"per_layer_config", 3}, Broken{"per_layer_config", {{"7", Json::object()}}},
        Broken{"per_layer_config", {{"x", Json::object()}}}, Broken{"per_layer_config", {{"1", 2}}},
        Broken{"per_layer_config", {{"1", Json::object()}, {"01", Json::object()}}},
        Broken{"per_layer_config", {{"1", {{"sliding_window", 7}}}}},
        Broken{"layer_types", Json::array({"full_attention"})},
        Broken{"layer_types", Json::array({"a", "a", "a", "a", "a", "a", "a"})}));

Json small_gemma4_gguf() {
  return {{"general.architecture", "gemma4"},
          {"gemma4.context_length", 256},
          {"gemma4.embedding_length", 32},
          {"gemma4.block_count", 4},
          {"gemma4.feed_forward_length", Json::array({64, 64, 128, 128})},
          {"gemma4.attention.head_count", 4},
          {"gemma4.attention.head_count_kv", Json::array({2, 1, 2, 1})},
          {"gemma4.attention.key_length", 32},
          {"gemma4.attention.value_length", 32},
          {"gemma4.attention.key_length_swa", 16},
          {"gemma4.attention.value_length_swa", 16},
          {"gemma4.attention.layer_norm_rms_epsilon", 1e-6},
          {"gemma4.attention.sliding_window", 16},
          {"gemma4.attention.sliding_window_pattern", Json::array({true, false, true, false})},
          {"gemma4.attention.shared_kv_layers", 2},
          {"gemma4.embedding_length_per_layer_input", 8},
          {"gemma4.expert_count", 4},
          {"gemma4.expert_used_count", 2},
          {"gemma4.expert_feed_forward_length", 32}};
}

TEST(Gemma4GgufConfig, Read) {
  const Result<TextConfig> read = config_from_gguf(small_gemma4_gguf(), "m.gguf");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->layers[0].head_dim, 16);
  EXPECT_EQ(read->layers[1].head_dim, 32);
  EXPECT_EQ(read->layers[1].num_key_value_heads, 1);
  EXPECT_EQ(read->layers[2].intermediate_size, 128);
  EXPECT_EQ(read->layers[2].kv_source_idx, 0);
  EXPECT_EQ(read->layers[3].kv_source_idx, 1);
  EXPECT_EQ(read->hidden_size_per_layer_input, 8);
  EXPECT_EQ(read->num_experts, 4);
  EXPECT_EQ(read->final_logit_softcapping, 0.0F);
  EXPECT_EQ(read->ropes[static_cast<size_t>(read->layers[0].rope_idx)].rope_theta, 1e4);
  EXPECT_EQ(read->ropes[static_cast<size_t>(read->layers[1].rope_idx)].rope_theta, 1e6);
}

TEST(Gemma4GgufConfig, OneValueStandsForEveryLayer) {
  Json json = small_gemma4_gguf();
  json["gemma4.feed_forward_length"] = 64;
  json["gemma4.attention.head_count_kv"] = 2;
  json["gemma4.attention.head_count"] = Json::array({4, 4, 4, 4});
  json["gemma4.expert_feed_forward_length"] = Json::array({32, 32, 32, 32});
  const Result<TextConfig> read = config_from_gguf(json, "m.gguf");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->num_attention_heads, 4);
  EXPECT_EQ(read->layers[3].intermediate_size, 64);
  EXPECT_EQ(read->layers[3].num_key_value_heads, 2);
  EXPECT_EQ(read->moe_intermediate_size, 32);
}

class BrokenGemma4Gguf : public testing::TestWithParam<Broken> {};

TEST_P(BrokenGemma4Gguf, IsRefusedByName) {
  Json json = small_gemma4_gguf();
  json[GetParam().key] = GetParam().value;
  const Result<TextConfig> config = config_from_gguf(json, "m.gguf");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::kBadInput);
  EXPECT_NE(config.error().message.find(GetParam().key), std::string::npos)
      << config.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Table, BrokenGemma4Gguf,
    testing::Values(
        Broken{"general.architecture", "gemma4-assistant"}, Broken{"general.architecture", "clip"},
        Broken{"gemma4.context_length", 0}, Broken{"gemma4.embedding_length", nullptr},
        Broken{"gemma4.block_count", 0}, Broken{"gemma4.feed_forward_length", Json::array({64})},
        Broken{"gemma4.feed_forward_length", Json::array({64, 64, 64, 0})},
        Broken{"gemma4.attention.head_count", Json::array({4, 4, 4, 2})},
        Broken{"gemma4.attention.head_count_kv", 3},
        Broken{"gemma4.attention.head_count_kv", Json::array({2, 1, 3, 1})},
        Broken{"gemma4.attention.key_length", 31}, Broken{"gemma4.attention.value_length", 64},
        Broken{"gemma4.attention.value_length_swa", 32}, Broken{"gemma4.rope.dimension_count", 16},
        Broken{"gemma4.rope.dimension_count_swa", 32},
        Broken{"gemma4.attention.layer_norm_rms_epsilon", nullptr},
        Broken{"gemma4.attention.sliding_window", 0},
        Broken{"gemma4.attention.sliding_window_pattern", nullptr},
        Broken{"gemma4.attention.sliding_window_pattern", 6},
        Broken{"gemma4.attention.sliding_window_pattern", Json::array({true, false})},
        Broken{"gemma4.attention.sliding_window_pattern", Json::array({true, 2, true, false})},
        Broken{"gemma4.attention.shared_kv_layers", 4},
        Broken{"gemma4.attention.shared_kv_layers", 3},
        Broken{"gemma4.attention.shared_kv_layers", -1}, Broken{"gemma4.attention.scale", 0.5},
        Broken{"gemma4.attention.causal", false}, Broken{"gemma4.attn_logit_softcapping", 50.0},
        Broken{"gemma4.embedding_length_per_layer_input", -1}, Broken{"gemma4.expert_count", 5000},
        Broken{"gemma4.expert_used_count", 5}, Broken{"gemma4.expert_feed_forward_length", nullptr},
        Broken{"gemma4.expert_feed_forward_length", Json::array({32, 32, 32, 64})},
        Broken{"gemma4.rope.freq_base", 0.0}, Broken{"gemma4.rope.freq_base_swa", -1.0},
        Broken{"gemma4.rope.scaling.type", "yarn"}, Broken{"gemma4.rope.scaling.factor", 8.0},
        Broken{"gemma4.final_logit_softcapping", -1.0}));

}  // namespace
}  // namespace markbase::model
