// Kept prefixes through the public door: which model takes a file back, and what a file may take
// the place of.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "markbase/engine.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace markbase {
namespace {

namespace fs = std::filesystem;
using base::Json;
using testing::TempDir;

EngineOptions options_of() {
  EngineOptions options;
  options.backend = BackendKind::kCpu;
  options.num_threads = 1;
  options.context_tokens = 200;
  options.max_sequences = 2;
  return options;
}

Request long_request() {
  Request request;
  for (int32_t i = 0; i < 150; ++i) request.ids.push_back(3 + i * i % 97);
  request.max_tokens = 2;
  request.ignore_eos = true;
  return request;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A model whose configuration stands beside its weights, with every value that decides something
// written out.
class PrefixFileOfAModel : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = (folder_.path() / "model").string();
    fs::create_directory(model_);
    const std::string golden = testing::golden_path("tiny_gemma3_f32/");
    fs::copy_file(golden + "model.safetensors", model_ + "/model.safetensors");
    config_ = Json::parse(testing::read_file(golden + "config.json"));
    config_["final_logit_softcapping"] = 30.0;
    config_["tie_word_embeddings"] = true;
  }
  Result<Engine> load(const Json& config) const {
    std::ofstream(model_ + "/config.json") << config.dump(1);
    return Engine::load(model_, options_of());
  }
  void save(const std::string& path) const {
    Result<Engine> engine = load(config_);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    ASSERT_TRUE(engine->generate(long_request()).ok());
    const Result<int64_t> saved = engine->save_prefix_cache(path);
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(*saved, 128);
  }

  const TempDir folder_;
  std::string model_;
  Json config_;
};

TEST_F(PrefixFileOfAModel, IsTakenBackByTheSameConfigurationHoweverItIsWritten) {
  save(folder_.file("kept"));
  Result<Engine> engine = load(config_);
  ASSERT_TRUE(engine.ok());
  EXPECT_EQ(*engine->restore_prefix_cache(folder_.file("kept")), 128);
  std::ofstream(model_ + "/config.json") << config_.dump(7);
  Result<Engine> spaced = Engine::load(model_, options_of());
  ASSERT_TRUE(spaced.ok());
  EXPECT_EQ(*spaced->restore_prefix_cache(folder_.file("kept")), 128);
}

// Every number of the configuration, and the types of layers, each changed alone: what still loads
// is another model.
TEST_F(PrefixFileOfAModel, IsRefusedAfterAnyChangeOfTheConfiguration) {
  save(folder_.file("kept"));
  const Json flat = config_.flatten();
  std::vector<std::string> refused;
  for (const auto& [key, value] : flat.items()) {
    Json changed = flat;
    if (value.is_number_integer()) changed[key] = value.get<int64_t>() + 1;
    if (value.is_number_float()) changed[key] = value.get<double>() * 1.5 + 1e-6;
    if (value == "full_attention") changed[key] = "sliding_attention";
    if (value == "sliding_attention") changed[key] = "full_attention";
    if (changed == flat) continue;
    Result<Engine> engine = load(changed.unflatten());
    if (!engine.ok()) continue;
    const Result<int64_t> restored = engine->restore_prefix_cache(folder_.file("kept"));
    EXPECT_FALSE(restored.ok()) << key << ": " << value << " became " << changed[key];
    if (restored.ok()) continue;
    EXPECT_EQ(restored.error().code, ErrorCode::kBadInput);
    EXPECT_NE(restored.error().message.find("another model"), std::string::npos)
        << restored.error().message;
    refused.push_back(key);
  }
  for (const char* key :
       {"/query_pre_attn_scalar", "/rms_norm_eps", "/sliding_window", "/layer_types/2",
        "/rope_parameters/full_attention/rope_theta",
        "/rope_parameters/sliding_attention/rope_theta", "/final_logit_softcapping"}) {
    EXPECT_NE(std::find(refused.begin(), refused.end(), key), refused.end()) << key;
  }
}

}  // namespace
}  // namespace markbase
