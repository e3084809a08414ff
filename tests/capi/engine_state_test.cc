// Embeddings, statistics and the prefix cache through the C API, on a tiny random Gemma 3.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "markbase/engine.h"
#include "markbase/markbase.h"
#include "support/golden.h"
#include "support/temp_dir.h"

namespace {

using markbase::testing::golden_path;

class CState : public ::testing::Test {
 protected:
  void SetUp() override { engine_ = load(); }
  void TearDown() override { mb_engine_free(engine_); }

  static mb_engine* load() {
    mb_engine* engine = nullptr;
    mb_error* error = nullptr;
    EXPECT_EQ(mb_engine_load(path().c_str(), nullptr, &engine, &error), MB_OK)
        << mb_error_message(error);
    return engine;
  }
  static std::string path() { return golden_path("tiny_gemma3_gguf/tiny.gguf"); }

  static mb_embed_request embedding(const std::vector<int32_t>& ids) {
    mb_embed_request request;
    EXPECT_EQ(mb_embed_request_init(&request, sizeof(request), nullptr), MB_OK);
    request.ids = ids.data();
    request.num_ids = ids.size();
    return request;
  }
  std::vector<float> embed(const mb_embed_request& request) {
    float* values = nullptr;
    size_t num_values = 0;
    mb_error* error = nullptr;
    EXPECT_EQ(mb_embed(engine_, &request, &values, &num_values, &error), MB_OK)
        << mb_error_message(error);
    std::vector<float> out(values, values + num_values);
    mb_free(values);
    return out;
  }
  void generate(int64_t max_tokens) {
    mb_request request;
    EXPECT_EQ(mb_request_init(&request, sizeof(request), nullptr, nullptr), MB_OK);
    request.ids = ids_.data();
    request.num_ids = ids_.size();
    request.max_tokens = max_tokens;
    request.ignore_eos = 1;
    mb_completions* completions = nullptr;
    EXPECT_EQ(mb_generate(engine_, &request, nullptr, nullptr, &completions, nullptr, nullptr),
              MB_OK);
    mb_completions_free(completions);
  }
  // Waits until the engine's thread has nothing of a request to do: logits come after that.
  void settle() {
    const auto ignore = [](int64_t, const float*, size_t, void*) { return int32_t{1}; };
    EXPECT_EQ(mb_logits(engine_, ids_.data(), 1, 1, ignore, nullptr, nullptr), MB_OK);
  }

  mb_engine* engine_ = nullptr;
  const std::vector<int32_t> ids_ = {2, 7, 9, 11, 13, 5, 8, 21, 34, 55, 60, 61, 62, 63, 64, 65, 66};
};

// The final normed hidden states, as `trace` shows them.
std::vector<std::vector<float>> hidden_states(const std::string& path,
                                              const std::vector<int32_t>& ids) {
  std::vector<std::vector<float>> rows;
  auto engine = markbase::Engine::load(path, {});
  EXPECT_TRUE(engine.ok());
  const auto take = [&](const markbase::TraceTensor& tensor) -> markbase::Result<void> {
    const auto width = static_cast<size_t>(tensor.shape.back());
    for (size_t i = 0; i < tensor.values.size(); i += width) {
      const auto row = tensor.values.subspan(i, width);
      rows.emplace_back(row.begin(), row.end());
    }
    return {};
  };
  const auto ignore = [](int64_t, std::span<const float>) { return markbase::Result<void>(); };
  EXPECT_TRUE(engine->trace(ids, "final_norm", take, ignore).ok());
  EXPECT_EQ(rows.size(), ids.size());
  return rows;
}

TEST_F(CState, EmbeddingsAreThePooledHiddenStates) {
  const auto rows = hidden_states(path(), ids_);
  ASSERT_FALSE(rows.empty());
  std::vector<double> mean(rows[0].size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) mean[i] += row[i] / static_cast<double>(rows.size());
  }
  double norm = 0;
  for (const double value : mean) norm += value * value;
  norm = std::sqrt(norm);
  ASSERT_GT(norm, 0);

  mb_embed_request request = embedding(ids_);
  const std::vector<float> unit = embed(request);
  request.normalise = 0;
  const std::vector<float> plain = embed(request);
  request.pooling = MB_POOLING_LAST;
  const std::vector<float> last = embed(request);
  ASSERT_EQ(unit.size(), mean.size());
  ASSERT_EQ(plain.size(), mean.size());
  ASSERT_EQ(last.size(), mean.size());
  // Sums of a few floats of a few units.
  for (size_t i = 0; i < mean.size(); ++i) {
    EXPECT_NEAR(plain[i], mean[i], 1e-5) << i;
    EXPECT_NEAR(unit[i], mean[i] / norm, 1e-5) << i;
    EXPECT_NEAR(last[i], rows.back()[i], 1e-5) << i;
  }
}

