#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "format_files.h"
#include "formats/safetensors/safetensors_source.h"
#include "formats/safetensors/safetensors_writer.h"

namespace markbase::formats {
namespace {

using tensor::DType;

constexpr DType kAllDTypes[] = {DType::kF32,    DType::kF16,    DType::kBF16, DType::kF64,
                                DType::kF8E4M3, DType::kF8E5M2, DType::kI8,   DType::kU8,
                                DType::kI16,    DType::kU16,    DType::kI32,  DType::kU32,
                                DType::kI64,    DType::kU64,    DType::kBool};

TEST(Safetensors, EveryDType) {
  SafetensorsWriter writer(std::map<std::string, std::string>{{"format", "pt"}});
  std::string data;
  for (const DType dtype : kAllDTypes) {
    writer.add_tensor("t." + std::string(tensor::dtype_name(dtype)), {2, 3, 4}, dtype);
    data += std::string(24 * tensor::dtype_bytes(dtype),
                        static_cast<char>('a' + static_cast<int>(dtype)));
  }
  writer.add_tensor("scalar", {}, DType::kF32);
  data += std::string(4, 's');
  writer.add_tensor("empty", {0, 7}, DType::kF32);
  const TempDir dir;
  dir.write("config.json", R"({"model_type":"gemma3_text"})");
  ASSERT_TRUE(writer.open(dir.file("model.safetensors")).ok());
  ASSERT_TRUE(writer.write(bytes_of(data)).ok());
  ASSERT_TRUE(writer.finish().ok());
  EXPECT_FALSE(std::filesystem::exists(dir.file("model.safetensors.partial")));

  const auto file = SafetensorsFile::open(dir.file("model.safetensors"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->metadata().at("format"), "pt");
  const auto source = open_weight_source(dir.path());
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ((*source)->kind(), FileKind::kSafetensors);
  EXPECT_EQ((*source)->config().at("model_type"), "gemma3_text");
  for (const DType dtype : kAllDTypes) {
    const TensorInfo* tensor = (*source)->find("t." + std::string(tensor::dtype_name(dtype)));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->type_name, tensor::dtype_name(dtype));
    EXPECT_EQ(tensor->shape, (std::vector<int64_t>{2, 3, 4}));
    EXPECT_EQ(text_of(tensor->data), std::string(24 * tensor::dtype_bytes(dtype),
                                                 static_cast<char>('a' + static_cast<int>(dtype))));
    EXPECT_NE(tensor->block_format.has_value(), tensor->dtype.has_value());
    const auto weight = (*source)->weight(tensor->name);
    EXPECT_EQ(weight.ok(), tensor->block_format.has_value());
    if (!weight.ok()) {
      expect_message(weight.error().message, "model.safetensors", "floats", tensor->type_name);
      continue;
    }
    EXPECT_EQ(weight->rows, 6);
    EXPECT_EQ(weight->cols, 4);
  }
  const auto scalar = (*source)->weight("scalar");
  ASSERT_TRUE(scalar.ok()) << scalar.error().message;
  EXPECT_EQ(scalar->rows * scalar->cols, 1);
  expect_message((*source)->weight("empty").error().message, "model.safetensors",
                 "at least one element", "[0, 7]");
  expect_message((*source)->weight("none").error().message, "model.safetensors",
                 "to be in the checkpoint", "no such tensor");
}

void write_one(const TempDir& dir, const std::string& file, const std::string& tensor, char fill) {
  SafetensorsWriter writer;
  writer.add_tensor(tensor, {2, 2}, DType::kF32);
  dir.write(file, writer.header() + std::string(16, fill));
}

TEST(Safetensors, TheIndexTellsTheFiles) {
  const TempDir dir;
  dir.write("config.json", "{}");
  write_one(dir, "model-00001-of-00002.safetensors", "a.weight", '1');
  write_one(dir, "model-00002-of-00002.safetensors", "b.weight", '2');
  write_one(dir, "adapter.safetensors", "a.weight", '3');
  dir.write("model.safetensors.index.json",
            R"({"metadata":{"total_size":32,"nested":[{"weight_map":1}]},
                "weight_map":{"b.weight":"model-00002-of-00002.safetensors",
                              "a.weight":"model-00001-of-00002.safetensors"}})");
  const auto source = open_weight_source(dir.path());
  ASSERT_TRUE(source.ok()) << source.error().message;
  ASSERT_EQ((*source)->files().size(), 2U);
  EXPECT_EQ((*source)->tensors().size(), 2U);
  EXPECT_EQ(text_of((*source)->weight("a")->data), std::string(16, '1'));
  EXPECT_EQ(text_of((*source)->weight("b.weight")->data), std::string(16, '2'));
}

TEST(Safetensors, WithoutIndexTheOneFileOrAll) {
  const TempDir dir;
  dir.write("config.json", "{}");
  write_one(dir, "x.safetensors", "x", '1');
  write_one(dir, "y.safetensors", "y", '2');
  EXPECT_EQ((*open_weight_source(dir.path()))->tensors().size(), 2U);
  write_one(dir, "model.safetensors", "a", '3');
  EXPECT_EQ((*open_weight_source(dir.path()))->tensors().size(), 1U);
}

TEST(Safetensors, FormatsWithScalesOfAnotherKindAreRefused) {
  SafetensorsWriter writer;
  writer.add_tensor("p.weight", {1, 4}, DType::kF8E4M3);
  writer.add_tensor("p.weight_scale", {1}, DType::kF32);
  writer.add_tensor("q.weight_packed", {1, 4}, DType::kU8);
  const std::string bytes = writer.header() + std::string(12, '\0');
  std::vector<SafetensorsFile> files;
  files.push_back(*SafetensorsFile::parse(bytes_of(bytes), "m.safetensors"));
  const auto source =
      SafetensorsSource::make(std::move(files), base::Json::object(), "config.json");
  ASSERT_TRUE(source.ok());
  expect_message((*source)->weight("p").error().message, "m.safetensors", "stands alone",
                 ".weight_scale");
  expect_message((*source)->weight("q").error().message, "m.safetensors", "MLX affine",
                 ".weight_packed");
}

// ---- MLX modules ----

struct Module {
  std::vector<int64_t> lead = {3};
  int64_t cols = 256;
  int bits = 4;
  int group = 64;
  DType scale_dtype = DType::kBF16;
  DType bias_dtype = DType::kBF16;
  DType word_dtype = DType::kU32;
  int64_t extra_bias_cols = 0;
  int64_t scale_rows_less = 0;
  bool biases = true;
  std::string suffix = ".weight";
};

Result<quant::WeightView> joined(const Module& m, const std::string& config,
                                 const std::string& name = "p", const std::string& ask = "") {
  SafetensorsWriter writer;
  uint64_t data_bytes = 0;
  const auto add = [&](const std::string& suffix, int64_t cols, DType dtype, int64_t rows_less) {
    std::vector<int64_t> shape = m.lead;
    shape.back() -= rows_less;
    shape.push_back(cols);
    writer.add_tensor(name + suffix, shape, dtype);
    uint64_t count = 1;
    for (const int64_t n : shape) count *= static_cast<uint64_t>(n);
    data_bytes += count * tensor::dtype_bytes(dtype);
  };
  add(m.suffix, m.cols * m.bits / 32, m.word_dtype, 0);
  add(".scales", m.cols / m.group, m.scale_dtype, m.scale_rows_less);
  if (m.biases)
    add(".biases", m.cols / m.group + m.extra_bias_cols, m.bias_dtype, m.scale_rows_less);
  // Leaked on purpose to the end of the test: the views look into it.
  static std::vector<std::unique_ptr<std::string>> kept_bytes;
  static std::vector<std::unique_ptr<SafetensorsSource>> kept_sources;
  kept_bytes.push_back(
      std::make_unique<std::string>(writer.header() + std::string(data_bytes, '\0')));
  std::vector<SafetensorsFile> files;
  MB_ASSIGN(SafetensorsFile file,
            SafetensorsFile::parse(bytes_of(*kept_bytes.back()), "m.safetensors"));
  files.push_back(std::move(file));
  MB_ASSIGN(base::Json json, base::parse_json(config, "config.json"));
  MB_ASSIGN(auto source, SafetensorsSource::make(std::move(files), std::move(json), "config.json"));
  kept_sources.push_back(std::move(source));
  return kept_sources.back()->weight(ask.empty() ? name : ask);
}

std::string block(int bits, int group, const std::string& more = "") {
  return "{\"quantization\":{\"bits\":" + std::to_string(bits) +
         ",\"group_size\":" + std::to_string(group) + more + "}}";
}

TEST(MlxAffine, EveryWidthAndGroup) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        const Module m{.lead = {2, 3},
                       .bits = bits,
                       .group = group,
                       .scale_dtype = dtype,
                       .bias_dtype = dtype};
        const auto view = joined(m, block(bits, group));
        ASSERT_TRUE(view.ok()) << view.error().message;
        EXPECT_EQ(view->format, quant::Format::kAffine);
        EXPECT_EQ(view->rows, 6);
        EXPECT_EQ(view->cols, 256);
        EXPECT_EQ(view->bits, bits);
        EXPECT_EQ(view->group_size, group);
        EXPECT_EQ(view->scale_dtype, dtype);
        EXPECT_EQ(view->data.size(), static_cast<size_t>(6 * 256 * bits / 8));
        EXPECT_EQ(view->scales.size(),
                  static_cast<size_t>(6 * 256 / group) * tensor::dtype_bytes(dtype));
        EXPECT_EQ(view->biases.size(), view->scales.size());
      }
    }
  }
}

