// Faults that files of Gemma 4 are met with: each is named by verify and, where reading goes no
// further, by loading.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "markbase/engine.h"
#include "markbase/tools.h"
#include "support/golden.h"
#include "support/tiny_gemma4.h"

namespace markbase::tools {
namespace {

namespace fs = std::filesystem;
using markbase::testing::Gemma4Shape;
using markbase::testing::quantise_module;
using markbase::testing::TempDir;
using markbase::testing::tiny_gemma4_gguf;
using markbase::testing::tiny_gemma4_hf;
using markbase::testing::tiny_gemma4_mlx;
using markbase::testing::tiny_gemma4_text;
using markbase::testing::TinyCheckpoint;

base::Json parsed(const Result<std::string>& document) {
  if (!document.ok()) {
    ADD_FAILURE() << document.error().message;
    return {};
  }
  return *base::parse_json(*document, "document");
}

// Without a tokenizer beside them the tiny files have this one fault.
bool is_tokenizer_fault(const base::Json& fault) { return fault["what"] == "no tokenizer"; }

std::string faults_of(const std::string& path) {
  std::string text;
  const base::Json document = parsed(verify_json(path, {}));
  for (const base::Json& fault : document["faults"]) {
    if (is_tokenizer_fault(fault)) continue;
    for (const char* key : {"where", "what", "expected", "got"})
      text += fault[key].get<std::string>() + "; ";
    text += "\n";
  }
  return text;
}

enum class Layout { kHf, kText, kShards, kMlx, kGguf, kSplits };

struct Row {
  const char* name;
  Layout layout;
  Gemma4Shape shape;
  void (*change)(TinyCheckpoint*);  // before the files are written; may be null
  void (*damage)(const fs::path&);  // to the directory afterwards; may be null
  std::vector<const char*> said;
  bool loading_sees_it = true;
};
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

TinyCheckpoint checkpoint_of(const Row& row) {
  switch (row.layout) {
    case Layout::kHf:
    case Layout::kShards:
      return tiny_gemma4_hf(row.shape);
    case Layout::kText:
      return tiny_gemma4_text(row.shape);
    case Layout::kMlx:
      return tiny_gemma4_mlx(row.shape, 4, 32);
    case Layout::kGguf:
    case Layout::kSplits:
      break;
  }
  return tiny_gemma4_gguf(row.shape);
}

std::string written(const Row& row, const TinyCheckpoint& checkpoint, const TempDir& dir) {
  switch (row.layout) {
    case Layout::kShards:
      return checkpoint.write_hf_shards(dir, 3);
    case Layout::kGguf:
      return checkpoint.write_gguf(dir);
    case Layout::kSplits:
      return checkpoint.write_gguf_splits(dir, 3);
    default:
      return checkpoint.write_hf(dir);
  }
}

class BrokenCheckpoint : public ::testing::TestWithParam<Row> {};

TEST_P(BrokenCheckpoint, IsNamed) {
  const Row& row = GetParam();
  {
    const TempDir whole;
    EXPECT_EQ(faults_of(written(row, checkpoint_of(row), whole)), "");
  }
  const TempDir dir;
  TinyCheckpoint checkpoint = checkpoint_of(row);
  if (row.change != nullptr) row.change(&checkpoint);
  const std::string path = written(row, checkpoint, dir);
  if (row.damage != nullptr) row.damage(dir.path());
  const std::string faults = faults_of(path);
  for (const char* part : row.said) EXPECT_NE(faults.find(part), std::string::npos) << faults;
  if (!row.loading_sees_it) return;
  EngineOptions options;
  options.backend = BackendKind::kRef;
  const Result<Engine> engine = Engine::load(path, options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kBadInput) << engine.error().message;
  EXPECT_NE(engine.error().message.find(row.said.front()), std::string::npos)
      << engine.error().message;
}

std::string bf16_values(size_t count, uint16_t value) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out.append(reinterpret_cast<const char*>(&value), 2);
  return out;
}

constexpr uint16_t kNan = 0x7fc0;
constexpr const char* kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n";

void replace_file(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

base::Json read_json(const fs::path& path) {
  std::ifstream in(path);
  return base::Json::parse(in);
}

constexpr const char* kIndex = "model.safetensors.index.json";

std::vector<Row> rows() {
  using enum Gemma4Shape;
  using enum Layout;
  return {
      {"MissingTensor",
       kHf,
       kE4B,
       [](TinyCheckpoint* c) {
         c->tensors.erase("model.language_model.layers.4.self_attn.q_norm.weight");
       },
       nullptr,
       {"layers.4.self_attn.q_norm.weight", "a tensor is missing", "no such tensor"}},
      {"WrongShape",
       kGguf,
       k31B,
       [](TinyCheckpoint* c) {
         c->tensors["blk.1.ffn_up.weight"].shape = {160, 64};
       },
       nullptr,
       {"blk.1.ffn_up.weight", "[128, 64]", "[160, 64]"}},
      {"NanScale",
       kMlx,
       kE2B,
       [](TinyCheckpoint* c) {
         c->tensors["language_model.model.layers.0.mlp.up_proj.scales"].data =
             bf16_values(128 * 2, kNan);
       },
       nullptr,
       {"language_model.model.layers.0.mlp.up_proj.weight row 0, column 0",
        "a weight or its scale is not finite", "NaN"},
       false},
      {"NanScaleOfOneExpert",
       kMlx,
       k26B,
       [](TinyCheckpoint* c) {
         std::string scales = bf16_values(4 * 32 * 2, 0);
         scales.replace(2 * (3 * 32 * 2 + 5), 2, bf16_values(1, kNan));
         c->tensors["language_model.model.layers.0.experts.switch_glu.up_proj.scales"].data =
             scales;
       },
       nullptr,
       {"experts.switch_glu.up_proj.weight row 98, column 32", "not finite"},
       false},
      {"NanWeight",
       kHf,
       k12B,
       [](TinyCheckpoint* c) {
         c->tensors["model.language_model.norm.weight"].data = bf16_values(64, kNan);
       },
       nullptr,
       {"model.language_model.norm.weight row 0, column 0", "not finite"},
       false},
      {"BiasesMissing",
       kMlx,
       kE4B,
       [](TinyCheckpoint* c) {
         c->tensors.erase("language_model.model.layers.2.self_attn.o_proj.biases");
       },
       nullptr,
       {"layers.2.self_attn.o_proj", "expected biases beside its scales, got none"}},
      {"ScalesMissing",
       kMlx,
       kE4B,
       [](TinyCheckpoint* c) {
         c->tensors.erase("language_model.model.layers.2.self_attn.o_proj.scales");
         c->tensors.erase("language_model.model.layers.2.self_attn.o_proj.biases");
       },
       nullptr,
       {"layers.2.self_attn.o_proj", "expected scales beside its packed words, got none"}},
      {"NoQuantizationBlock",
       kMlx,
       kE4B,
       [](TinyCheckpoint* c) {
         c->config.erase("quantization");
         c->config.erase("quantization_config");
       },
       nullptr,
       {"config.json", "expected a quantization block"}},
      {"GroupThatDoesNotDivide",
       kMlx,
       kE4B,
       [](TinyCheckpoint* c) {
         for (const char* part : {"scales", "biases"}) {
           c->tensors[std::string("language_model.model.layers.0.mlp.up_proj.") + part].shape = {
               128, 3};
         }
       },
       nullptr,
       {"layers.0.mlp.up_proj", "12 words a row for 3 groups of 32 at 4 bits", "weight [128, 8]"}},
      {"GroupOutsideTheFormat",
       kMlx,
       kE4B,
       [](TinyCheckpoint* c) {
         const std::string module = "language_model.model.layers.0.mlp.up_proj";
         c->config["quantization"][module] = {{"bits", 4}, {"group_size", 16}};
         c->tensors[module + ".scales"].shape = {128, 4};
         c->tensors[module + ".biases"].shape = {128, 4};
       },
       nullptr,
       {"layers.0.mlp.up_proj", "expected a group size of 32, 64 or 128, got 16"}},
      {"BitsOfAnotherWidth",
       kMlx,
       kE4B,
       [](TinyCheckpoint* c) { c->config["quantization"]["bits"] = 8; },
       nullptr,
       {"config.json says", "16 words a row for 2 groups of 32 at 8 bits", "weight [96, 8]"}},
      {"UnknownMode",
       kMlx,
       kE4B,
       [](TinyCheckpoint* c) { c->config["quantization"]["mode"] = "mxfp6"; },
       nullptr,
       {"mode \"mxfp6\", which is not supported"}},
      {"FloatModeWithBiases",
       kMlx,
       kE4B,
       [](TinyCheckpoint* c) {
         const std::string module = "language_model.model.layers.0.mlp.up_proj";
         c->tensors[module + ".scales"].type = "U8";
         c->config["quantization"][module] = {{"bits", 4}, {"group_size", 32}, {"mode", "mxfp4"}};
       },
       nullptr,
       {"layers.0.mlp.up_proj", "expected no biases in mode mxfp4"}},
      {"ScaleByteThatIsNoNumber",
       kText,
       kE4B,
       [](TinyCheckpoint* c) {
         quantise_module(c, "model.layers.0.mlp.up_proj", 4, 32, "mxfp4");
         c->config["quantization"] = {{"bits", 4}, {"group_size", 32}, {"mode", "mxfp4"}};
         c->tensors["model.layers.0.mlp.up_proj.scales"].data = std::string(128 * 2, '\xff');
       },
       nullptr,
       {"model.layers.0.mlp.up_proj.weight row 0, column 0", "not finite"},
       false},
      {"ForeignQuantisation",
       kText,
       kE4B,
       [](TinyCheckpoint* c) {
         c->rename("model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight_packed");
       },
       nullptr,
       {"model.layers.0.mlp.up_proj",
        "the packed format of \".weight_packed\", which is not supported"}},
      {"AbsentShard",
       kShards,
       k26B,
       nullptr,
       [](const fs::path& dir) { fs::remove(dir / "model-00002-of-00003.safetensors"); },
       {"the file \"model-00002-of-00003.safetensors\"", "no such file"}},
      {"AbsentShardWithoutIndex",
       kShards,
       k26B,
       nullptr,
       [](const fs::path& dir) {
         fs::remove(dir / kIndex);
         fs::remove(dir / "model-00002-of-00003.safetensors");
       },
       {"all 3 beside it, \"model-00002-of-00003.safetensors\" among them", "no such file"}},
      {"IndexNamesAnotherShard",
       kShards,
       kE4B,
       nullptr,
       [](const fs::path& dir) {
         base::Json index = read_json(dir / kIndex);
         index["weight_map"]["model.language_model.norm.weight"] =
             "model-00001-of-00003.safetensors";
         replace_file(dir / kIndex, index.dump());
       },
       {"tensor \"model.language_model.norm.weight\"", "no such tensor there"}},
      {"IndexNamesFewerTensors",
       kShards,
       kE4B,
       nullptr,
       [](const fs::path& dir) {
         base::Json index = read_json(dir / kIndex);
         index["weight_map"].erase("model.language_model.norm.weight");
         replace_file(dir / kIndex, index.dump());
       },
       {"every tensor of the shard in its weight_map", "1 that it does not name",
        "\"model.language_model.norm.weight\" first"},
       false},
      {"SameTensorTwice",
       kShards,
       kE4B,
       nullptr,
       [](const fs::path& dir) {
         fs::copy_file(dir / "model-00001-of-00003.safetensors",
                       dir / "model-00002-of-00003.safetensors",
                       fs::copy_options::overwrite_existing);
         fs::remove(dir / kIndex);
       },
       {"expected each tensor once", "a second one, also in"}},
      {"GitLfsPointer",
       kHf,
       kE4B,
       nullptr,
       [](const fs::path& dir) { replace_file(dir / "model.safetensors", kPointer); },
       {"Git LFS pointer", "model.safetensors"}},
      {"GitLfsPointerAsShard",
       kShards,
       kE4B,
       nullptr,
       [](const fs::path& dir) {
         replace_file(dir / "model-00003-of-00003.safetensors", kPointer);
       },
       {"Git LFS pointer", "model-00003-of-00003.safetensors"}},
      {"ShardCutShort",
       kShards,
       kE4B,
       nullptr,
       [](const fs::path& dir) {
         const fs::path shard = dir / "model-00003-of-00003.safetensors";
         fs::resize_file(shard, fs::file_size(shard) - 2);
       },
       {"model-00003-of-00003.safetensors"}},
      {"AbsentSplit",
       kSplits,
       k26B,
       nullptr,
       [](const fs::path& dir) { fs::remove(dir / "model-00002-of-00003.gguf"); },
       {"split 2 of 3"}},
      {"SurplusTensor",
       kGguf,
       kE4B,
       [](TinyCheckpoint* c) {
         c->tensors["blk.0.attn_sinks.weight"] = {{8}, "F32", ""};
       },
       nullptr,
       {"blk.0.attn_sinks.weight", "a surplus tensor"}},
      {"BiasOfAProjection",
       kHf,
       kE4B,
       [](TinyCheckpoint* c) {
         c->tensors["model.language_model.layers.1.mlp.down_proj.bias"] = {
             {64}, "BF16", bf16_values(64, 0)};
       },
       nullptr,
       {"layers.1.mlp.down_proj.bias", "a surplus tensor", "only tensors of gemma4_text"}},
      {"BiasOfTheLastNorm",
       kText,
       k12B,
       [](TinyCheckpoint* c) {
         c->tensors["model.norm.bias"] = {{64}, "BF16", bf16_values(64, 0)};
       },
       nullptr,
       {"model.norm.bias", "a surplus tensor"}},
      {"BiasesBesidePlainWeights",
       kText,
       kE4B,
       [](TinyCheckpoint* c) {
         c->tensors["model.layers.0.mlp.up_proj.biases"] = {{2}, "BF16", bf16_values(2, 0)};
       },
       nullptr,
       {"model.layers.0.mlp.up_proj.biases", "a surplus tensor"}},
      {"LayerPastTheLast",
       kGguf,
       k31B,
       [](TinyCheckpoint* c) {
         c->tensors["blk.6.attn_norm.weight"] = c->tensors["blk.5.attn_norm.weight"];
       },
       nullptr,
       {"blk.6.attn_norm.weight", "one of layer 6, in a model of 6 layers"}},
      {"EndlessRowsOfNothing",
       kHf,
       kE4B,
       [](TinyCheckpoint* c) {
         c->tensors["new_tower.rows"] = {{int64_t{1} << 60, 0}, "F32", ""};
         c->tensors["new_tower.cols"] = {{0, int64_t{1} << 60}, "F32", ""};
       },
       nullptr,
       {"new_tower.rows", "new_tower.cols", "a surplus tensor"},
       false},
      {"IndexIsALinkToNowhere",
       kShards,
       kE4B,
       nullptr,
       [](const fs::path& dir) {
         fs::remove(dir / kIndex);
         fs::create_symlink("nowhere", dir / kIndex);
       },
       {"model.safetensors.index.json: cannot be opened"}},
      {"IdOfAnotherType",
       kGguf,
       kE4B,
       [](TinyCheckpoint* c) {
         c->config["tokenizer.ggml.model"] = "gemma4";
         c->config["tokenizer.ggml.tokens"] = {"<pad>", "<eos>", "<bos>", "<unk>"};
         c->config["tokenizer.ggml.bos_token_id"] = "2";
       },
       nullptr,
       {"tokenizer.ggml.bos_token_id: expected the id of a token, got \"2\""}},
      {"FlagOfAnotherType",
       kGguf,
       kE4B,
       [](TinyCheckpoint* c) {
         c->config["tokenizer.ggml.model"] = "gemma4";
         c->config["tokenizer.ggml.tokens"] = {"<pad>", "<eos>", "<bos>", "<unk>"};
         c->config["tokenizer.ggml.add_space_prefix"] = 0;
       },
       nullptr,
       {"tokenizer.ggml.add_space_prefix: expected a bool, got 0"}},
      {"TemplateOfAnotherType",
       kGguf,
       kE4B,
       [](TinyCheckpoint* c) {
         c->config["tokenizer.ggml.model"] = "gemma4";
         c->config["tokenizer.chat_template"] = 7;
       },
       nullptr,
       {"tokenizer.chat_template: expected a string, got 7"}},
      {"UnknownActivation",
       kHf,
       kE4B,
       [](TinyCheckpoint* c) { c->config["text_config"]["hidden_activation"] = "relu"; },
       nullptr,
       {"hidden_activation: expected \"gelu_pytorch_tanh\", got \"relu\""}},
  };
}
std::string row_name(const ::testing::TestParamInfo<Row>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Table, BrokenCheckpoint, ::testing::ValuesIn(rows()), row_name);

// ---- what is said at loading, and gone on without ----

std::vector<std::string> warnings_of_loading(const std::string& path) {
  std::vector<std::string> warnings;
  EngineOptions options;
  options.backend = BackendKind::kRef;
  options.message = [&](Severity severity, std::string_view text) {
    const bool about_tokenizer = text.find("no tokenizer found") != std::string_view::npos;
    if (severity == Severity::kWarning && !about_tokenizer) warnings.emplace_back(text);
  };
  const Result<Engine> engine = Engine::load(path, options);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return warnings;
}

TEST(Leftovers, OfOtherPartsAreSaidAtLoading) {
  TinyCheckpoint checkpoint = tiny_gemma4_hf(Gemma4Shape::kE4B);
  const TempDir whole;
  EXPECT_EQ(warnings_of_loading(checkpoint.write_hf(whole)), std::vector<std::string>());
  checkpoint.tensors["new_tower.a"] = {{1}, "BF16", bf16_values(1, 0)};
  checkpoint.tensors["new_tower.b"] = {{1}, "BF16", bf16_values(1, 0)};
  const TempDir dir;
  const auto warnings = warnings_of_loading(checkpoint.write_hf(dir));
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("2 tensors are left aside that gemma4_text has no place for, "
                             "\"new_tower.a\" first"),
            std::string::npos)
      << warnings[0];
}

TEST(Leftovers, OfTheIndexAreSaidAtLoading) {
  const TempDir dir;
  const std::string path = tiny_gemma4_hf(Gemma4Shape::kE4B).write_hf_shards(dir, 3);
  base::Json index = read_json(dir.path() / kIndex);
  index["weight_map"].erase("model.language_model.norm.weight");
  replace_file(dir.path() / kIndex, index.dump());
  const auto warnings = warnings_of_loading(path);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("expected every tensor of the shard in its weight_map"),
            std::string::npos)
      << warnings[0];
}

