// Embeddings: hidden states against transformers' last_hidden_state (which is what follows the
// final norm), and that a vector does not depend on how it was computed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "formats/safetensors/safetensors_file.h"
#include "runtime/batch.h"
#include "runtime/embedding.h"
#include "runtime/generation.h"
#include "runtime/loaded_model.h"
#include "support/gemma4_golden.h"
#include "support/golden.h"
#include "support/random_decoder.h"

namespace markbase {
namespace {

using runtime::Batch;
using runtime::LoadedModel;
using runtime::ModelRunner;
using runtime::Pooler;
using runtime::RequestState;
using runtime::RunnerOptions;
using runtime::StepRow;
using testing::DecoderShape;
using testing::golden_path;
using testing::RandomDecoder;
using testing::read_npy;

// As for the intermediates of the tests of Gemma 4 (golden_gemma4_test.cc): what one float32 run
// may differ from another, per rms of the tensor.
constexpr double kReferenceShare = 2e-4;

EngineOptions options_for(BackendKind backend, int64_t chunk = 512, int threads = 2) {
  EngineOptions options;
  options.backend = backend;
  options.num_threads = threads;
  options.prefill_chunk_tokens = chunk;
  return options;
}

std::unique_ptr<LoadedModel> load(const std::string& path, const EngineOptions& options) {
  auto model = runtime::load_model(path, options);
  if (!model.ok()) {
    ADD_FAILURE() << model.error().message;
    std::abort();
  }
  return *std::move(model);
}

std::shared_ptr<RequestState> pooling_request(const LoadedModel& model,
                                              const std::vector<int32_t>& ids, Pooling pooling) {
  return std::make_shared<RequestState>(ids, Pooler(pooling, model.config.hidden_size),
                                        std::thread::id());
}

std::vector<float> embed(LoadedModel& model, const std::vector<int32_t>& ids, Pooling pooling,
                         bool normalise) {
  Batch batch(model);
  const auto request = pooling_request(model, ids, pooling);
  batch.add(request);
  while (batch.step()) {
  }
  EXPECT_TRUE(request->wait().ok());
  const Result<std::vector<float>> vector = request->pooler->vector(normalise);
  EXPECT_TRUE(vector.ok());
  return *vector;
}

double rms(std::span<const float> values) {
  double squares = 0;
  for (const float v : values) squares += double{v} * double{v};
  return std::sqrt(squares / static_cast<double>(values.size()));
}

void expect_close(std::span<const float> got, std::span<const double> expected, double within,
                  const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(double{got[i]}, expected[i], within) << what << ", " << i;
  }
}

// --- against transformers ---

class TinyEmbedding : public ::testing::TestWithParam<const char*> {
 protected:
  std::string name() const { return GetParam(); }
  std::vector<int32_t> ids() const {
    return read_npy<int32_t>(golden_path(name() + "/ids.npy")).values;
  }
};

TEST_P(TinyEmbedding, PooledStatesOfTransformers) {
  const auto hidden = read_npy<float>(golden_path(name() + "/trace/final_norm.npy"));
  const auto num_rows = static_cast<size_t>(hidden.shape[0]);
  const auto width = static_cast<size_t>(hidden.shape[1]);
  ASSERT_EQ(num_rows, ids().size());
  std::vector<double> mean(width);
  std::vector<double> last(width);
  for (size_t t = 0; t < num_rows; ++t) {
    for (size_t i = 0; i < width; ++i) {
      last[i] = double{hidden.values[t * width + i]};
      mean[i] += last[i] / static_cast<double>(num_rows);
    }
  }
  const auto unit = [](std::vector<double> y) {
    double squares = 0;
    for (const double v : y) squares += v * v;
    for (double& v : y) v /= std::sqrt(squares);
    return y;
  };
  const double within = kReferenceShare * rms(hidden.values);
  double length = 0;
  for (const double v : mean) length += v * v;
  length = std::sqrt(length);
  // The error of an element, and of the length that it is divided by.
  const double unit_within = within * (1 + std::sqrt(static_cast<double>(width))) / length;
  for (const int64_t chunk : {512, 7}) {
    const auto model = load(golden_path(name()), options_for(BackendKind::kRef, chunk));
    expect_close(embed(*model, ids(), Pooling::kMean, false), mean, within, "mean");
    expect_close(embed(*model, ids(), Pooling::kLast, false), last, within, "last");
    expect_close(embed(*model, ids(), Pooling::kMean, true), unit(mean), unit_within,
                 "mean, normalised");
    const std::vector<float> vector = embed(*model, ids(), Pooling::kLast, true);
    EXPECT_NEAR(rms(vector) * std::sqrt(static_cast<double>(width)), 1.0, 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, TinyEmbedding,
                         ::testing::Values("tiny_gemma3_f32", "tiny_gemma3_bf16"));

// Of Gemma 4 the goldens hold the final norm at some positions.
TEST(GoldenGemma4Embedding, HiddenStatesOfTransformers) {
  int num_goldens = 0;
  for (const std::string& name : testing::gemma4_goldens(golden_path("gemma4"))) {
    const testing::Gemma4Golden golden(golden_path("gemma4"), name);
    if (!golden.has("trace/trace.safetensors")) continue;
    ++num_goldens;
    auto file = formats::SafetensorsFile::open(golden.path("trace/trace.safetensors"));
    ASSERT_TRUE(file.ok());
    std::vector<int32_t> kept;
    std::vector<float> expected;
    for (const formats::TensorInfo& info : file->tensors()) {
      const auto copy = [&](auto& into) {
        into.resize(info.data.size() / sizeof(into[0]));
        std::memcpy(into.data(), info.data.data(), info.data.size());
      };
      if (info.name == "rows") copy(kept);
      if (info.name == "final_norm") copy(expected);
    }
    ASSERT_FALSE(kept.empty() || expected.empty());
    const auto model = load(golden.path(""), options_for(BackendKind::kRef));
    std::vector<StepRow> rows;
    runtime::fill_rows(golden.ids(), 0, model->runner->open_sequence(), &rows);
    const size_t width = expected.size() / kept.size();
    const double within = kReferenceShare * rms(expected);
    size_t num_seen = 0;
    const auto on_row = [&](int64_t i, std::span<const float> row) -> Result<void> {
      const auto first = expected.begin() + static_cast<std::ptrdiff_t>(width) * i;
      expect_close(row, std::vector<double>(first, first + static_cast<std::ptrdiff_t>(width)),
                   within, name);
      ++num_seen;
      return {};
    };
    ASSERT_TRUE(model->runner->run_for_hidden(rows, kept, on_row).ok());
    EXPECT_EQ(num_seen, kept.size());
  }
  EXPECT_GT(num_goldens, 2);
}

// --- whatever the chunks, threads and neighbours ---

std::vector<int32_t> prompt(int64_t length, int64_t seed = 0) {
  std::vector<int32_t> ids = {2};
  for (int64_t i = 1; i < length; ++i) {
    ids.push_back(static_cast<int32_t>((i * 37 + seed * 101 + 5) % RandomDecoder::kVocab));
  }
  return ids;
}

RunnerOptions runner_for(int64_t chunk, int64_t sequences = 1) {
  RunnerOptions runner;
  runner.context_tokens = 256;
  runner.prefill_chunk_tokens = chunk;
  runner.max_sequences = sequences;
  runner.max_output_rows = 8;  // fewer than a chunk has
  return runner;
}

class RandomEmbedding
    : public ::testing::TestWithParam<std::tuple<DecoderShape, BackendKind, Pooling>> {
 protected:
  BackendKind backend() const { return std::get<1>(GetParam()); }
  Pooling pooling() const { return std::get<2>(GetParam()); }
  RandomDecoder decoder_{std::get<0>(GetParam()), quant::Format::kQ8_0};
  std::vector<int32_t> ids_ = prompt(4 * RandomDecoder::kWindow + 3);
};

TEST_P(RandomEmbedding, ChunksAndThreadsGiveTheSameBits) {
  std::vector<float> first;
  for (const int64_t chunk : {512, 64, 7, 1}) {
    const int threads = chunk == 64 ? 5 : 1;
    const auto model = decoder_.load(options_for(backend(), 512, threads), runner_for(chunk));
    const std::vector<float> got = embed(*model, ids_, pooling(), true);
    if (first.empty()) first = got;
    EXPECT_TRUE(got == first) << "chunk " << chunk;
  }
}

TEST_P(RandomEmbedding, StepsOfOthersBetweenTheChunksChangeNothing) {
  const auto alone = decoder_.load(options_for(backend()), runner_for(16));
  const std::vector<float> expected = embed(*alone, ids_, pooling(), false);
  const auto model = decoder_.load(options_for(backend()), runner_for(16, 3));
  Batch batch(*model);
  Request talk;
  talk.ids = {7};
  talk.max_tokens = 40;
  talk.ignore_eos = true;
  const auto talker = std::make_shared<RequestState>(talk, talk.ids, OnEvent(), std::thread::id());
  const auto request = pooling_request(*model, ids_, pooling());
  batch.add(talker);
  batch.add(request);
  while (batch.step()) {
  }
  EXPECT_EQ(talker->wait()->ids.size(), 40U);
  ASSERT_TRUE(request->wait().ok());
  EXPECT_TRUE(*request->pooler->vector(false) == expected);
}

// Rows that nobody asks for are left out of the last layers.
TEST_P(RandomEmbedding, SomeRowsAreThoseAmongAll) {
  const auto model = decoder_.load(options_for(backend()), runner_for(512, 2));
  ModelRunner& runner = *model->runner;
  const auto states_of = [&](const std::vector<int32_t>& outputs) {
    const int sequence = runner.open_sequence();
    std::vector<StepRow> rows;
    runtime::fill_rows(ids_, 0, sequence, &rows);
    std::vector<std::vector<float>> states(outputs.size());
    const auto keep = [&](int64_t i, std::span<const float> row) -> Result<void> {
      states[static_cast<size_t>(i)].assign(row.begin(), row.end());
      return {};
    };
    EXPECT_TRUE(runner.run_for_hidden(rows, outputs, keep).ok());
    runner.close_sequence(sequence);
    return states;
  };
  std::vector<int32_t> all;
  for (size_t i = 0; i < ids_.size(); ++i) all.push_back(static_cast<int32_t>(i));
  const auto full = states_of(all);
  const std::vector<int32_t> some = {0, 9, 40, static_cast<int32_t>(ids_.size()) - 1};
  const auto part = states_of(some);
  for (size_t i = 0; i < some.size(); ++i) {
    EXPECT_EQ(part[i].size(), static_cast<size_t>(model->config.hidden_size));
    EXPECT_TRUE(part[i] == full[static_cast<size_t>(some[i])]) << some[i];
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, RandomEmbedding,
    ::testing::Combine(::testing::Values(DecoderShape::kPerLayerInputs, DecoderShape::kExperts),
                       ::testing::Values(BackendKind::kRef, BackendKind::kCpu),
                       ::testing::Values(Pooling::kMean, Pooling::kLast)),
    [](const auto& param_info) {
      return testing::decoder_shape_name(std::get<0>(param_info.param)) +
             (std::get<1>(param_info.param) == BackendKind::kRef ? "Ref" : "Cpu") +
             (std::get<2>(param_info.param) == Pooling::kMean ? "Mean" : "Last");
    });

// --- pooling alone ---

TEST(Pooler, Table) {
  Pooler mean(Pooling::kMean, 2);
  Pooler last(Pooling::kLast, 2);
  for (const auto& state : {std::vector<float>{2, 0}, std::vector<float>{4, 8}}) {
    mean.add(state);
    last.add(state);
  }
  EXPECT_EQ(*mean.vector(false), (std::vector<float>{3, 4}));
  EXPECT_EQ(*mean.vector(true), (std::vector<float>{0.6F, 0.8F}));
  EXPECT_EQ(*last.vector(false), (std::vector<float>{4, 8}));
}

TEST(Pooler, RefusesWhatIsNoVector) {
  Pooler broken(Pooling::kMean, 2);
  broken.add(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()});
  for (const bool normalise : {false, true}) {
    const auto vector = broken.vector(normalise);
    ASSERT_FALSE(vector.ok());
    EXPECT_EQ(vector.error().code, ErrorCode::kFailed);
  }
  Pooler zero(Pooling::kLast, 2);
  zero.add(std::vector<float>{0, 0});
  EXPECT_EQ(*zero.vector(false), (std::vector<float>{0, 0}));
  EXPECT_FALSE(zero.vector(true).ok());
}

}  // namespace
}  // namespace markbase
