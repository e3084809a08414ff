#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "formats/weight_source.h"
#include "markbase/tokenizer.h"
#include "markbase/tools.h"
#include "runtime/tools/synth_format.h"
#include "runtime/tools/synth_shape.h"
#include "runtime/tools/synth_vocabulary.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace markbase::tools {
namespace {

namespace fs = std::filesystem;
using testing::read_file;
using testing::TempDir;

Result<std::string> synth(const std::string& size, const std::string& format,
                          const std::string& out, SynthOptions options = {}) {
  options.size = size;
  options.format = format;
  options.out = out;
  return synth_json(options);
}

void expect_error(const Result<std::string>& got, ErrorCode code, const std::string& word) {
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, code) << got.error().message;
  EXPECT_NE(got.error().message.find(word), std::string::npos) << got.error().message;
}

// Every tensor that was planned is in the files, with its shape and bytes, and no other.
void expect_tensors(const std::string& path, const std::string& size, const std::string& format) {
  const SynthShape shape = *synth_shape(size, 0);
  const auto planned = stored_tensors(shape, *synth_format(format));
  auto source = formats::open_weight_source(path);
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ((*source)->tensors().size(), planned.size());
  std::set<std::string> names;
  for (const StoredTensor& tensor : planned) {
    EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name << " twice";
    const formats::TensorInfo* info = (*source)->find(tensor.name);
    ASSERT_NE(info, nullptr) << tensor.name;
    EXPECT_EQ(info->shape, tensor.shape) << tensor.name;
    EXPECT_EQ(info->data.size(), tensor.num_bytes) << tensor.name;
  }
}

struct Case {
  std::string size;
  std::string format;
};
std::vector<Case> cases() {
  std::vector<Case> out;
  for (const std::string& size : synth_size_names()) {
    if (!size.starts_with("tiny-")) continue;
    for (const char* format : {"hf-bf16", "mlx-bf16", "mlx-4bit-g64", "mlx-3bit-g32", "gguf-f16",
                               "gguf-q4_0", "gguf-q5_1", "gguf-q8_0", "gguf-q4_k_m", "gguf-q6_k"}) {
      out.push_back({size, format});
    }
  }
  return out;
}

class Written : public ::testing::TestWithParam<Case> {};

TEST_P(Written, HoldsWhatWasPlannedAndVerifies) {
  const TempDir dir;
  const bool gguf = GetParam().format.starts_with("gguf");
  const std::string out = dir.file(gguf ? "model.gguf" : "model");
  const Result<std::string> done = synth(GetParam().size, GetParam().format, out);
  ASSERT_TRUE(done.ok()) << done.error().message;
  expect_tensors(out, GetParam().size, GetParam().format);
  const Result<std::string> verified = verify_json(out, {});
  ASSERT_TRUE(verified.ok()) << verified.error().message;
  const base::Json report = *base::parse_json(*verified, "report");
  EXPECT_EQ(report["faults"].size(), 0U) << report["faults"].dump(1);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()), 1)
      << "nothing unfinished stays behind";
}

INSTANTIATE_TEST_SUITE_P(Synth, Written, ::testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.size + "_" + info.param.format;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Synth, BytesDependOnTheSeedAlone) {
  const TempDir dir;
  SynthOptions options;
  options.seed = 4;
  options.num_threads = 1;
  ASSERT_TRUE(synth("tiny-26b-a4b", "gguf-q4_k_m", dir.file("a.gguf"), options).ok());
  options.num_threads = 3;
  ASSERT_TRUE(synth("tiny-26b-a4b", "gguf-q4_k_m", dir.file("b.gguf"), options).ok());
  options.seed = 5;
  ASSERT_TRUE(synth("tiny-26b-a4b", "gguf-q4_k_m", dir.file("c.gguf"), options).ok());
  EXPECT_EQ(read_file(dir.file("a.gguf")), read_file(dir.file("b.gguf")));
  EXPECT_NE(read_file(dir.file("a.gguf")), read_file(dir.file("c.gguf")));
}