TEST(VerifyGemma4, UnknownKeysAreListedAndNoFault) {
  TinyCheckpoint hf = tiny_gemma4_hf(Gemma4Shape::kE4B);
  hf.config["text_config"]["future_gate"] = 3;
  hf.config["text_config"]["use_cache"] = true;
  hf.config["new_tower"] = nullptr;
  const TempDir dir;
  const base::Json document = parsed(verify_json(hf.write_hf(dir), {}));
  EXPECT_EQ(document["unknown_keys"], base::Json({"new_tower", "text_config.future_gate"}));
  ASSERT_EQ(document["faults"].size(), 1U) << document.dump();
  EXPECT_TRUE(is_tokenizer_fault(document["faults"][0]));

  TinyCheckpoint gguf = tiny_gemma4_gguf(Gemma4Shape::kE4B);
  gguf.config["gemma4.future_gate"] = 3;
  gguf.config["general.name"] = "x";
  gguf.config["gemma4.vision.block_count"] = 16;
  EXPECT_EQ(parsed(verify_json(gguf.write_gguf(dir), {}))["unknown_keys"],
            base::Json({"gemma4.future_gate"}));
}

// mlx-vlm writes the defaults of generation into config.json, once whole and some of them once
// more.
TEST(VerifyGemma4, WhatMlxVlmCopiesIntoTheConfigurationIsKnown) {
  TinyCheckpoint mlx = tiny_gemma4_mlx(Gemma4Shape::kE2B, 4, 32);
  mlx.config["do_sample"] = true;
  mlx.config["temperature"] = 1.0;
  mlx.config["top_k"] = 64;
  mlx.config["top_p"] = 0.95;
  mlx.config["generation_config"] = {{"temperature", 1.0}, {"eos_token_id", {1, 106}}};
  mlx.config["eos_token_id"] = {1, 106};
  const TempDir dir;
  const std::string path = mlx.write_hf(dir);
  EXPECT_EQ(parsed(verify_json(path, {}))["unknown_keys"].size(), 0U);
  mlx.config["text_config"]["top_k"] = 64;
  mlx.write_hf(dir);
  EXPECT_EQ(parsed(verify_json(path, {}))["unknown_keys"], base::Json({"text_config.top_k"}));
}

