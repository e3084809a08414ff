// The cache of packed weights: the same bits as packing gives, and never anything else.
#include "runtime/repack_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "markbase/engine.h"
#include "runtime/loaded_model.h"
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

// The first and the last byte of every content, whatever its size.
TEST_F(RepackCacheFiles, AFlippedByteOfAnyContentIsFound) {
  load();
  const std::string whole = read_all(cache_);
  const auto bytes = std::as_bytes(std::span(whole));
  runtime::RepackKey key;
  std::memcpy(&key, bytes.data() + 16, sizeof key);
  const auto entries = runtime::parse_repack_table(bytes, whole.size(), key);
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  ASSERT_GT(entries->size(), 1U);
  for (const runtime::RepackEntry& entry : *entries) {
    for (const uint64_t at : {entry.offset, entry.offset + entry.size_bytes - 1}) {
      std::string broken = whole;
      broken[at] = static_cast<char>(broken[at] ^ 0x80);
      write_all(cache_, broken);
      EXPECT_NE(load().find("its checksum does not hold"), std::string::npos) << at;
      EXPECT_TRUE(read_all(cache_) == whole) << at;
    }
  }
}

TEST_F(RepackCacheFiles, CutOrChangedWhileInUseIsAnErrorOfTheStep) {
  const auto cut = [&] { return truncate(cache_.c_str(), 4096); };
  const auto change = [&] {
    std::fstream file(cache_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-1, std::ios::end);
    file.put('\x55');
    file.close();
    // Later than the cache was made, however coarse the clock of the file system is.
    fs::last_write_time(cache_, fs::last_write_time(cache_) + std::chrono::seconds(1));
    return 0;
  };
  const auto take = [](int64_t, std::span<const float>) -> Result<void> { return {}; };
  const std::vector<int32_t> ids = {2, 5, 9};
  for (const auto& [harm, word] :
       {std::pair<std::function<int()>, const char*>{cut, "truncated"},
        std::pair<std::function<int()>, const char*>{change, "was written to"}}) {
    load();
    EngineOptions options;
    options.backend = BackendKind::kCpu;
    options.num_threads = 2;
    options.repack_cache = true;
    Result<Engine> engine = Engine::load(model_, options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    const Result<void> sound = engine->logits(ids, false, take);
    EXPECT_TRUE(sound.ok()) << sound.error().message;
    ASSERT_EQ(harm(), 0);
    const Result<void> done = engine->logits(ids, false, take);
    ASSERT_FALSE(done.ok()) << word;
    EXPECT_EQ(done.error().code, ErrorCode::kBadInput);
    EXPECT_NE(done.error().message.find(cache_), std::string::npos) << done.error().message;
    EXPECT_NE(done.error().message.find(word), std::string::npos) << done.error().message;
  }
}

// One that is replaced, as another process does it, or gone does not disturb who has it open.
TEST_F(RepackCacheFiles, ReplacedOrRemovedWhileInUseIsNothing) {
  load();
  EngineOptions options;
  options.backend = BackendKind::kCpu;
  options.num_threads = 2;
  options.repack_cache = true;
  Result<Engine> engine = Engine::load(model_, options);
  ASSERT_TRUE(engine.ok()) << engine.error().message;
  const std::vector<int32_t> ids = {2, 5, 9, 17, 4};
  const auto same_logits = [&] {
    std::vector<float> logits;
    const Result<void> done =
        engine->logits(ids, false, [&](int64_t, std::span<const float> row) -> Result<void> {
          logits.insert(logits.end(), row.begin(), row.end());
          return {};
        });
    return done.ok() && logits == plain_.logits;
  };
  EXPECT_TRUE(same_logits());
  const std::string other = folder_.write("other", read_all(cache_));
  fs::rename(other, cache_);
  EXPECT_TRUE(same_logits());
  fs::remove(cache_);
  EXPECT_TRUE(same_logits());
}

TEST_F(RepackCacheFiles, ThePlanShowsMappedWeightsApart) {
  EngineOptions options;
  options.backend = BackendKind::kCpu;
  options.num_threads = 1;
  const auto plan_of = [&](bool cached) {
    options.repack_cache = cached;
    const auto model = runtime::load_model(model_, options);
    EXPECT_TRUE(model.ok()) << model.error().message;
    return (*model)->plan;
  };
  const runtime::MemoryPlan packed = plan_of(false);
  EXPECT_EQ(packed.mapped_weight_bytes, 0U);
  EXPECT_EQ(plan_of(true).mapped_weight_bytes, 0U) << "packed by this one";
  const runtime::MemoryPlan mapped = plan_of(true);
  // The file holds them, each from a page border on, and its table.
  const uint64_t file_bytes = fs::file_size(cache_);
  EXPECT_GT(mapped.mapped_weight_bytes, file_bytes / 2);
  EXPECT_LT(mapped.mapped_weight_bytes, file_bytes);
  EXPECT_EQ(mapped.weight_bytes + mapped.mapped_weight_bytes, packed.weight_bytes);
  EXPECT_EQ(mapped.total_bytes() + mapped.mapped_weight_bytes, packed.total_bytes());
  EXPECT_NE(runtime::plan_text(mapped).find(
                " and " + runtime::bytes_text(mapped.mapped_weight_bytes) + " mapped of "),
            std::string::npos)
      << runtime::plan_text(mapped);
  // Damage is found after the plan was made: the weights are packed after all, and so it says.
  std::string broken = read_all(cache_);
  broken.back() = static_cast<char>(broken.back() ^ 1);
  write_all(cache_, broken);
  EXPECT_EQ(plan_of(true).weight_bytes, packed.weight_bytes);
  // What is mapped must fit too.
  options.context_tokens = packed.context_tokens;
  options.max_sequences = 1;
  options.prefix_cache = false;
  options.memory_bytes = packed.weight_bytes;
  const auto refused = runtime::load_model(model_, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
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
  EXPECT_NE(load().find("expected a regular file"), std::string::npos);
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

// Each as a process of its own: one writes, both give the same bits, and so does who comes later.
TEST_F(RepackCacheFiles, TwoProcessesDoNotDisturbEachOther) {
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      bool same = true;
      for (int j = 0; j < 3; ++j) same &= load_and_ask(model_, true, 1).logits == plain_.logits;
      _exit(same ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_TRUE(loads_from_cache());
  EXPECT_FALSE(fs::exists(cache_ + ".part"));
}

TEST(RepackCacheTable, EveryRuleIsEnforced) {
  const TempDir folder;
  const std::string path = folder.file("c");
  base::ThreadPool pool(2);
  const runtime::RepackKey key = {7, 9};
  // One of two pieces, a small one and an empty one.
  std::vector<std::byte> large((size_t{4} << 20) + 5000, std::byte{3});
  large.back() = std::byte{4};
  const std::vector<std::byte> small(5000, std::byte{5});
  const std::vector<runtime::NamedContent> kept = {{"w", large}, {"s", small}, {"e", {}}};
  uint64_t told = 0;
  const auto tell = [&](uint64_t done) { told = done; };
  ASSERT_TRUE(runtime::write_repack_cache(path, key, kept, pool, tell).ok());
  EXPECT_EQ(told, large.size() + small.size());
  const auto cache = runtime::RepackCache::open(path, key);
  ASSERT_TRUE(cache.ok()) << cache.error().message;
  using Wanted = std::vector<runtime::RepackCache::Wanted>;
  const auto contents =
      cache->contents(Wanted{{"s", 5000}, {"w", large.size()}, {"e", 0}}, pool, tell);
  ASSERT_TRUE(contents.ok()) << contents.error().message;
  ASSERT_EQ(contents->size(), 3U);
  EXPECT_TRUE(std::ranges::equal((*contents)[0], small));
  EXPECT_TRUE(std::ranges::equal((*contents)[1], large));
  EXPECT_TRUE((*contents)[2].empty());
  const auto message = [&](const Wanted& wanted) {
    return cache->contents(wanted, pool, tell).error().message;
  };
  EXPECT_NE(message({{"s", 5000}, {"v", 5000}}).find("v: is not there"), std::string::npos);
  EXPECT_NE(message({{"s", 4999}}).find("s: expected 4999 bytes, got 5000"), std::string::npos);
  const auto other = runtime::RepackCache::open(path, {7, 8});
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("another model"), std::string::npos);
}

// Kernels read contents with instructions that trap at odd addresses.
TEST(RepackCacheTable, ContentsStandAtPageBorders) {
  const TempDir folder;
  const std::string path = folder.file("c");
  base::ThreadPool pool(1);
  const runtime::RepackKey key = {7, 9};
  const std::vector<std::byte> content(5000, std::byte{3});
  const std::vector<runtime::NamedContent> kept = {{"w", content}};
  ASSERT_TRUE(runtime::write_repack_cache(path, key, kept, pool, [](uint64_t) {}).ok());
  std::string bytes = read_all(path);
  const auto parse = [&] {
    return runtime::parse_repack_table(std::as_bytes(std::span(bytes)), bytes.size(), key);
  };
  ASSERT_TRUE(parse().ok());
  // An offset of 4095 and fewer bytes, with the checksum that goes with them.
  runtime::RepackEntry entry = (*parse())[0];
  entry.offset -= 1;
  const uint64_t hash = XXH3_64bits(&entry, sizeof entry);
  std::memcpy(bytes.data() + 64, &entry, sizeof entry);
  std::memcpy(bytes.data() + 40, &hash, sizeof hash);
  const auto parsed = parse();
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.error().message.find("multiples of 4096, got 4095"), std::string::npos)
      << parsed.error().message;
}

}  // namespace
}  // namespace markbase
