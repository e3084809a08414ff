// The promises that hold for every Gemma 4 decoder, on small random ones: one result whatever the
// threads, the instruction set, the chunks, the neighbours, and whether rows that nobody asks for
// are left out.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/generation.h"
#include "runtime/logits.h"
#include "support/allocation_counter.h"
#include "support/random_decoder.h"
#include "support/row_counter.h"

namespace markbase {
namespace {

using runtime::LoadedModel;
using runtime::ModelRunner;
using runtime::RunnerOptions;
using runtime::StepRow;
using testing::DecoderShape;
using testing::RandomDecoder;

constexpr int64_t kWindow = RandomDecoder::kWindow;

EngineOptions options_for(BackendKind backend, int threads = 2) {
  EngineOptions options;
  options.backend = backend;
  options.num_threads = threads;
  return options;
}

RunnerOptions runner_for(int64_t chunk = 512, int64_t sequences = 1) {
  RunnerOptions runner;
  runner.context_tokens = 256;
  runner.prefill_chunk_tokens = chunk;
  runner.max_sequences = sequences;
  runner.max_output_rows = 32;
  return runner;
}

std::vector<int32_t> prompt(int64_t length, int64_t seed = 0) {
  std::vector<int32_t> ids = {2};
  for (int64_t i = 1; i < length; ++i) {
    ids.push_back(static_cast<int32_t>((i * 37 + seed * 101 + 5) % RandomDecoder::kVocab));
  }
  return ids;
}

std::vector<float> logits_of(LoadedModel& model, std::span<const int32_t> ids, bool last_only) {
  std::vector<float> out;
  const Result<void> done = runtime::stream_logits(
      model, ids, last_only, nullptr, [&](int64_t, std::span<const float> row) -> Result<void> {
        out.insert(out.end(), row.begin(), row.end());
        return {};
      });
  if (!done.ok()) ADD_FAILURE() << done.error().message;
  for (const float value : out) {
    if (!std::isfinite(value)) ADD_FAILURE() << "a logit that is not finite";
  }
  return out;
}

// Fills a fresh sequence with ids, in chunks.
int filled_sequence(LoadedModel& model, const std::vector<int32_t>& ids) {
  const int sequence = model.runner->open_sequence();
  const auto chunk = static_cast<size_t>(model.runner_options.prefill_chunk_tokens);
  std::vector<StepRow> rows;
  for (size_t begin = 0; begin < ids.size(); begin += chunk) {
    const size_t count = std::min(chunk, ids.size() - begin);
    runtime::fill_rows(std::span(ids).subspan(begin, count), static_cast<int64_t>(begin), sequence,
                       &rows);
    EXPECT_TRUE(model.runner->run(rows).ok());
  }
  return sequence;
}

// Logits of the rows, which are all asked for.
std::vector<std::vector<float>> step(LoadedModel& model, const std::vector<StepRow>& rows,
                                     const std::vector<int32_t>& outputs) {
  std::vector<std::vector<float>> logits(outputs.size());
  const auto done = model.runner->run_for_logits(
      rows, outputs, nullptr, [&](int64_t i, std::span<const float> row) -> Result<void> {
        logits[static_cast<size_t>(i)].assign(row.begin(), row.end());
        return {};
      });
  EXPECT_TRUE(done.ok());
  return logits;
}

class RandomDecoderTest : public ::testing::TestWithParam<std::tuple<DecoderShape, quant::Format>> {
 protected:
  RandomDecoder decoder_{std::get<0>(GetParam()), std::get<1>(GetParam())};
};

TEST_P(RandomDecoderTest, ThreadsAndInstructionSetsGiveTheSameBytes) {
  const std::vector<int32_t> ids = prompt(3 * kWindow + 5);
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    std::vector<float> first;
    for (const int threads : {1, 2, 3, 7}) {
      const auto model = decoder_.load(options_for(backend, threads), runner_for());
      const std::vector<float> got = logits_of(*model, ids, false);
      if (first.empty()) first = got;
      EXPECT_TRUE(got == first) << threads << " threads";
    }
    if (backend == BackendKind::kRef) continue;
    for (const runtime::CpuLevel& level : runtime::cpu_levels()) {
      if (!level.supported) continue;
      EngineOptions options = options_for(backend);
      options.cpu_isa = level.name;
      const auto model = decoder_.load(options, runner_for());
      EXPECT_TRUE(logits_of(*model, ids, false) == first) << level.name;
    }
  }
}

TEST_P(RandomDecoderTest, PrefillChunksGiveTheSameBytes) {
  const std::vector<int32_t> ids = prompt(4 * kWindow + 3);
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    std::vector<float> first;
    for (const int64_t chunk : {512, 64, 7, 1}) {
      const auto model = decoder_.load(options_for(backend), runner_for(chunk));
      const std::vector<float> got = logits_of(*model, ids, false);
      if (first.empty()) first = got;
      EXPECT_TRUE(got == first) << "chunk " << chunk;
    }
  }
}