// ---- inspect ----

base::Json group_of(const base::Json& document, const std::string& name) {
  for (const base::Json& group : document["groups"]) {
    if (group["group"] == name) return group;
  }
  return nullptr;
}

TEST(InspectGemma4, GroupsCountWhatATokenReads) {
  const TempDir dir;
  const base::Json document =
      parsed(inspect_json(tiny_gemma4_mlx(Gemma4Shape::k26B, 4, 32).write_hf(dir), {}));
  EXPECT_EQ(document["faults"].size(), 0U);
  // 6 layers of 3 matrices for each of 4 experts, two of which are chosen; 4 bits and a scale and a
  // bias of 16 bits for each 32.
  const base::Json experts = group_of(document, "experts");
  EXPECT_EQ(experts["tensors"], 6 * 3);
  EXPECT_EQ(experts["weights"], 6 * 3 * 4 * 32 * 64);
  EXPECT_EQ(experts["bits_per_weight"], 5.0);
  EXPECT_EQ(experts["bytes"], 6 * 3 * 4 * 32 * 64 * 5 / 8);
  EXPECT_EQ(experts["bytes_per_token"], 6 * 3 * 2 * 32 * 64 * 5 / 8);
  EXPECT_EQ(experts["formats"], base::Json({"affine 4-bit, groups of 32"}));
  // The head is tied: the whole table is read.
  const base::Json embedding = group_of(document, "embedding");
  EXPECT_EQ(embedding["bytes_per_token"], 96 * 64 * 5 / 8);
  EXPECT_TRUE(group_of(document, "head").is_null());
  const base::Json router = group_of(document, "router");
  EXPECT_EQ(router["formats"], base::Json({"BF16", "affine 8-bit, groups of 64"}));
  EXPECT_TRUE(group_of(document, "per-layer embeddings").is_null());
  EXPECT_EQ(document["layers"][2]["keys_are_values"], true);
  EXPECT_EQ(document["config"]["num_experts"], 4);
}

