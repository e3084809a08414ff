// Requests that come and go at random, share their beginnings, are cancelled, and are thrown out
// where blocks run short: each gets the ids, and its tokens are drawn from the bytes of logits,
// that it gets alone. For every small random model.
//
// MARKBASE_TRAFFIC_SEEDS=n runs n seeds of 300 requests each with prefixes kept and not, on 1, 2
// and 4 threads; MARKBASE_TRAFFIC_SEED=n that seed alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/random.h"
#include "support/random_decoder.h"
#include "support/traffic.h"

namespace markbase {
namespace {

using runtime::Batch;
using runtime::LoadedModel;
using runtime::RunnerOptions;
using testing::DecoderShape;
using testing::RandomDecoder;
using testing::TrafficItem;
using testing::TrafficResult;

constexpr int64_t kContext = 1536;

int64_t number_of(const char* variable, int64_t fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::atoll(text);
}

RunnerOptions runner_of(int64_t max_sequences, int64_t chunk, bool keep_prefixes) {
  RunnerOptions runner;
  runner.context_tokens = kContext;
  runner.prefill_chunk_tokens = chunk;
  runner.max_sequences = max_sequences;
  // One context and a quarter for all: they throw each other out.
  runner.kv_pool_tokens = max_sequences == 1 ? 0 : kContext + 384;
  runner.kept_windows = keep_prefixes ? 6 : 0;
  runner.fill_freed_blocks = true;
  return runner;
}

class RandomTraffic : public ::testing::TestWithParam<DecoderShape> {
 protected:
  // A window within a block and one that spans several.
  static RandomDecoder decoder(int64_t window) {
    return RandomDecoder(GetParam(), quant::Format::kQ8_0, RandomDecoder::kVocab, window);
  }

  static std::unique_ptr<LoadedModel> load(const RandomDecoder& decoder, int threads,
                                           const RunnerOptions& runner) {
    EngineOptions options;
    options.backend = BackendKind::kCpu;
    options.num_threads = threads;
    return decoder.load(options, runner);
  }

  static std::vector<TrafficItem> traffic(uint64_t seed, int64_t num_requests) {
    return testing::random_traffic(seed, {.num_requests = num_requests,
                                          .most_prompt_tokens = 1500,
                                          .most_new_tokens = 24,
                                          .vocab_size = RandomDecoder::kVocab});
  }

  // One after the other, in a batch of one, nobody cancelled.
  static std::vector<TrafficResult> alone(const RandomDecoder& decoder,
                                          const std::vector<TrafficItem>& items) {
    const auto model = load(decoder, 1, runner_of(1, 512, false));
    Batch batch(*model);
    std::vector<TrafficResult> results;
    for (TrafficItem item : items) {
      item.arrives_at = 0;
      item.cancel_after = -1;
      results.push_back(std::move(testing::run_traffic(batch, {item}).front()));
    }
    return results;
  }

  struct Setting {
    int threads = 1;
    int64_t max_sequences = 8;
    int64_t chunk = 64;
    bool keep_prefixes = true;
  };
  static EngineStats compare(const RandomDecoder& decoder, const std::vector<TrafficItem>& items,
                             const std::vector<TrafficResult>& expected, const Setting& s) {
    const auto model =
        load(decoder, s.threads, runner_of(s.max_sequences, s.chunk, s.keep_prefixes));
    Batch batch(*model);
    const std::vector<TrafficResult> got = testing::run_traffic(batch, items);
    for (size_t i = 0; i < items.size(); ++i) {
      EXPECT_EQ(testing::difference(items[i], got[i], expected[i]), "")
          << "request " << i << ", " << items[i].request.ids.size() << " ids, threads " << s.threads
          << ", chunk " << s.chunk << ", prefixes kept: " << s.keep_prefixes;
    }
    const EngineStats stats = batch.stats();
    EXPECT_EQ(stats.running + stats.waiting, 0);
    EXPECT_EQ(stats.kv_blocks_used, 0) << "blocks are held by nobody";
    return stats;
  }

  static Setting random_setting(uint64_t seed) {
    testing::Random random(seed);
    constexpr int64_t kChunks[] = {1, 7, 64, 100, 512};
    return {.threads = 1 << random.below(3),
            .max_sequences = 2 + random.below(11),
            .chunk = kChunks[random.below(5)],
            .keep_prefixes = random.below(4) != 0};
  }
};

TEST_P(RandomTraffic, EveryRequestGetsWhatItGetsAlone) {
  const int64_t only = number_of("MARKBASE_TRAFFIC_SEED", -1);
  const int64_t num_seeds = only >= 0 ? 1 : number_of("MARKBASE_TRAFFIC_SEEDS", 0);
  const bool brief = num_seeds == 0;
  int64_t preemptions = 0;
  int64_t cached_tokens = 0;
  for (int64_t i = 0; i < std::max<int64_t>(num_seeds, 1); ++i) {
    const auto seed = static_cast<uint64_t>(only >= 0 ? only : i);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomDecoder model = decoder(seed % 2 == 0 ? 100 : RandomDecoder::kWindow);
    const std::vector<TrafficItem> items = traffic(seed, brief ? 60 : 300);
    const std::vector<TrafficResult> expected = alone(model, items);
    std::vector<Setting> settings;
    if (brief) {
      for (const bool keep : {false, true}) {
        settings.push_back(
            {.threads = keep ? 2 : 1, .chunk = keep ? 64 : 100, .keep_prefixes = keep});
      }
    } else {
      for (const int threads : {1, 2, 4}) {
        for (const bool keep : {false, true}) {
          Setting setting = random_setting(seed * 31 + static_cast<uint64_t>(settings.size()));
          setting.threads = threads;
          setting.keep_prefixes = keep;
          settings.push_back(setting);
        }
      }
    }
    for (const Setting& setting : settings) {
      const EngineStats stats = compare(model, items, expected, setting);
      preemptions += stats.preemptions;
      cached_tokens += stats.cached_tokens;
    }
    if (::testing::Test::HasFailure()) break;
  }
  EXPECT_GT(preemptions, 0) << "nothing was thrown out: the pool is too large for this test";
  EXPECT_GT(cached_tokens, 0) << "no prefix was found again";
}

INSTANTIATE_TEST_SUITE_P(AllShapes, RandomTraffic, ::testing::ValuesIn(testing::kDecoderShapes),
                         [](const auto& info) { return testing::decoder_shape_name(info.param); });

}  // namespace
}  // namespace markbase
