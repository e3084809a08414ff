// Every shape of Gemma 4, in every spelling of names, finds its place; what contradicts the
// configuration is said with both values.
#include "model/weight_map.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "formats/weight_source.h"
#include "support/tiny_gemma4.h"

namespace markbase::model {
namespace {

using markbase::testing::Gemma4Shape;
using markbase::testing::kGemma4Shapes;
using markbase::testing::quantise_module;
using markbase::testing::TempDir;
using markbase::testing::tiny_gemma4_gguf;
using markbase::testing::tiny_gemma4_hf;
using markbase::testing::tiny_gemma4_mlx;
using markbase::testing::tiny_gemma4_text;
using markbase::testing::TinyCheckpoint;
using markbase::testing::TinyTensor;

struct Opened {
  std::unique_ptr<formats::WeightSource> source;
  TextConfig config;
  WeightMap map;
  std::vector<Fault> faults;
  std::string error;  // of opening or of the configuration

  const MappedWeight* find(std::string_view name) const {
    for (const MappedWeight& weight : map.weights) {
      if (weight.name == name) return &weight;
    }
    return nullptr;
  }
  std::string all_faults() const {
    std::string text = error;
    for (const Fault& fault : faults) text += fault_message(fault) + "\n";
    return text;
  }
};

Opened open(const std::string& path) {
  Opened out;
  auto source = formats::open_weight_source(path);
  if (!source.ok()) {
    out.error = source.error().message;
    return out;
  }
  out.source = *std::move(source);
  Result<TextConfig> config = read_config(*out.source);
  if (!config.ok()) {
    out.error = config.error().message;
    return out;
  }
  out.config = *std::move(config);
  out.map = map_weights(*out.source, out.config, &out.faults);
  return out;
}

enum class Kind { kHf, kHfText, kMlx, kGguf };
struct Case {
  Gemma4Shape shape;
  Kind kind;
};

TinyCheckpoint checkpoint_of(const Case& c) {
  switch (c.kind) {
    case Kind::kHf:
      return tiny_gemma4_hf(c.shape);
    case Kind::kHfText:
      return tiny_gemma4_text(c.shape);
    case Kind::kMlx:
      return tiny_gemma4_mlx(c.shape, 4, 32);
    case Kind::kGguf:
      break;
  }
  return tiny_gemma4_gguf(c.shape);
}

std::string write(const TinyCheckpoint& checkpoint, Kind kind, const TempDir& dir) {
  return kind == Kind::kGguf ? checkpoint.write_gguf(dir) : checkpoint.write_hf(dir);
}

class EveryFile : public ::testing::TestWithParam<Case> {};

// By the published tables: tensors of a layer, of its K and V, of experts.
size_t expected_weights(Gemma4Shape shape) {
  constexpr size_t kLayers = 6;
  constexpr size_t kLayer =
      12;  // four norms, q, o, q_norm, gate, up, down, scalar; k counted below
  const bool per_layer = shape == Gemma4Shape::kE2B || shape == Gemma4Shape::kE4B;
  size_t count = 2 + kLayers * (kLayer - 1);
  if (per_layer) {
    count += 3 + kLayers * 3 + 3 * 3;  // three layers own k, v and k_norm
  } else {
    count += kLayers * 2 + 4;  // k and k_norm; v in the four sliding layers
  }
  if (shape == Gemma4Shape::k26B) count += kLayers * (6 + 4 * 3);
  return count;
}

TEST_P(EveryFile, IsMappedWhole) {
  const TempDir dir;
  const Opened opened = open(write(checkpoint_of(GetParam()), GetParam().kind, dir));
  EXPECT_EQ(opened.all_faults(), "");
  EXPECT_EQ(opened.map.weights.size(), expected_weights(GetParam().shape));
  EXPECT_EQ(opened.map.norm_offset, 0.0F);
  EXPECT_TRUE(opened.map.tied_head);
  for (const UnusedTensor& unused : opened.map.unused)
    EXPECT_TRUE(unused.known) << unused.name << ": " << unused.why;
  const TextConfig& config = opened.config;
  EXPECT_EQ(config.attention_scale, 1.0F);
  EXPECT_TRUE(config.value_norm);
  EXPECT_EQ(config.layers[2].head_dim, 64);
  EXPECT_EQ(config.layers[1].head_dim, 32);
  const RopeConfig& full = config.ropes[static_cast<size_t>(config.layers[2].rope_idx)];
  EXPECT_EQ(full, (RopeConfig{1e6, 1.0, 0.25, 64}));
  const RopeConfig& sliding = config.ropes[static_cast<size_t>(config.layers[0].rope_idx)];
  EXPECT_EQ(sliding, (RopeConfig{1e4, 1.0, 1.0, 32}));
}

std::vector<Case> every_case() {
  std::vector<Case> cases;
  for (const Gemma4Shape shape : kGemma4Shapes) {
    for (const Kind kind : {Kind::kHf, Kind::kHfText, Kind::kMlx, Kind::kGguf})
      cases.push_back({shape, kind});
  }
  return cases;
}
std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  constexpr const char* kKinds[] = {"Hf", "HfText", "Mlx", "Gguf"};
  return std::string(kKinds[static_cast<int>(info.param.kind)]) +
         std::string(testing::shape_name(info.param.shape));
}
INSTANTIATE_TEST_SUITE_P(Shapes, EveryFile, ::testing::ValuesIn(every_case()), case_name);

std::string why(const Opened& opened, std::string_view part) {
  for (const UnusedTensor& unused : opened.map.unused) {
    if (unused.name.find(part) != std::string::npos) return unused.why;
  }
  return "used";
}

TEST(WeightMap, KeysOfLayersThatBorrowAreDead) {
  const TempDir dir;
  const Opened opened = open(tiny_gemma4_hf(Gemma4Shape::kE2B).write_hf(dir));
  EXPECT_EQ(why(opened, "layers.3.self_attn.k_proj"),
            "the layer attends to the K and V of layer 1");
  EXPECT_EQ(why(opened, "layers.5.self_attn.v_proj"),
            "the layer attends to the K and V of layer 2");
  EXPECT_EQ(why(opened, "layers.4.self_attn.k_norm"),
            "the layer attends to the K and V of layer 1");
  EXPECT_EQ(why(opened, "layers.2.self_attn.k_proj"), "used");
  EXPECT_NE(why(opened, "vision_tower").find("vision is not supported"), std::string::npos);
  EXPECT_NE(why(opened, "embed_audio").find("audio is not supported"), std::string::npos);
  EXPECT_EQ(opened.find("layer.3.attn.k_proj"), nullptr);
  EXPECT_EQ(opened.find("layer.3.mlp.gate_proj")->view.rows, 256);
  EXPECT_EQ(opened.find("layer.2.mlp.gate_proj")->view.rows, 128);
}

TEST(WeightMap, FilesWithoutTheDeadKeys) {
  for (const bool gguf : {false, true}) {
    TinyCheckpoint checkpoint =
        gguf ? tiny_gemma4_gguf(Gemma4Shape::kE4B) : tiny_gemma4_hf(Gemma4Shape::kE4B);
    std::erase_if(checkpoint.tensors, [](const auto& tensor) {
      const std::string& name = tensor.first;
      const bool late = name.find("layers.3.") != std::string::npos || name.starts_with("blk.3.");
      return late && (name.find("attn_k") != std::string::npos ||
                      name.find("attn_v") != std::string::npos ||
                      name.find("attn.k_") != std::string::npos ||
                      name.find("attn.v_") != std::string::npos);
    });
    const TempDir dir;
    const Opened opened = open(gguf ? checkpoint.write_gguf(dir) : checkpoint.write_hf(dir));
    EXPECT_EQ(opened.all_faults(), "");
  }
}

TEST(WeightMap, ExpertsAreRunsOfRows) {
  const TempDir dir;
  const Opened opened = open(tiny_gemma4_hf(Gemma4Shape::k26B).write_hf(dir));
  const formats::TensorInfo* both =
      opened.source->find("model.language_model.layers.1.experts.gate_up_proj");
  const formats::TensorInfo* down =
      opened.source->find("model.language_model.layers.1.experts.down_proj");
  ASSERT_TRUE(both != nullptr && down != nullptr);
  const size_t matrix = 32 * 64 * 2;  // [32, 64] or [64, 32] in BF16
  for (size_t e = 0; e < 4; ++e) {
    const auto name = [&](const char* what) {
      return fmt::format("layer.1.experts.{}.{}", e, what);
    };
    const MappedWeight* gate = opened.find(name("gate_proj"));
    const MappedWeight* up = opened.find(name("up_proj"));
    const MappedWeight* own_down = opened.find(name("down_proj"));
    ASSERT_TRUE(gate != nullptr && up != nullptr && own_down != nullptr);
    EXPECT_EQ(gate->expert, static_cast<int64_t>(e));
    EXPECT_EQ(gate->view.data.data(), both->data.data() + 2 * e * matrix);
    EXPECT_EQ(up->view.data.data(), both->data.data() + (2 * e + 1) * matrix);
    EXPECT_EQ(own_down->view.data.data(), down->data.data() + e * matrix);
    EXPECT_EQ(up->view.data.size(), matrix);
    EXPECT_EQ(gate->view.rows, 32);
    EXPECT_EQ(own_down->view.rows, 64);
    EXPECT_EQ(own_down->view.cols, 32);
  }
}

TEST(WeightMap, QuantisedExpertsKeepTheirScales) {
  const TempDir dir;
  const Opened opened = open(tiny_gemma4_mlx(Gemma4Shape::k26B, 4, 32).write_hf(dir));
  const std::string module = "language_model.model.layers.0.experts.switch_glu.up_proj";
  const formats::TensorInfo* scales = opened.source->find(module + ".scales");
  const formats::TensorInfo* words = opened.source->find(module + ".weight");
  ASSERT_TRUE(scales != nullptr && words != nullptr);
  const MappedWeight* third = opened.find("layer.0.experts.2.up_proj");
  ASSERT_NE(third, nullptr);
  EXPECT_EQ(third->view.format, quant::Format::kAffine);
  EXPECT_EQ(third->view.data.data(), words->data.data() + 2 * (32 * 64 / 2));
  EXPECT_EQ(third->view.scales.data(), scales->data.data() + 2 * (32 * 2 * 2));
  EXPECT_EQ(third->view.scales.size(), 32U * 2 * 2);
  EXPECT_TRUE(quant::validate(third->view, "slice").ok());
  EXPECT_EQ(opened.find("layer.0.router.proj")->view.bits, 8);
}

TEST(WeightMap, OneTensorForEachExpert) {
  TinyCheckpoint checkpoint = tiny_gemma4_text(Gemma4Shape::k26B);
  for (int layer = 0; layer < 6; ++layer) {
    const std::string at = fmt::format("model.layers.{}.experts.", layer);
    checkpoint.tensors.erase(at + "gate_up_proj");
    checkpoint.tensors.erase(at + "down_proj");
    for (int e = 0; e < 4; ++e) {
      checkpoint.tensors[fmt::format("{}{}.gate_proj.weight", at, e)] = {{32, 64}, "BF16", ""};
      checkpoint.tensors[fmt::format("{}{}.up_proj.weight", at, e)] = {{32, 64}, "BF16", ""};
      checkpoint.tensors[fmt::format("{}{}.down_proj.weight", at, e)] = {{64, 32}, "BF16", ""};
    }
  }
  const TempDir dir;
  const Opened whole = open(checkpoint.write_hf(dir));
  EXPECT_EQ(whole.all_faults(), "");
  EXPECT_EQ(whole.map.weights.size(), expected_weights(Gemma4Shape::k26B));
  checkpoint.tensors.erase("model.layers.2.experts.3.up_proj.weight");
  EXPECT_NE(open(checkpoint.write_hf(dir)).all_faults().find("no tensor of expert 3"),
            std::string::npos);
}

TEST(WeightMap, GgufWithGateAndUpApart) {
  TinyCheckpoint checkpoint = tiny_gemma4_gguf(Gemma4Shape::k26B);
  for (int layer = 0; layer < 6; ++layer) {
    const std::string at = fmt::format("blk.{}.", layer);
    checkpoint.tensors.erase(at + "ffn_gate_up_exps.weight");
    checkpoint.tensors[at + "ffn_gate_exps.weight"] = {{4, 32, 64}, "Q8_0", ""};
    checkpoint.tensors[at + "ffn_up_exps.weight"] = {{4, 32, 64}, "Q8_0", ""};
  }
  const TempDir dir;
  const Opened opened = open(checkpoint.write_gguf(dir));
  EXPECT_EQ(opened.all_faults(), "");
  EXPECT_EQ(opened.map.weights.size(), expected_weights(Gemma4Shape::k26B));
}

TEST(WeightMap, ScalesThatAGgufLeavesOutAreOne) {
  TinyCheckpoint checkpoint = tiny_gemma4_gguf(Gemma4Shape::k26B);
  checkpoint.tensors.erase("blk.4.ffn_down_exps.scale");
  checkpoint.tensors.erase("blk.4.layer_output_scale.weight");
  const TempDir dir;
  const Opened opened = open(checkpoint.write_gguf(dir));
  EXPECT_EQ(opened.all_faults(), "");
  for (const char* name : {"layer.4.router.per_expert_scale", "layer.4.layer_scalar"}) {
    const MappedWeight* weight = opened.find(name);
    ASSERT_NE(weight, nullptr);
    std::vector<float> values(static_cast<size_t>(weight->view.cols));
    quant::decode_row(weight->view, 0, values);
    EXPECT_EQ(values, std::vector<float>(values.size(), 1.0F));
  }
}

TEST(WeightMap, EmbeddingScalesFollowTheFile) {
  // sqrt(64) = 8 is exact in every type: the widths here are 2816 and 200.
  TinyCheckpoint checkpoint;
  checkpoint.config = {{"model_type", "gemma4_text"},
                       {"vocab_size", 4},
                       {"hidden_size", 2816},
                       {"num_hidden_layers", 1},
                       {"vocab_size_per_layer_input", 4},
                       {"hidden_size_per_layer_input", 200}};
  struct Row {
    const char* type;
    float hidden;
    float per_layer;
  };
  // bfloat16 has 8 significant bits, half 11: sqrt(2816) = 53.066, sqrt(200) = 14.1421.
  for (const Row& row : {Row{"BF16", 53.0F, 14.125F}, Row{"F16", 53.0625F, 14.140625F},
                         Row{"F32", std::sqrt(2816.0F), std::sqrt(200.0F)}}) {
    checkpoint.tensors["model.embed_tokens.weight"] = {{4, 2816}, row.type, ""};
    checkpoint.tensors["model.embed_tokens_per_layer.weight"] = {{4, 200}, row.type, ""};
    const TempDir dir;
    const Opened opened = open(checkpoint.write_hf(dir));
    EXPECT_EQ(opened.error, "");
    EXPECT_EQ(opened.map.embed_scale, row.hidden) << row.type;
    EXPECT_EQ(opened.map.per_layer_embed_scale, row.per_layer) << row.type;
  }
  checkpoint.tensors["model.embed_tokens.weight"] = {{4, 2816}, "F32", ""};
  quantise_module(&checkpoint, "model.embed_tokens", 4, 64);
  checkpoint.config["quantization"] = {{"bits", 4}, {"group_size", 64}};
  const TempDir dir;
  EXPECT_EQ(open(checkpoint.write_hf(dir)).map.embed_scale, 53.0F);
}

TEST(WeightMap, ShardsAndSplits) {
  const TempDir hf;
  EXPECT_EQ(open(tiny_gemma4_hf(Gemma4Shape::k26B).write_hf_shards(hf, 3)).all_faults(), "");
  const TempDir gguf;
  const Opened opened = open(tiny_gemma4_gguf(Gemma4Shape::k26B).write_gguf_splits(gguf, 3));
  EXPECT_EQ(opened.all_faults(), "");
  EXPECT_EQ(opened.source->files().size(), 3U);
}

TEST(WeightMap, FloatModesOfMlx) {
  struct Mode {
    const char* name;
    int bits;
    int group;
  };
  for (const Mode& mode : {Mode{"mxfp4", 4, 32}, Mode{"mxfp8", 8, 32}, Mode{"nvfp4", 4, 16}}) {
    TinyCheckpoint checkpoint = tiny_gemma4_text(Gemma4Shape::kE4B);
    quantise_module(&checkpoint, "model.embed_tokens", mode.bits, mode.group, mode.name);
    quantise_module(&checkpoint, "model.layers.1.mlp.up_proj", mode.bits, mode.group, mode.name);
    checkpoint.config["quantization"] = {
        {"bits", mode.bits}, {"group_size", mode.group}, {"mode", mode.name}};
    const TempDir dir;
    const Opened opened = open(checkpoint.write_hf(dir));
    EXPECT_EQ(opened.all_faults(), "");
    EXPECT_EQ(quant::format_name(opened.find("embed_tokens")->view.format), mode.name);
    // What stands beside it may be as it was.
    EXPECT_EQ(opened.find("layer.2.mlp.up_proj")->view.format, quant::Format::kBF16);
  }
}

// ---- names that other programs write ----

TEST(WeightMap, NamesOfMlxLm) {
  TinyCheckpoint checkpoint = tiny_gemma4_mlx(Gemma4Shape::k26B, 4, 32);
  checkpoint.rename_prefix("language_model.model.", "model.");
  checkpoint.config = checkpoint.config["text_config"];
  checkpoint.config["quantization"] = {{"bits", 4}, {"group_size", 32}, {"mode", "affine"}};
  for (int layer = 0; layer < 6; ++layer) {
    checkpoint.config["quantization"][fmt::format("model.layers.{}.router.proj", layer)] = {
        {"bits", 8}, {"group_size", 64}};
  }
  const TempDir dir;
  EXPECT_EQ(open(checkpoint.write_hf(dir)).all_faults(), "");
}

// A decoder alone, converted by mlx-vlm: the prefix of a whole model, the keys of text_config on
// top.
TEST(WeightMap, NamesOfMlxVlmWithoutTowers) {
  TinyCheckpoint checkpoint = tiny_gemma4_mlx(Gemma4Shape::k26B, 4, 32);
  const base::Json block = checkpoint.config["quantization"];
  checkpoint.config = checkpoint.config["text_config"];
  checkpoint.config["quantization"] = checkpoint.config["quantization_config"] = block;
  std::erase_if(checkpoint.tensors,
                [](const auto& tensor) { return !tensor.first.starts_with("language_model."); });
  const TempDir dir;
  const Opened opened = open(checkpoint.write_hf(dir));
  EXPECT_EQ(opened.all_faults(), "");
  EXPECT_EQ(opened.map.weights.size(), expected_weights(Gemma4Shape::k26B));
}

// What mlx-vlm's loader takes besides what it writes: other prefixes, entries under the names of
// today, experts fused or apart, a quantised projector, tensors that it drops.
TEST(WeightMap, OldNamesOfMlxVlm) {
  for (const char* prefix :
       {"language_model.", "model.language_model.", "model.language_model.model."}) {
    TinyCheckpoint checkpoint = tiny_gemma4_mlx(Gemma4Shape::k26B, 4, 32);
    for (const char* part : {"weight", "scales", "biases"}) {
      const std::string at = "language_model.model.layers.0.experts.";
      TinyTensor both = checkpoint.tensors.at(at + "switch_glu.gate_proj." + part);
      both.shape[1] *= 2;
      checkpoint.tensors[at + "gate_up_proj." + part] = both;
      checkpoint.tensors.erase(at + "switch_glu.gate_proj." + part);
      checkpoint.tensors.erase(at + "switch_glu.up_proj." + part);
      checkpoint.rename(
          at + "switch_glu.down_proj." + part,
          at + "down_proj" + (part == std::string("weight") ? "" : fmt::format(".{}", part)));
      const std::string apart = "language_model.model.layers.1.experts.";
      for (const char* module : {"gate_proj", "up_proj", "down_proj"}) {
        TinyTensor one =
            checkpoint.tensors.at(fmt::format("{}switch_glu.{}.{}", apart, module, part));
        checkpoint.tensors.erase(fmt::format("{}switch_glu.{}.{}", apart, module, part));
        one.shape.erase(one.shape.begin());
        for (int e = 0; e < 4; ++e)
          checkpoint.tensors[fmt::format("{}{}.{}.{}", apart, e, module, part)] = one;
      }
    }
    checkpoint.rename_prefix("language_model.model.", prefix);
    checkpoint.tensors[std::string(prefix) + "layers.0.self_attn.rotary_emb.inv_freq"] = {
        {16}, "F32", ""};
    checkpoint.tensors[std::string(prefix) + "layers.0.mlp.up_proj.input_max"] = {{}, "BF16", ""};
    checkpoint.tensors["model.embed_vision.embedding_projection.scales"] = {{64, 1}, "BF16", ""};
    const TempDir dir;
    const Opened opened = open(checkpoint.write_hf(dir));
    EXPECT_EQ(opened.all_faults(), "") << prefix;
    EXPECT_EQ(opened.map.weights.size(), expected_weights(Gemma4Shape::k26B)) << prefix;
    EXPECT_EQ(opened.find("layer.2.router.proj")->view.bits, 8);
    EXPECT_EQ(why(opened, "rotary_emb"), "rotary frequencies are computed from the configuration");
    EXPECT_EQ(why(opened, "up_proj.input_max"), "products are clipped in the towers alone");
    EXPECT_NE(why(opened, "embedding_projection.scales").find("vision"), std::string::npos);
  }
}

// ---- what contradicts ----

struct BrokenRow {
  const char* name;
  Gemma4Shape shape;
  Kind kind;
  void (*change)(TinyCheckpoint*);
  std::vector<const char*> said;  // all in the faults
};
void PrintTo(const BrokenRow& row, std::ostream* out) { *out << row.name; }

constexpr const char* kHfPrefix = "model.language_model.";

TinyCheckpoint& text(TinyCheckpoint* c) { return *c; }
base::Json& config_of(TinyCheckpoint* c) { return c->config["text_config"]; }
testing::TinyTensor& tensor_of(TinyCheckpoint* c, const std::string& name) {
  return text(c).tensors.at(kHfPrefix + name);
}

class Contradiction : public ::testing::TestWithParam<BrokenRow> {};

TEST_P(Contradiction, IsSaid) {
  const BrokenRow& row = GetParam();
  TinyCheckpoint checkpoint = checkpoint_of({row.shape, row.kind});
  row.change(&checkpoint);
  const TempDir dir;
  const Opened opened = open(write(checkpoint, row.kind, dir));
  const std::string faults = opened.all_faults();
  for (const char* part : row.said) EXPECT_NE(faults.find(part), std::string::npos) << faults;
}

std::vector<BrokenRow> broken_rows() {
  using enum Gemma4Shape;
  using enum Kind;
  return {
      {"DoubleWideInTheConfigAlone",
       kE4B,
       kHf,
       [](TinyCheckpoint* c) { config_of(c)["use_double_wide_mlp"] = true; },
       {"layers.3.mlp.gate_proj.weight", "expected [256, 64] (use_double_wide_mlp is true)",
        "got [128, 64]"}},
      {"DoubleWideInTheTensorsAlone",
       kE2B,
       kHf,
       [](TinyCheckpoint* c) { config_of(c)["use_double_wide_mlp"] = false; },
       {"layers.5.mlp.down_proj.weight", "expected [64, 128] (use_double_wide_mlp is false)",
        "got [64, 256]"}},
      {"ValuesWhereKeysServe",
       k12B,
       kHf,
       [](TinyCheckpoint* c) {
         c->tensors["model.language_model.layers.2.self_attn.v_proj.weight"] = {
             {64, 64}, "BF16", ""};
       },
       {"layers.2.self_attn.v_proj.weight", "attention_k_eq_v is true", "got [64, 64]"}},
      {"NoValuesThoughKeysDoNotServe",
       k12B,
       kHf,
       [](TinyCheckpoint* c) { config_of(c)["attention_k_eq_v"] = false; },
       {"layers.2.self_attn.v_proj.weight", "attention_k_eq_v is false", "got no such tensor"}},
      {"PerLayerEmbeddingsInTheConfigAlone",
       k12B,
       kHf,
       [](TinyCheckpoint* c) { config_of(c)["hidden_size_per_layer_input"] = 32; },
       {"embed_tokens_per_layer.weight", "hidden_size_per_layer_input is 32", "no such tensor"}},
      {"PerLayerEmbeddingsInTheTensorsAlone",
       kE4B,
       kHf,
       [](TinyCheckpoint* c) { config_of(c)["hidden_size_per_layer_input"] = 0; },
       {"embed_tokens_per_layer.weight", "hidden_size_per_layer_input is 0", "got [96, 192]"}},
      {"ExpertsInTheConfigAlone",
       k31B,
       kHf,
       [](TinyCheckpoint* c) {
         config_of(c)["enable_moe_block"] = true;
         config_of(c)["num_experts"] = 4;
         config_of(c)["top_k_experts"] = 2;
         config_of(c)["moe_intermediate_size"] = 32;
       },
       {"layers.0.router.proj.weight", "the number of experts is 4", "no such tensor"}},
      {"ExpertsInTheTensorsAlone",
       k26B,
       kHf,
       [](TinyCheckpoint* c) { config_of(c)["enable_moe_block"] = false; },
       {"layers.0.router.proj.weight", "the number of experts is 0", "got [4, 64]"}},
      {"NumberOfExperts",
       k26B,
       kHf,
       [](TinyCheckpoint* c) {
         tensor_of(c, "layers.1.experts.down_proj").shape = {5, 64, 32};
       },
       {"layers.1.experts.down_proj", "expected [4, 64, 32]", "got [5, 64, 32]"}},
      {"WidthOfAnExpert",
       k26B,
       kHf,
       [](TinyCheckpoint* c) {
         tensor_of(c, "layers.1.experts.gate_up_proj").shape = {4, 32, 64};
       },
       {"layers.1.experts.gate_up_proj", "expected [4, 64, 64]", "got [4, 32, 64]"}},
      {"StackOfRankTwo",
       k26B,
       kHf,
       [](TinyCheckpoint* c) {
         tensor_of(c, "layers.1.experts.down_proj").shape = {256, 32};
       },
       {"layers.1.experts.down_proj", "expected [4, 64, 32]", "got [256, 32]"}},
      {"HeadDimension",
       kE4B,
       kHf,
       [](TinyCheckpoint* c) { config_of(c)["global_head_dim"] = 32; },
       {"layers.2.self_attn.q_proj.weight", "expected [128, 64]", "got [256, 64]"}},
      {"ScalarOfTwo",
       kE4B,
       kHf,
       [](TinyCheckpoint* c) { tensor_of(c, "layers.1.layer_scalar").shape = {2}; },
       {"layers.1.layer_scalar", "expected [1]", "got [2]"}},
      {"MissingTensor",
       kE4B,
       kHf,
       [](TinyCheckpoint* c) {
         c->tensors.erase("model.language_model.layers.1.per_layer_input_gate.weight");
       },
       {"layers.1.per_layer_input_gate.weight: a tensor is missing", "expected [32, 64]"}},
      {"MissingScalar",
       kE4B,
       kHf,
       [](TinyCheckpoint* c) { c->tensors.erase("model.language_model.layers.1.layer_scalar"); },
       {"layers.1.layer_scalar: a tensor is missing"}},
      {"MissingStack",
       k26B,
       kHf,
       [](TinyCheckpoint* c) {
         c->tensors.erase("model.language_model.layers.3.experts.down_proj");
       },
       {"layers.3.experts.switch_glu.down_proj: a tensor is missing", "for 4 experts"}},
      {"RouterAsIntegers",
       k26B,
       kHf,
       [](TinyCheckpoint* c) { tensor_of(c, "layers.3.router.scale").type = "I32"; },
       {"layers.3.router.scale", "expected F32, F16 or BF16, got I32"}},
      {"UntiedHeadMissing",
       kE4B,
       kHf,
       [](TinyCheckpoint* c) { config_of(c)["tie_word_embeddings"] = false; },
       {"lm_head.weight: a tensor is missing", "expected [96, 64]"}},
      {"BitsThatFitButAreNot",
       kE4B,
       kMlx,
       [](TinyCheckpoint* c) {
         c->config["quantization"] = {{"bits", 2}, {"group_size", 64}, {"mode", "affine"}};
       },
       {"language_model.model.layers.0.self_attn.q_proj.weight",
        "expected [128, 64], got [128, 128] by 2 bits in groups of 64, as its quantization block "
        "says; the file has 4 in groups of 32"}},
      {"BitsThatDoNotFit",
       kE4B,
       kMlx,
       [](TinyCheckpoint* c) {
         c->config["quantization"]["language_model.model.layers.1.mlp.up_proj"] = {
             {"bits", 8}, {"group_size", 32}};
       },
       {"layers.1.mlp.up_proj", "expected 16 words a row for 2 groups of 32 at 8 bits, as ",
        "config.json says, got weight [128, 8] and scales [128, 2]"}},
      {"OneLayerOfAGgufWithoutValues",
       k12B,
       kGguf,
       [](TinyCheckpoint* c) {
         c->tensors["blk.5.attn_v.weight"] = {{64, 64}, "Q8_0", ""};
       },
       {"blk.2.attn_v.weight: a tensor is missing", "attention_k_eq_v is false"}},
      {"SlidingLayerOfAGgufWithoutValues",
       k12B,
       kGguf,
       [](TinyCheckpoint* c) { c->tensors.erase("blk.1.attn_v.weight"); },
       {"blk.1.attn_v.weight: a tensor is missing"}},
      {"RopeDivisorsMissing",
       k12B,
       kGguf,
       [](TinyCheckpoint* c) { c->tensors.erase("rope_freqs.weight"); },
       {"rope_freqs.weight: expected [32] F32", "got no such tensor"}},
      {"RopeDivisorsOfAnotherLength",
       k12B,
       kGguf,
       [](TinyCheckpoint* c) {
         c->tensors["rope_freqs.weight"] = {{16}, "F32", ""};
       },
       {"rope_freqs.weight: expected [32] F32", "got F32 [16]"}},
      {"RopeDivisorsOfAnotherKind",
       k12B,
       kGguf,
       [](TinyCheckpoint* c) { c->tensors["rope_freqs.weight"].data.clear(); },
       {"rope_freqs.weight: expected [32] F32: ones", "got other values"}},
      {"TableOfAnotherRank",
       kE4B,
       kGguf,
       [](TinyCheckpoint* c) {
         c->tensors["per_layer_token_embd.weight"] = {{192}, "F32", ""};
       },
       {"per_layer_token_embd.weight: expected a table"}},
  };
}
std::string row_name(const ::testing::TestParamInfo<BrokenRow>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Table, Contradiction, ::testing::ValuesIn(broken_rows()), row_name);

}  // namespace
}  // namespace markbase::model