TEST(InspectGemma4, DeadAndForeignTensorsAreNotCounted) {
  const TempDir dir;
  const base::Json document =
      parsed(inspect_json(tiny_gemma4_hf(Gemma4Shape::kE2B).write_hf(dir), {}));
  // q and o of 6 layers (4 of head size 32, 2 of 64), k and v of the first three.
  EXPECT_EQ(group_of(document, "attention")["weights"],
            4 * 2 * (4 * 32 * 64) + 2 * 2 * (4 * 64 * 64) + 2 * (2 * 32 * 64 + 64 * 64));
  // Of the per-layer table one row is read, of the projections all.
  const base::Json per_layer = group_of(document, "per-layer embeddings");
  const int projections = 192 * 64 + 6 * 2 * (32 * 64);
  EXPECT_EQ(per_layer["weights"], 96 * 192 + projections);
  EXPECT_EQ(per_layer["bytes_per_token"], 2 * (192 + projections));
  EXPECT_EQ(document["layers"][5]["kv_of_layer"], 2);
  EXPECT_EQ(document["layers"][1]["kv_of_layer"], 1);
  // k, v and k_norm of three layers by two reasons, and three tensors of the towers.
  ASSERT_EQ(document["unused_by_reason"].size(), 4U) << document["unused_by_reason"].dump();
  int tensors = 0;
  for (const base::Json& reason : document["unused_by_reason"])
    tensors += reason["tensors"].get<int>();
  EXPECT_EQ(tensors, 3 * 3 + 3);
  EXPECT_EQ(document["unused"].size(), 3U * 3 + 3);
  EXPECT_EQ(document["unknown_keys"].size(), 0U) << document["unknown_keys"].dump();
}