TEST(MlxAffine, OverridesByModulePath) {
  const Module m{.bits = 8, .group = 64};
  const std::string override_p = ",\"p\":{\"bits\":8,\"group_size\":64}";
  EXPECT_TRUE(joined(m, block(4, 64, override_p)).ok());
  EXPECT_TRUE(joined(m, block(4, 64, override_p), "language_model.p").ok());
  EXPECT_TRUE(joined(m, block(4, 64, override_p), "p", "p.weight").ok());
  EXPECT_FALSE(joined(m, block(4, 64, override_p), "other").ok());
  // Scales tell that a module is quantised, whatever the config says.
  EXPECT_TRUE(joined(m, block(8, 64, ",\"p\":false")).ok());
  EXPECT_TRUE(joined(m, R"({"quantization_config":{"bits":8,"group_size":64}})").ok());
  EXPECT_TRUE(joined(m, block(8, 64, ",\"mode\":\"affine\"")).ok());
}

// As mlx-vlm reads stacked experts.
TEST(MlxAffine, PackedWordsWithoutASuffix) {
  EXPECT_TRUE(joined({.suffix = ""}, block(4, 64)).ok());
  const auto bare = joined({.biases = false, .suffix = ""}, block(4, 64));
  ASSERT_FALSE(bare.ok());
  EXPECT_NE(bare.error().message.find("biases beside its scales"), std::string::npos)
      << bare.error().message;
}