TEST(Synth, ShardsHaveAnIndexThatNamesThem) {
  const TempDir dir;
  SynthOptions options;
  options.max_shard_bytes = 1 << 20;
  const Result<std::string> done = synth("tiny-gemma3-270m", "hf-bf16", dir.file("m"), options);
  ASSERT_TRUE(done.ok()) << done.error().message;
  const base::Json index =
      *base::parse_json(read_file(dir.file("m/model.safetensors.index.json")), "index");
  std::set<std::string> shards;
  uint64_t bytes = 0;
  for (const auto& [name, shard] : index["weight_map"].items()) shards.insert(shard);
  EXPECT_GT(shards.size(), 2U);
  for (const StoredTensor& tensor :
       stored_tensors(*synth_shape("tiny-gemma3-270m", 0), *synth_format("hf-bf16"))) {
    bytes += tensor.num_bytes;
  }
  EXPECT_EQ(index["metadata"]["total_size"], bytes);
  expect_tensors(dir.file("m"), "tiny-gemma3-270m", "hf-bf16");
}

TEST(Synth, NothingIsOverwritten) {
  const TempDir dir;
  dir.write("there.gguf", "mine");
  expect_error(synth("tiny-e2b", "gguf-q4_0", dir.file("there.gguf")), ErrorCode::kFailed,
               "there.gguf");
  EXPECT_EQ(read_file(dir.file("there.gguf")), "mine");
  dir.write("other.partial", "mine too");
  expect_error(synth("tiny-e2b", "hf-bf16", dir.file("other")), ErrorCode::kFailed,
               "other.partial");
  EXPECT_EQ(read_file(dir.file("other.partial")), "mine too");
}

TEST(Synth, AnInterruptedRunLeavesNothing) {
  for (const char* format : {"gguf-q4_0", "mlx-4bit"}) {
    const TempDir dir;
    SynthOptions options;
    int calls = 0;
    options.cancelled = [&] { return ++calls > 3; };
    expect_error(synth("tiny-e2b", format, dir.file("out"), options), ErrorCode::kCancelled,
                 "interrupted");
    EXPECT_TRUE(fs::is_empty(dir.path())) << format;
  }
}