// Whole models by mlx-vlm's converter: every tensor of a tower is known and set aside, and nothing
// else is, but what the one with old names holds besides.
TEST(InspectGemma4, TowersOfMlxVlmAreSetAside) {
  struct Set {
    const char* name;
    int vision;
    int audio;
    int other;
  };
  constexpr Set kSets[] = {{"e2b-mlxvlm-4bit-g32", 44, 70, 0},
                           {"12b-mlxvlm-mixed_2_6", 10, 1, 0},
                           {"26b-mlxvlm-4bit-g32", 18, 0, 0},
                           {"26b-mlxvlm-old-3bit-g32", 20, 0, 2},
                           {"31b-mlxvlm-8bit-g64", 18, 0, 0}};
  for (const Set& set : kSets) {
    const std::string path = markbase::testing::golden_path(std::string("gemma4/") + set.name);
    const base::Json document = parsed(inspect_json(path, {}));
    EXPECT_EQ(document["faults"].size(), 0U) << set.name << document["faults"].dump();
    EXPECT_EQ(document["unknown_keys"].size(), 0U) << set.name << document["unknown_keys"].dump();
    int vision = 0;
    int audio = 0;
    int other = 0;
    for (const base::Json& unused : document["unused"]) {
      const auto why = unused["why"].get<std::string>();
      ++(why.starts_with("vision") ? vision : why.starts_with("audio") ? audio : other);
    }
    EXPECT_EQ(vision, set.vision) << set.name;
    EXPECT_EQ(audio, set.audio) << set.name;
    EXPECT_EQ(other, set.other) << set.name;
  }
}

}  // namespace
}  // namespace markbase::tools
