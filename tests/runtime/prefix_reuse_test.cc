// A prompt that goes on from kept or shared keys and values gives the bytes that it gives alone, on
// every small decoder: windows smaller and larger than a block, prompts that reach beyond them,
// freed blocks full of NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "runtime/generation.h"
#include "support/random.h"
#include "support/random_decoder.h"
#include "support/temp_dir.h"

namespace markbase {
namespace {

using runtime::LoadedModel;
using runtime::ModelRunner;
using runtime::RunnerOptions;
using runtime::StepRow;
using testing::DecoderShape;
using testing::RandomDecoder;

constexpr int64_t kContext = 512;
constexpr int64_t kChunk = 96;

EngineOptions engine_for(BackendKind backend) {
  EngineOptions options;
  options.backend = backend;
  options.num_threads = 2;
  return options;
}

RunnerOptions runner_for(ops::KvType kv, int64_t kept_windows) {
  RunnerOptions runner;
  runner.kv = kv;
  runner.context_tokens = kContext;
  runner.prefill_chunk_tokens = kChunk;
  runner.max_sequences = 3;
  runner.max_output_rows = 32;
  runner.kept_windows = kept_windows;
  runner.kv_pool_tokens = 2 * kContext;
  runner.fill_freed_blocks = kept_windows > 0;
  return runner;
}

using Logits = std::vector<std::vector<float>>;

// Rows [begin, ids.size()) in chunks of any size; logits of those from `from` on.
Logits run(LoadedModel& model, int sequence, const std::vector<int32_t>& ids, int64_t begin,
           int64_t from, int64_t chunk = kChunk) {
  Logits logits;
  std::vector<StepRow> rows;
  const auto size = static_cast<int64_t>(ids.size());
  for (int64_t at = begin; at < size; at += chunk) {
    const int64_t count = std::min(chunk, size - at);
    runtime::fill_rows(std::span(ids).subspan(static_cast<size_t>(at), static_cast<size_t>(count)),
                       at, sequence, &rows);
    std::vector<int32_t> outputs;
    for (int64_t i = std::max<int64_t>(0, from - at); i < count; ++i) {
      outputs.push_back(static_cast<int32_t>(i));
    }
    const auto done = model.runner->run_for_logits(
        rows, outputs, nullptr, [&](int64_t, std::span<const float> row) -> Result<void> {
          logits.emplace_back(row.begin(), row.end());
          return {};
        });
    EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  }
  for (const auto& row : logits) {
    EXPECT_TRUE(std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); }));
  }
  return logits;
}

// Alone, in a fresh sequence.
Logits run_cold(LoadedModel& model, const std::vector<int32_t>& ids, int64_t from) {
  const int sequence = model.runner->open_sequence();
  Logits logits = run(model, sequence, ids, 0, from);
  model.runner->close_sequence(sequence);
  return logits;
}

class Texts {
 public:
  explicit Texts(uint64_t seed) : random_(seed) {}
  // The first `common` ids of `from`, then others.
  std::vector<int32_t> make(const std::vector<int32_t>& from, int64_t common, int64_t length) {
    std::vector<int32_t> ids(from.begin(), from.begin() + common);
    while (static_cast<int64_t>(ids.size()) < length) {
      ids.push_back(static_cast<int32_t>(random_.below(RandomDecoder::kVocab)));
    }
    return ids;
  }
  int64_t below(int64_t n) { return random_.below(n); }

 private:
  testing::Random random_;
};

class PrefixReuse
    : public ::testing::TestWithParam<std::tuple<DecoderShape, int64_t, BackendKind>> {
 protected:
  BackendKind backend() const { return std::get<2>(GetParam()); }
  std::unique_ptr<LoadedModel> load(int64_t kept_windows,
                                    ops::KvType kv = ops::KvType::kF16) const {
    const bool ref = backend() == BackendKind::kRef;
    return decoder_.load(engine_for(backend()),
                         runner_for(ref ? ops::KvType::kF32 : kv, kept_windows));
  }

  RandomDecoder decoder_{std::get<0>(GetParam()), quant::Format::kBF16, RandomDecoder::kVocab,
                         std::get<1>(GetParam())};
};

