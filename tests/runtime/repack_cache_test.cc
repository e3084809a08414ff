// The cache of packed weights: the same bits as packing gives, and never anything else.
#include "runtime/repack_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "markbase/engine.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace markbase {
namespace {

namespace fs = std::filesystem;
using testing::golden_path;
using testing::TempDir;

struct Loaded {
  std::vector<float> logits;
  std::string messages;
};

Loaded load_and_ask(const std::string& path, bool repack_cache, int num_threads = 2) {
  Loaded result;
  EngineOptions options;
  options.backend = BackendKind::kCpu;
  options.num_threads = num_threads;
  options.repack_cache = repack_cache;
  options.message = [&](Severity severity, std::string_view text) {
    if (severity == Severity::kWarning) result.messages += "warning: ";
    result.messages += std::string(text) + "\n";
  };
  Result<Engine> engine = Engine::load(path, options);
  if (!engine.ok()) {
    ADD_FAILURE() << engine.error().message;
    return result;
  }
  const std::vector<int32_t> ids = {2, 5, 9, 17, 4};
  const auto take = [&](int64_t, std::span<const float> row) -> Result<void> {
    result.logits.insert(result.logits.end(), row.begin(), row.end());
    return {};
  };
  const Result<void> done = engine->logits(ids, false, take);
  if (!done.ok()) ADD_FAILURE() << done.error().message;
  return result;
}

std::string read_all(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write_all(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

class RepackCacheFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy_file(golden_path("tiny_gemma3_gguf/tiny.gguf"), model_);
    plain_ = load_and_ask(model_, false);
    ASSERT_FALSE(plain_.logits.empty());
    ASSERT_FALSE(fs::exists(cache_)) << "only where it is allowed";
  }
  // Loads with the cache allowed and compares every bit with packing.
  std::string load() {
    const Loaded loaded = load_and_ask(model_, true);
    EXPECT_EQ(loaded.logits.size(), plain_.logits.size());
    EXPECT_EQ(std::memcmp(loaded.logits.data(), plain_.logits.data(), plain_.logits.size() * 4), 0);
    return loaded.messages;
  }
  bool loads_from_cache() {
    const std::string messages = load();
    return messages.find("kept in") == std::string::npos &&
           messages.find("packing again") == std::string::npos;
  }

  TempDir folder_;
  std::string model_ = folder_.file("tiny.gguf");
  std::string cache_ = folder_.file("tiny.gguf.cpu1.repacked");
  Loaded plain_;
};

TEST_F(RepackCacheFiles, IsWrittenOnceAndReadAgain) {
  EXPECT_NE(load().find("kept in " + cache_), std::string::npos);
  const std::string first = read_all(cache_);
  EXPECT_TRUE(loads_from_cache());
  EXPECT_TRUE(read_all(cache_) == first);
  EXPECT_FALSE(fs::exists(cache_ + ".part"));
}

TEST_F(RepackCacheFiles, EveryDamageIsFoundAndMended) {
  load();
  const std::string whole = read_all(cache_);
  std::vector<std::string> broken = {"",
                                     "x",
                                     whole.substr(0, 63),
                                     whole.substr(0, whole.size() / 2),
                                     whole.substr(0, whole.size() - 1),
                                     whole + "x"};
  // One flipped bit: in the header, in the table, and in contents from the first to the last byte.
  for (const size_t at :
       {size_t{0}, size_t{8}, size_t{12}, size_t{16}, size_t{32}, size_t{40}, size_t{64},
        size_t{72}, size_t{80}, size_t{88}, size_t{4096}, size_t{9000}, whole.size() - 1}) {
    broken.push_back(whole);
    broken.back()[at] = static_cast<char>(broken.back()[at] ^ 1);
  }
  for (size_t i = 0; i < broken.size(); ++i) {
    write_all(cache_, broken[i]);
    const std::string messages = load();
    EXPECT_NE(messages.find("warning: packing again: " + cache_), std::string::npos)
        << i << ": " << messages;
    EXPECT_TRUE(read_all(cache_) == whole) << i;
  }
}

TEST_F(RepackCacheFiles, AnotherModelUnderTheSameNameIsNoticed) {
  load();
  // The same size and the same times, other weights: only the bytes tell.
  std::string other = read_all(model_);
  const auto times = fs::last_write_time(model_);
  other[other.size() - 40] = static_cast<char>(other[other.size() - 40] ^ 1);
  write_all(model_, other);
  fs::last_write_time(model_, times);
  plain_ = load_and_ask(model_, false);
  EXPECT_NE(load().find("made from another model"), std::string::npos);
  EXPECT_TRUE(loads_from_cache());
}

TEST_F(RepackCacheFiles, ADirectoryOfSafetensorsHasOneToo) {
  const fs::path from = golden_path("tiny_gemma3_bf16");
  const fs::path to = folder_.path() / "hf";
  fs::copy(from, to, fs::copy_options::recursive);
  const Loaded plain = load_and_ask(to, false);
  EXPECT_NE(load_and_ask(to, true).messages.find("kept in"), std::string::npos);
  const Loaded again = load_and_ask(to, true, 1);
  EXPECT_EQ(again.messages.find("kept in"), std::string::npos);
  EXPECT_EQ(again.logits, plain.logits);
}

TEST_F(RepackCacheFiles, AFolderThatCannotBeWrittenIsAWarning) {
  // A directory in the way, since root may write everywhere.
  fs::create_directory(cache_ + ".part");
  EXPECT_NE(load().find("warning: " + cache_ + ".part: cannot be written"), std::string::npos);
  EXPECT_FALSE(fs::exists(cache_));
}

TEST_F(RepackCacheFiles, LinksAndPipesUnderItsNamesAreLeftAlone) {
  const std::string precious = folder_.write("precious", "precious");
  const std::string part = cache_ + ".part";
  fs::create_symlink(precious, part);
  EXPECT_NE(load().find("warning: " + part + ": cannot be written"), std::string::npos);
  fs::remove(part);
  fs::create_hard_link(precious, part);
  EXPECT_NE(load().find("expected a plain file with one name"), std::string::npos);
  fs::remove(part);
  ASSERT_EQ(mkfifo(part.c_str(), 0600), 0);
  EXPECT_NE(load().find("expected a plain file with one name"), std::string::npos);
  EXPECT_TRUE(fs::is_fifo(part));
  fs::remove(part);
  EXPECT_EQ(read_all(precious), "precious");
  // A pipe that nobody writes to must not hold up the reader.
  ASSERT_EQ(mkfifo(cache_.c_str(), 0600), 0);
  EXPECT_NE(load().find("expected a plain file"), std::string::npos);
  fs::remove(cache_);
  fs::create_symlink(cache_, cache_);
  EXPECT_NE(load().find("kept in"), std::string::npos);
  EXPECT_TRUE(loads_from_cache());
}

TEST_F(RepackCacheFiles, TheKeyIsOfTheFileThatWasOpened) {
  const auto key_of = [&](const formats::WeightSource& source) {
    return runtime::repack_key(source, model::WeightMap(), "cpu1");
  };
  const auto opened = formats::open_weight_source(model_);
  ASSERT_TRUE(opened.ok());
  const runtime::RepackKey before = key_of(**opened);
  // Another file of the same size and times takes the name after it was opened.
  const std::string other = folder_.file("other.gguf");
  fs::copy_file(model_, other);
  fs::last_write_time(other, fs::last_write_time(model_));
  fs::rename(other, model_);
  EXPECT_EQ(key_of(**opened), before);
  const auto now = formats::open_weight_source(model_);
  ASSERT_TRUE(now.ok());
  EXPECT_NE(key_of(**now), before);
}

TEST_F(RepackCacheFiles, TheReferenceBackendRefusesIt) {
  EngineOptions options;
  options.backend = BackendKind::kRef;
  options.repack_cache = true;
  const Result<Engine> engine = Engine::load(model_, options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kUsage);
}

TEST_F(RepackCacheFiles, TwoLoadersDoNotDisturbEachOther) {
  std::vector<std::thread> loaders;
  std::atomic<int> different{0};
  for (int i = 0; i < 6; ++i) {
    loaders.emplace_back([&] {
      if (load_and_ask(model_, true, 1).logits != plain_.logits) ++different;
    });
  }
  for (std::thread& loader : loaders) loader.join();
  EXPECT_EQ(different.load(), 0);
  EXPECT_TRUE(loads_from_cache());
  EXPECT_FALSE(fs::exists(cache_ + ".part"));
}

TEST(RepackCacheTable, EveryRuleIsEnforced) {
  const TempDir folder;
  const std::string path = folder.file("c");
  base::ThreadPool pool(2);
  const runtime::RepackKey key = {7, 9};
  const std::vector<std::byte> content(5000, std::byte{3});
  uint64_t told = 0;
  ASSERT_TRUE(runtime::write_repack_cache(path, key,
                                          std::vector<runtime::NamedContent>{{"w", content}}, pool,
                                          [&](uint64_t done) { told = done; })
                  .ok());
  EXPECT_EQ(told, 5000u);
  const auto cache = runtime::RepackCache::open(path, key);
  ASSERT_TRUE(cache.ok()) << cache.error().message;
  std::vector<std::byte> out(5000);
  EXPECT_TRUE(cache->read("w", out, pool).ok());
  EXPECT_EQ(out, content);
  EXPECT_NE(cache->read("v", out, pool).error().message.find("v: is not there"), std::string::npos);
  out.resize(4999);
  EXPECT_NE(cache->read("w", out, pool).error().message.find("expected 4999 bytes, got 5000"),
            std::string::npos);
  const auto other = runtime::RepackCache::open(path, {7, 8});
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("another model"), std::string::npos);
}

}  // namespace
}  // namespace markbase
