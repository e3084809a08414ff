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

class SavedPrefixes : public PrefixFileOfAModel {
 protected:
  void SetUp() override {
    PrefixFileOfAModel::SetUp();
    Result<Engine> engine = load(config_);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    engine_.emplace(*std::move(engine));
    ASSERT_TRUE(engine_->generate(long_request()).ok());
  }
  // Refuses to save there, naming path and what stands there.
  void expect_refused(const std::string& path, const std::string& named, const std::string& what) {
    const Result<int64_t> saved = engine_->save_prefix_cache(path);
    ASSERT_FALSE(saved.ok()) << what;
    EXPECT_EQ(saved.error().code, ErrorCode::kUsage);
    EXPECT_EQ(saved.error().message,
              named + ": expected a file of kept prefixes or nothing, got " + what);
  }

  std::optional<Engine> engine_;
};

TEST_F(SavedPrefixes, TakeThePlaceOfNothingAndOfTheirOwnKind) {
  const std::string path = folder_.file("kept");
  EXPECT_EQ(*engine_->save_prefix_cache(path), 128);
  const std::string first = text_of(path);
  EXPECT_EQ(*engine_->save_prefix_cache(path), 128);
  EXPECT_EQ(text_of(path), first);
  // What a writer left that was ended half-way, or before it wrote anything.
  for (const size_t size : {size_t{0}, size_t{8}, first.size() / 2}) {
    folder_.write("kept.part", first.substr(0, size));
    EXPECT_EQ(*engine_->save_prefix_cache(path), 128) << size;
    EXPECT_EQ(text_of(path), first);
    EXPECT_FALSE(fs::exists(path + ".part"));
  }
}

TEST_F(SavedPrefixes, NeverTakeThePlaceOfAnythingElse) {
  const std::string path = folder_.file("kept");
  const std::string precious = folder_.write("precious", "precious");

  fs::create_directory(path);
  expect_refused(path, path, "a directory");
  EXPECT_TRUE(fs::is_directory(path));
  fs::remove(path);

  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  expect_refused(path, path, "a pipe");
  EXPECT_TRUE(fs::is_fifo(path));
  fs::remove(path);

  fs::create_symlink(precious, path);
  expect_refused(path, path, "a symbolic link");
  EXPECT_TRUE(fs::is_symlink(path));
  fs::remove(path);

  // Only root may make one; its numbers are those of the device that swallows everything.
  if (mknod(path.c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0) {
    expect_refused(path, path, "a device");
    EXPECT_TRUE(fs::is_character_file(path));
    fs::remove(path);
  }

  for (const char* bytes : {"precious", "MB", "MBREPACK and more", ""}) {
    folder_.write("kept", bytes);
    expect_refused(path, path, "another file");
    EXPECT_EQ(text_of(path), bytes);
  }
  fs::remove(path);

  // Nor under the name that it has until it is whole.
  folder_.write("kept.part", "precious");
  expect_refused(path, path + ".part", "another file");
  EXPECT_EQ(text_of(path + ".part"), "precious");
  EXPECT_FALSE(fs::exists(path));

  const std::string weights = model_ + "/model.safetensors";
  const std::string before = text_of(weights);
  expect_refused(weights, weights, "another file");
  EXPECT_EQ(text_of(weights), before);
  EXPECT_EQ(text_of(precious), "precious");
}

}  // namespace
}  // namespace markbase