TEST_P(PrefixReuse, PromptsThatShareAPrefixAreAsCold) {
  for (const ops::KvType kv : {ops::KvType::kF16, ops::KvType::kQ8}) {
    if (backend() == BackendKind::kRef && kv == ops::KvType::kQ8) continue;
    const auto cold = load(0, kv);
    const auto warm = load(3, kv);
    ModelRunner& runner = *warm->runner;
    Texts texts(7 + static_cast<uint64_t>(std::get<1>(GetParam())));
    std::vector<int32_t> last = texts.make({}, 0, 300);
    int64_t adopted = 0;
    for (int round = 0; round < 8; ++round) {
      const auto known = static_cast<int64_t>(last.size());
      const int64_t common = round % 4 == 3 ? texts.below(known) : known - texts.below(20);
      const int64_t length = std::min(kContext, common + 1 + texts.below(120));
      const std::vector<int32_t> ids = texts.make(last, common, length);
      const int sequence = runner.open_sequence();
      const int64_t kept = runner.adopt_prefix(sequence, ids);
      adopted += kept;
      ASSERT_LT(kept, length);
      const int64_t from = std::max(kept, length - 5);
      EXPECT_TRUE(run(*warm, sequence, ids, kept, from, 1 + texts.below(kChunk)) ==
                  run_cold(*cold, ids, from))
          << "round " << round << ": " << kept << " of " << length << " adopted";
      runner.keep_prefix(sequence, ids);
      runner.close_sequence(sequence);
      last = round % 4 == 2 ? texts.make(ids, ids.size() / 3, 200) : ids;
    }
    EXPECT_GT(adopted, 0);
    EXPECT_EQ(runner.usage().used, 0);
  }
}

// While others run that hold, overwrite and free blocks.
TEST_P(PrefixReuse, SharedBlocksServeEverySequence) {
  const auto cold = load(0);
  const auto warm = load(3);
  ModelRunner& runner = *warm->runner;
  Texts texts(3);
  for (const int64_t end : {63, 64, 130, 257}) {
    const std::vector<int32_t> prompt = texts.make({}, 0, end);
    const std::vector<int32_t> first = texts.make(prompt, end, end + 90);
    const std::vector<int32_t> second = texts.make(prompt, end, end + 150);
    const int a = runner.open_sequence();
    const int b = runner.open_sequence();
    run(*warm, a, prompt, 0, end);
    const int64_t border = runner.share(a, b, end);
    EXPECT_EQ(border, end / 64 * 64);
    EXPECT_TRUE(run(*warm, a, first, end, end) == run_cold(*cold, first, end)) << end;
    runner.close_sequence(a);
    // Freed blocks are taken and overwritten while b still needs what it shared.
    const int c = runner.open_sequence();
    run(*warm, c, texts.make({}, 0, 200), 0, 200);
    EXPECT_TRUE(run(*warm, b, second, border, end, 17) == run_cold(*cold, second, end)) << end;
    runner.close_sequence(b);
    runner.close_sequence(c);
    EXPECT_EQ(runner.usage().used, 0);
  }
}

// A file of kept prefixes serves another process as well.
TEST_P(PrefixReuse, RestoredPrefixesAreAsCold) {
  const testing::TempDir folder;
  const auto cold = load(0);
  Texts texts(5);
  const std::vector<int32_t> ids = texts.make({}, 0, 330);
  {
    const auto first = load(3);
    const int sequence = first->runner->open_sequence();
    run(*first, sequence, ids, 0, 330);
    first->runner->keep_prefix(sequence, ids);
    const auto saved = first->runner->save_prefixes(folder.file("kept"), 1);
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(*saved, 320);
  }
  const auto warm = load(3);
  const auto restored = warm->runner->restore_prefixes(folder.file("kept"), 1);
  ASSERT_TRUE(restored.ok()) << restored.error().message;
  EXPECT_EQ(*restored, 320);
  const std::vector<int32_t> longer = texts.make(ids, 330, 400);
  const int sequence = warm->runner->open_sequence();
  ASSERT_EQ(warm->runner->adopt_prefix(sequence, longer), 320);
  EXPECT_TRUE(run(*warm, sequence, longer, 320, 320) == run_cold(*cold, longer, 320));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PrefixReuse,
    ::testing::Combine(::testing::ValuesIn(testing::kDecoderShapes),
                       ::testing::Values(int64_t{20}, int64_t{64}, int64_t{100}, int64_t{200}),
                       ::testing::Values(BackendKind::kCpu, BackendKind::kRef)),
    [](const auto& param_info) {
      return testing::decoder_shape_name(std::get<0>(param_info.param)) + "Window" +
             std::to_string(std::get<1>(param_info.param)) +
             (std::get<2>(param_info.param) == BackendKind::kRef ? "Ref" : "Cpu");
    });

}  // namespace
}  // namespace markbase