TEST_P(RandomDecoderTest, SequencesTogetherAreEachAlone) {
  const auto ids_of = [](int s) { return prompt(3 + 2 * s, s); };
  const auto row_of = [&](int s, int sequence) {
    return StepRow{(s * 7 + 11) % 300, static_cast<int32_t>(ids_of(s).size()), sequence};
  };
  constexpr int kMost = 33;
  std::vector<std::vector<float>> alone;
  const auto single = decoder_.load(options_for(BackendKind::kCpu), runner_for());
  for (int s = 0; s < kMost; ++s) {
    const int sequence = filled_sequence(*single, ids_of(s));
    alone.push_back(step(*single, {row_of(s, sequence)}, {0})[0]);
    single->runner->close_sequence(sequence);
  }
  const auto expect_the_same_together = [&](const EngineOptions& options, int count) {
    const auto model = decoder_.load(options, runner_for(64, count));
    std::vector<StepRow> rows;
    std::vector<int32_t> outputs;
    for (int s = 0; s < count; ++s) {
      rows.push_back(row_of(s, filled_sequence(*model, ids_of(s))));
      outputs.push_back(s);
    }
    const auto together = step(*model, rows, outputs);
    for (int s = 0; s < count; ++s) {
      EXPECT_TRUE(together[static_cast<size_t>(s)] == alone[static_cast<size_t>(s)])
          << s << " of " << count << ", " << model->backend.description;
    }
  };
  for (const runtime::CpuLevel& level : runtime::cpu_levels()) {
    if (!level.supported) continue;
    EngineOptions options = options_for(BackendKind::kCpu);
    options.cpu_isa = level.name;
    for (const int count : {2, 8, kMost}) expect_the_same_together(options, count);
  }
}

// A chunk of one prompt, the end of another one and a decoding row in one step, some of which are
// asked for; then a step of all three, which finds everything in the cache.
std::vector<std::vector<float>> mixed_steps(const RandomDecoder& decoder, BackendKind backend,
                                            bool all_rows) {
  RunnerOptions runner = runner_for(96, 3);
  runner.run_all_rows = all_rows;
  const auto model = decoder.load(options_for(backend), runner);
  const int decoding = filled_sequence(*model, prompt(30, 1));
  const int ending = filled_sequence(*model, prompt(10, 2));
  const int begun = model->runner->open_sequence();
  std::vector<StepRow> rows = {{7, 30, decoding}};
  for (int32_t i = 0; i < 25; ++i) rows.push_back({3 + i, 10 + i, ending});
  for (int32_t i = 0; i < 40; ++i) rows.push_back({50 + i, i, begun});
  std::vector<std::vector<float>> logits = step(*model, rows, {0, 20, 25});
  for (auto& row : step(*model, {{9, 31, decoding}, {9, 35, ending}, {9, 40, begun}}, {0, 1, 2})) {
    logits.push_back(std::move(row));
  }
  return logits;
}

TEST_P(RandomDecoderTest, RowsThatAreAskedForAmongOthers) {
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    EXPECT_TRUE(mixed_steps(decoder_, backend, true) == mixed_steps(decoder_, backend, false));
  }
}

TEST_P(RandomDecoderTest, LeavingRowsOutChangesNothing) {
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    for (const int64_t chunk : {512, 16}) {
      RunnerOptions all = runner_for(chunk);
      all.run_all_rows = true;
      const auto full = decoder_.load(options_for(backend), all);
      const auto some = decoder_.load(options_for(backend), runner_for(chunk));
      for (const int64_t length :
           {int64_t{1}, kWindow - 1, kWindow, kWindow + 1, 3 * kWindow + 7}) {
        const std::vector<int32_t> ids = prompt(length);
        EXPECT_TRUE(logits_of(*some, ids, true) == logits_of(*full, ids, true)) << length;
        // Decoding goes on from what is in the cache.
        const int a = filled_sequence(*some, ids);
        const int b = filled_sequence(*full, ids);
        for (int32_t i = 0; i < 3; ++i) {
          const auto position = static_cast<int32_t>(length) + i;
          EXPECT_TRUE(step(*some, {{i + 5, position, a}}, {0}) ==
                      step(*full, {{i + 5, position, b}}, {0}));
        }
        some->runner->close_sequence(a);
        full->runner->close_sequence(b);
      }
    }
  }
}