// A module's entry stands under the name that mlx-vlm's loader gives it, whatever the file says.
TEST(MlxAffine, OverridesByTheNameThatALoaderGives) {
  const Module m{.bits = 8, .group = 64};
  constexpr std::pair<const char*, const char*> kFound[] = {
      {"language_model.layers.1.router.proj", "language_model.model.layers.1.router.proj"},
      {"language_model.layers.1.router.proj", "model.layers.1.router.proj"},
      {"model.language_model.layers.1.router.proj", "language_model.model.layers.1.router.proj"},
      {"model.language_model.model.layers.1.mlp.p", "language_model.model.layers.1.mlp.p"},
      {"model.language_model.model.layers.1.mlp.p", "model.layers.1.mlp.p"},
      {"model.embed_vision.embedding_projection", "embed_vision.embedding_projection"},
      {"language_model.layers.1.experts.gate_up_proj",
       "language_model.model.layers.1.experts.switch_glu.gate_proj"},
      {"language_model.model.layers.1.experts.down_proj",
       "language_model.model.layers.1.experts.switch_glu.down_proj"},
      {"language_model.model.layers.1.experts.17.up_proj",
       "model.layers.1.experts.switch_glu.up_proj"}};
  constexpr std::pair<const char*, const char*> kOther[] = {
      {"language_model.layers.1.router.proj", "language_model.model.layers.11.router.proj"},
      {"language_model.layers.1.router.proj", "router.proj"},
      {"vision_tower.layers.1.mlp.p", "language_model.model.layers.1.mlp.p"},
      {"language_model.layers.1.experts.17.up_proj",
       "language_model.model.layers.1.experts.switch_glu.gate_proj"},
      {"language_model.layers.1.experts.17.up_proj",
       "language_model.model.layers.1.experts.switch_glu.17.up_proj"}};
  const auto joins = [&](const auto& row) {
    const std::string entry = fmt::format(R"(,"{}":{{"bits":8,"group_size":64}})", row.second);
    return joined(m, block(4, 64, entry), row.first).ok();
  };
  for (const auto& row : kFound) EXPECT_TRUE(joins(row)) << row.first << " by " << row.second;
  for (const auto& row : kOther) EXPECT_FALSE(joins(row)) << row.first << " by " << row.second;
}