TEST(Synth, WhatCannotBeWrittenIsSaid) {
  const TempDir dir;
  expect_error(synth("tiny-e2b", "hf-bf16", dir.file("no/such")), ErrorCode::kFailed, "no");
  expect_error(synth("e5b", "hf-bf16", dir.file("x")), ErrorCode::kUsage, "26b-a4b");
  expect_error(synth("tiny-e2b", "gguf-q9", dir.file("x")), ErrorCode::kUsage, "q4_k_m");
  expect_error(synth("tiny-e2b", "mlx-7bit", dir.file("x")), ErrorCode::kUsage, "mlx-Nbit");
  SynthOptions options;
  options.num_layers = 7;
  expect_error(synth("tiny-e2b", "hf-bf16", dir.file("x"), options), ErrorCode::kUsage, "6 layers");
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

// Of the published tables.
TEST(Synth, ShapesAreThePublishedOnes) {
  const auto find = [](const std::string& size, const std::string& name) {
    for (const SynthTensor& tensor : synth_tensors(*synth_shape(size, 0))) {
      if (tensor.gguf == name) return tensor.shape;
    }
    return std::vector<int64_t>{};
  };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(find("e2b", "per_layer_token_embd.weight"), (Shape{262144, 8960}));
  EXPECT_EQ(find("e2b", "blk.14.ffn_up.weight"), (Shape{6144, 1536}));
  EXPECT_EQ(find("e2b", "blk.15.ffn_up.weight"), (Shape{12288, 1536}));
  EXPECT_EQ(find("e2b", "blk.4.attn_q.weight"), (Shape{4096, 1536}));
  EXPECT_EQ(find("e4b", "per_layer_token_embd.weight"), (Shape{262144, 10752}));
  EXPECT_EQ(find("e4b", "blk.5.attn_v.weight"), (Shape{1024, 2560}));
  EXPECT_EQ(find("12b", "blk.0.attn_k.weight"), (Shape{2048, 3840}));
  EXPECT_EQ(find("12b", "blk.47.attn_k.weight"), (Shape{512, 3840}));
  EXPECT_EQ(find("12b", "blk.47.attn_v.weight"), Shape{});
  EXPECT_EQ(find("26b-a4b", "blk.29.ffn_gate_up_exps.weight"), (Shape{128, 1408, 2816}));
  EXPECT_EQ(find("26b-a4b", "blk.29.attn_output.weight"), (Shape{2816, 8192}));
  EXPECT_EQ(find("31b", "blk.59.attn_q.weight"), (Shape{16384, 5376}));
  EXPECT_EQ(find("31b", "blk.58.attn_v.weight"), (Shape{4096, 5376}));
  EXPECT_EQ(find("gemma3-1b", "blk.25.ffn_down.weight"), (Shape{1152, 6912}));
}

TEST(Synth, CutModelsKeepTheirKinds) {
  for (const std::string& size : synth_size_names()) {
    const SynthShape whole = *synth_shape(size, 0);
    for (int64_t layers = 1; layers <= whole.num_hidden_layers; ++layers) {
      const SynthShape cut = *synth_shape(size, layers);
      ASSERT_EQ(cut.num_hidden_layers, layers);
      if (whole.gemma4) {
        EXPECT_TRUE(cut.is_full(layers - 1)) << size << " " << layers;
      }
      const int64_t owned = layers - cut.num_kv_shared_layers;
      if (cut.num_kv_shared_layers == 0) continue;
      ASSERT_GE(owned, 2) << size << " " << layers;
      EXPECT_TRUE(cut.is_full(owned - 1) && !cut.is_full(owned - 2)) << size << " " << layers;
    }
    EXPECT_EQ(synth_shape(size, whole.num_hidden_layers)->num_kv_shared_layers,
              whole.num_kv_shared_layers);
  }
}

TEST(Synth, VocabularyHasEveryIdOnce) {
  for (const int64_t size : {512, 262144}) {
    const SynthVocabulary v = synth_vocabulary(size, true);
    const std::set<std::string> unique(v.pieces.begin(), v.pieces.end());
    EXPECT_EQ(static_cast<int64_t>(unique.size()), size);
    EXPECT_EQ(v.pieces[static_cast<size_t>(v.end_of_turn_id)], "<turn|>");
    EXPECT_EQ(unique.count("<0xFF>"), 1U);
  }
  EXPECT_EQ(synth_vocabulary(262144, true).end_of_turn_id, 106);
}

TEST(Synth, BothFormsOfTheVocabularyGiveTheSameIds) {
  const TempDir dir;
  const std::string text = "the quick brown fox\n jumped over ::: \u00e9t\u00e9 \u65e5\u672c";
  for (const char* size : {"tiny-gemma3-270m"}) {
    const std::string folder = dir.file(std::string(size) + "-hf");
    const std::string file = dir.file(std::string(size) + ".gguf");
    ASSERT_TRUE(synth(size, "hf-bf16", folder).ok());
    ASSERT_TRUE(synth(size, "gguf-f16", file).ok());
    std::vector<std::vector<int32_t>> ids;
    for (const std::string& path : {folder, file}) {
      auto tokenizer = Tokenizer::load(path);
      ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
      ids.push_back(tokenizer->encode(text, false, false));
      EXPECT_EQ(*tokenizer->decode(ids.back(), false), text);
    }
    EXPECT_EQ(ids[0], ids[1]);
  }
}

}  // namespace
}  // namespace markbase::tools