TEST_P(RandomDecoderTest, RowsAreLeftOut) {
  constexpr int64_t kRows = 50;
  const auto layers = static_cast<int64_t>(decoder_.config().layers.size());
  int64_t last_owner = 0;
  for (int64_t i = 0; i < layers; ++i) {
    if (decoder_.config().layers[static_cast<size_t>(i)].owns_kv()) last_owner = i;
  }
  const auto model = decoder_.load(options_for(BackendKind::kRef), runner_for());
  const auto rows_that_attend = [&](bool all_rows, const std::vector<int32_t>& outputs) {
    RunnerOptions options = runner_for();
    options.run_all_rows = all_rows;
    testing::RowCounter counter(*model->backend.backend);
    auto runner = ModelRunner::create(model->config, model->weights, counter, options, {});
    EXPECT_TRUE(runner.ok());
    std::vector<StepRow> rows;
    runtime::fill_rows(prompt(kRows), 0, (*runner)->open_sequence(), &rows);
    const auto ignore = [](int64_t, std::span<const float>) -> Result<void> { return {}; };
    EXPECT_TRUE((*runner)->run_for_logits(rows, outputs, nullptr, ignore).ok());
    return counter.attention_rows();
  };
  EXPECT_EQ(rows_that_attend(true, {kRows - 1}), layers * kRows);
  EXPECT_EQ(rows_that_attend(false, {kRows - 1}), last_owner * kRows + (layers - last_owner));
  EXPECT_EQ(rows_that_attend(false, {}), last_owner * kRows);
}

TEST_P(RandomDecoderTest, TraceEndsInTheSameLogitsAndShowsWhatIsListed) {
  const std::vector<int32_t> ids = prompt(kWindow + 9);
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    const auto model = decoder_.load(options_for(backend), runner_for());
    std::vector<std::string> seen;
    const OnTrace on_trace = [&](const TraceTensor& tensor) -> Result<void> {
      seen.emplace_back(tensor.name);
      return {};
    };
    runtime::Tracer tracer(*model->backend.backend, "*", on_trace);
    std::vector<float> traced;
    ASSERT_TRUE(runtime::stream_logits(*model, ids, false, &tracer,
                                       [&](int64_t, std::span<const float> row) -> Result<void> {
                                         traced.insert(traced.end(), row.begin(), row.end());
                                         return {};
                                       })
                    .ok());
    EXPECT_TRUE(traced == logits_of(*model, ids, false));
    std::vector<std::string> listed;
    for (const auto& entry : model::trace_names(model->config)) listed.push_back(entry.name);
    seen.emplace_back("logits");
    EXPECT_EQ(seen, listed);
  }
}

TEST_P(RandomDecoderTest, StepsAllocateNothing) {
  if (!testing::AllocationCounter::available())
    GTEST_SKIP() << "allocations cannot be counted here";
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    const auto model = decoder_.load(options_for(backend), runner_for(32));
    ModelRunner& runner = *model->runner;
    const int sequence = runner.open_sequence();
    std::vector<StepRow> prefill;
    runtime::fill_rows(prompt(32), 0, sequence, &prefill);
    const ops::SamplingParams params{.temperature = 1.0F, .top_k = 40, .seed = 1};
    const int32_t output = 0;
    int32_t id = 2;
    std::vector<StepRow> rows(1);
    const auto decode = [&](int32_t position) {
      rows[0] = {id, position, sequence};
      return runner.run_and_sample(rows, {&output, 1}, {&params, 1}, {&id, 1}).ok();
    };
    ASSERT_TRUE(runner.run(prefill).ok() && decode(32));
    bool ok = true;
    const testing::AllocationCounter counter;
    ok = runner.run(prefill).ok();
    for (int32_t position = 32; position < 100; ++position) ok = decode(position) && ok;
    EXPECT_EQ(counter.count(), 0) << model->backend.description;
    EXPECT_TRUE(ok);
  }
}