TEST(MlxAffine, WhatDoesNotFitIsRefused) {
  const auto refused = [](const Module& m, const std::string& config, const std::string& file,
                          const std::string& expected, const std::string& got) {
    const auto view = joined(m, config);
    ASSERT_FALSE(view.ok());
    EXPECT_EQ(view.error().code, ErrorCode::kBadInput);
    expect_message(view.error().message, file, expected, got);
  };
  const std::string good = block(4, 64);
  refused({}, "{}", "config.json", "a quantization block", "none");
  refused({}, R"({"quantization_config":{"quant_method":"fp8"}})", "config.json",
          "a quantization block", "none");
  for (const char* mode : {"mxfp6", "nf4", "MXFP4", ""}) {
    refused({}, block(4, 32, ",\"mode\":\"" + std::string(mode) + "\""), "config.json",
            "mode \"affine\", \"mxfp4\", \"mxfp8\" or \"nvfp4\"",
            "mode \"" + std::string(mode) + "\", which is not supported");
  }
  refused({.biases = false}, good, "m.safetensors", "biases beside its scales", "none");
  refused({.word_dtype = DType::kI32}, good, "m.safetensors", "packed words of U32", "I32");
  refused({.scale_dtype = DType::kU8, .bias_dtype = DType::kU8}, good, "m.safetensors",
          "scales of F32", "U8");
  refused({.bias_dtype = DType::kF16}, good, "m.safetensors", "biases like the scales, BF16 [3, 4]",
          "F16 [3, 4]");
  refused({.extra_bias_cols = 1}, good, "m.safetensors", "biases like the scales", "BF16 [3, 5]");
  refused({.scale_rows_less = 1}, good, "m.safetensors", "agree in all axes but the last",
          "[3, 32] and [2, 4]");
  refused({}, block(8, 64), "m.safetensors", "64 words a row for 4 groups of 64 at 8 bits",
          "weight [3, 32]");
  refused({}, block(4, 32), "m.safetensors", "16 words a row", "scales [3, 4]");
}

TEST(MlxAffine, WidthsAndGroupsOutsideTheFormatAreRefused) {
  EXPECT_FALSE(joined({.bits = 1, .group = 64}, block(1, 64)).ok());
  EXPECT_FALSE(joined({.bits = 7, .group = 32}, block(7, 32)).ok());
  EXPECT_FALSE(joined({.bits = 4, .group = 16}, block(4, 16)).ok());
}