TEST_F(CState, EmbeddingsRefuseWhatIsNoRequest) {
  float* values = nullptr;
  size_t num_values = 0;
  const auto refused = [&](auto change) {
    mb_embed_request request = embedding(ids_);
    change(request);
    mb_error* error = nullptr;
    EXPECT_EQ(mb_embed(engine_, &request, &values, &num_values, &error), MB_USAGE);
    EXPECT_EQ(values, nullptr);
    std::string message = mb_error_message(error);
    mb_error_free(error);
    return message;
  };
  using R = mb_embed_request;
  EXPECT_NE(refused([](R& r) { r.text = mb_text("Hi"); }).find("got both"), std::string::npos);
  EXPECT_NE(refused([](R& r) { r.num_ids = 0; }).find("got none"), std::string::npos);
  EXPECT_NE(refused([](R& r) { r.pooling = 2; }).find("pooling"), std::string::npos);
  EXPECT_NE(refused([](R& r) { r.normalise = 3; }).find("normalise"), std::string::npos);
  EXPECT_NE(refused([](R& r) { r.size = 1; }).find("size"), std::string::npos);
  const mb_embed_request request = embedding(ids_);
  EXPECT_EQ(mb_embed(nullptr, &request, &values, &num_values, nullptr), MB_USAGE);
  EXPECT_EQ(mb_embed(engine_, nullptr, &values, &num_values, nullptr), MB_USAGE);
  EXPECT_EQ(mb_embed(engine_, &request, nullptr, &num_values, nullptr), MB_USAGE);
  EXPECT_EQ(mb_embed(engine_, &request, &values, nullptr, nullptr), MB_USAGE);
  EXPECT_EQ(mb_embed_request_init(nullptr, sizeof(request), nullptr), MB_USAGE);
}

TEST_F(CState, StatsCountWhatWasDone) {
  mb_engine_stats stats = {};
  stats.size = sizeof(stats);
  ASSERT_EQ(mb_engine_get_stats(engine_, &stats, nullptr), MB_OK);
  EXPECT_EQ(stats.steps, 0);
  EXPECT_EQ(stats.generated_tokens, 0);
  generate(5);
  settle();
  ASSERT_EQ(mb_engine_get_stats(engine_, &stats, nullptr), MB_OK);
  EXPECT_EQ(stats.generated_tokens, 5);
  EXPECT_EQ(stats.prompt_tokens + stats.cached_tokens, static_cast<int64_t>(ids_.size()));
  EXPECT_GE(stats.steps, 5);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(mb_engine_get_stats(nullptr, &stats, nullptr), MB_USAGE);
  EXPECT_EQ(mb_engine_get_stats(engine_, nullptr, nullptr), MB_USAGE);
}

TEST_F(CState, ThePrefixCacheComesBack) {
  const markbase::testing::TempDir folder;
  const std::string file = folder.file("prefix");
  generate(100);  // more than a block of 64
  int64_t kept = -1;
  mb_error* error = nullptr;
  ASSERT_EQ(mb_save_prefix_cache(engine_, file.c_str(), &kept, &error), MB_OK)
      << mb_error_message(error);
  EXPECT_GT(kept, 0);
  mb_engine* other = load();
  int64_t restored = -1;
  ASSERT_EQ(mb_restore_prefix_cache(other, file.c_str(), &restored, &error), MB_OK)
      << mb_error_message(error);
  EXPECT_EQ(restored, kept);
  const std::string broken = folder.write("broken", "no such cache");
  EXPECT_EQ(mb_restore_prefix_cache(other, broken.c_str(), nullptr, nullptr), MB_BAD_INPUT);
  mb_engine_free(other);
  EXPECT_EQ(mb_save_prefix_cache(nullptr, file.c_str(), nullptr, nullptr), MB_USAGE);
  EXPECT_EQ(mb_save_prefix_cache(engine_, nullptr, nullptr, nullptr), MB_USAGE);
  EXPECT_EQ(mb_restore_prefix_cache(nullptr, file.c_str(), nullptr, nullptr), MB_USAGE);
  EXPECT_EQ(mb_restore_prefix_cache(engine_, nullptr, nullptr, nullptr), MB_USAGE);
}

}  // namespace