// Keys and values of the layers that own them, and no others; a table for each kind of layer.
TEST_P(RandomDecoderTest, MemoryIsThatOfTheLayersThatOwnKeysAndValues) {
  const auto model = decoder_.load(options_for(BackendKind::kCpu), runner_for());
  const ops::Backend& backend = *model->backend.backend;
  RunnerOptions runner = runner_for(64);
  uint64_t expected = 2 * 4 * sizeof(int32_t);
  for (const model::LayerConfig& layer : decoder_.config().layers) {
    if (!layer.owns_kv()) continue;
    // 256 positions are 4 blocks; window and chunk touch at most 3.
    const uint64_t blocks = layer.sliding_window > 0 ? 3 : 4;
    expected +=
        blocks * backend.kv_block_bytes({runner.kv, layer.num_key_value_heads, layer.head_dim});
  }
  EXPECT_EQ(ModelRunner::kv_bytes(decoder_.config(), backend, runner), expected);
}

// Beside the cache only attention's scores grow with it, a double a thread and key in this backend:
// the angles of rope are those of a step's rows.
TEST_P(RandomDecoderTest, ALongContextTakesHardlyMoreScratch) {
  const auto model = decoder_.load(options_for(BackendKind::kRef, 2), runner_for());
  RunnerOptions runner = runner_for();
  const auto scratch = [&](int64_t context) {
    runner.context_tokens = context;
    return ModelRunner::scratch_bytes(decoder_.config(), *model->backend.backend, runner);
  };
  constexpr uint64_t kLong = 131072;
  EXPECT_LE(scratch(kLong) - scratch(256), 2 * sizeof(double) * kLong);
}

TEST_P(RandomDecoderTest, BytesReadForATokenLeaveOutTheTableAndIdleExperts) {
  const auto model = decoder_.load(options_for(BackendKind::kCpu), runner_for());
  const ops::Backend& backend = *model->backend.backend;
  uint64_t per_token = 0;
  uint64_t all = 0;
  for (const model::MappedWeight& weight : decoder_.map().weights) {
    if (weight.is_vector || weight.id == model::WeightId::kEmbedTokensPerLayer) continue;
    const uint64_t bytes = backend.packed_bytes(weight.view);
    all += bytes;
    if (weight.expert < decoder_.config().top_k_experts) per_token += bytes;
  }
  EXPECT_EQ(model->weights.total_bytes(), all);
  EXPECT_EQ(model->weights.bytes_per_token(), per_token);
  uint64_t vectors = 0;
  for (const model::MappedWeight& weight : decoder_.map().weights) {
    if (weight.is_vector) vectors += static_cast<uint64_t>(weight.view.cols) * sizeof(float);
  }
  const auto plan =
      runtime::plan_memory(decoder_.config(), decoder_.map(), backend, runner_for(), 0);
  EXPECT_EQ(plan.weight_bytes, all + vectors);
}

// The same 16-bit activations as everywhere leave the backends this close (tiny_model_test.cc).
TEST_P(RandomDecoderTest, BackendsAgree) {
  const std::vector<int32_t> ids = prompt(2 * kWindow);
  std::vector<std::vector<float>> logits;
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    RunnerOptions runner = runner_for();
    runner.kv = ops::KvType::kF32;
    logits.push_back(logits_of(*decoder_.load(options_for(backend), runner), ids, false));
  }
  // Rows in which an expert was chosen by a hair may differ by more.
  double total = 0;
  for (size_t i = 0; i < logits[0].size(); ++i) {
    total += std::abs(double{logits[0][i]} - double{logits[1][i]});
  }
  EXPECT_LE(total / static_cast<double>(logits[0].size()), 0.014);
}

INSTANTIATE_TEST_SUITE_P(Shapes, RandomDecoderTest,
                         ::testing::Combine(::testing::ValuesIn(testing::kDecoderShapes),
                                            ::testing::Values(quant::Format::kBF16,
                                                              quant::Format::kQ8_0,
                                                              quant::Format::kQ4_0)),
                         [](const auto& param_info) {
                           return testing::decoder_shape_name(std::get<0>(param_info.param)) +
                                  std::string(quant::format_name(std::get<1>(param_info.param)));
                         });

}  // namespace
}  // namespace markbase