struct FloatMode {
  const char* mode;
  quant::Format format;
  int bits;
  int group;
};
constexpr FloatMode kFloatModes[] = {{"mxfp4", quant::Format::kMlxMXFP4, 4, 32},
                                     {"mxfp8", quant::Format::kMlxMXFP8, 8, 32},
                                     {"nvfp4", quant::Format::kMlxNVFP4, 4, 16}};

Module float_module(const FloatMode& mode) {
  return {.lead = {2, 3},
          .bits = mode.bits,
          .group = mode.group,
          .scale_dtype = DType::kU8,
          .bias_dtype = DType::kU8,
          .biases = false};
}

TEST(MlxFloatModes, AreJoined) {
  for (const FloatMode& mode : kFloatModes) {
    const std::string name = ",\"mode\":\"" + std::string(mode.mode) + "\"";
    // With and without the numbers that the mode implies.
    for (const std::string& config :
         {block(mode.bits, mode.group, name), "{\"quantization\":{" + name.substr(1) + "}}"}) {
      const auto view = joined(float_module(mode), config);
      ASSERT_TRUE(view.ok()) << view.error().message;
      EXPECT_EQ(view->format, mode.format);
      EXPECT_EQ(view->rows, 6);
      EXPECT_EQ(view->cols, 256);
      EXPECT_EQ(view->scales.size(), static_cast<size_t>(6 * 256 / mode.group));
      EXPECT_TRUE(view->biases.empty());
    }
  }
}

TEST(MlxFloatModes, AnOverrideWithoutAModeIsAffine) {
  const std::string config = block(4, 32, R"(,"mode":"mxfp4","p":{"bits":8,"group_size":64})");
  const auto view = joined({.bits = 8, .group = 64}, config);
  ASSERT_TRUE(view.ok()) << view.error().message;
  EXPECT_EQ(view->format, quant::Format::kAffine);
  EXPECT_EQ(view->bits, 8);
}

TEST(MlxFloatModes, WhatDoesNotFitIsRefused) {
  for (const FloatMode& mode : kFloatModes) {
    const auto refused = [&](const Module& m, const std::string& config,
                             const std::string& expected, const std::string& got) {
      const auto view = joined(m, config);
      ASSERT_FALSE(view.ok());
      const std::string& message = view.error().message;
      EXPECT_NE(message.find(expected), std::string::npos) << message;
      EXPECT_NE(message.find(got), std::string::npos) << message;
    };
    const std::string name = ",\"mode\":\"" + std::string(mode.mode) + "\"";
    const std::string config = block(mode.bits, mode.group, name);
    Module m = float_module(mode);
    m.biases = true;
    refused(m, config, "no biases in mode", "got biases");
    m = float_module(mode);
    m.scale_dtype = DType::kBF16;
    refused(m, config, "scales of U8 in mode", "got BF16");
    m = float_module(mode);
    m.bits = 2 * mode.bits;
    refused(m, config, "words a row", "got weight [2, 3, ");
    // Twice the bits in half the groups fits the shapes, but is no such mode.
    refused(m, block(2 * mode.bits, mode.group, name), "bits in groups of",
            "got " + std::to_string(2 * mode.bits));
  }
}

TEST(MlxAffine, WordsWithoutScalesAreRefused) {
  const auto view = joined({}, block(4, 64), "p", "p");
  ASSERT_TRUE(view.ok());
  SafetensorsWriter writer;
  writer.add_tensor("p.weight", {3, 8}, DType::kU32);
  const std::string bytes = writer.header() + std::string(96, '\0');
  std::vector<SafetensorsFile> files;
  files.push_back(*SafetensorsFile::parse(bytes_of(bytes), "m.safetensors"));
  const auto source =
      SafetensorsSource::make(std::move(files), base::Json::object(), "config.json");
  ASSERT_TRUE(source.ok());
  const auto weight = (*source)->weight("p");
  ASSERT_FALSE(weight.ok());
  expect_message(weight.error().message, "m.safetensors", "scales beside its packed words", "none");
}

}  // namespace
}  // namespace markbase::formats
