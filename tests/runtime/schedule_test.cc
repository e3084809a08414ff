// Requests that share steps at random get, each, the bytes that they get alone: whoever else is in
// the batch, wherever their rows stand, however their prompt is cut, on any number of threads and
// any instruction set. For every small model that the tests have.
//
// A failure prints its seed and schedule; MARKBASE_SCHEDULE_SEED=n runs that seed alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/logits.h"
#include "support/gemma4_golden.h"
#include "support/golden.h"
#include "support/random.h"
#include "support/random_decoder.h"
#include "support/schedule.h"

namespace markbase {
namespace {

using runtime::LoadedModel;
using runtime::RunnerOptions;
using runtime::StepRow;
using testing::DecoderShape;
using testing::RandomDecoder;
using testing::Schedule;

using Rows = std::vector<std::vector<float>>;  // logits of some positions

// A random decoder, or a golden checkpoint by its path.
struct Subject {
  std::string name;
  std::string path;  // empty: the decoder of shape and format
  DecoderShape shape = {};
  quant::Format format = {};
};

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (const DecoderShape shape : testing::kDecoderShapes) {
    for (const quant::Format format :
         {quant::Format::kBF16, quant::Format::kQ8_0, quant::Format::kQ4_0}) {
      const std::string format_name(quant::format_name(format));
      all.push_back({testing::decoder_shape_name(shape) + format_name, "", shape, format});
    }
  }
  for (const std::string& name : testing::gemma4_goldens(testing::gemma4_folder())) {
    const testing::Gemma4Golden golden(testing::gemma4_folder(), name);
    all.push_back({"gemma4_" + name, golden.path(golden.has("model.gguf") ? "model.gguf" : "")});
  }
  all.push_back({"gemma3_bf16", testing::golden_path("tiny_gemma3_bf16")});
  all.push_back({"gemma3_gguf", testing::golden_path("tiny_gemma3_gguf/tiny.gguf")});
  for (Subject& subject : all) std::replace(subject.name.begin(), subject.name.end(), '-', '_');
  std::sort(all.begin(), all.end(),
            [](const Subject& a, const Subject& b) { return a.name < b.name; });
  return all;
}

class RandomSchedule : public ::testing::TestWithParam<Subject> {
 protected:
  RandomSchedule() {
    if (GetParam().path.empty()) decoder_.emplace(GetParam().shape, GetParam().format);
  }

  std::unique_ptr<LoadedModel> load(const EngineOptions& options,
                                    const RunnerOptions& runner) const {
    if (decoder_) return decoder_->load(options, runner);
    auto model = runtime::load_model(GetParam().path, options);
    if (!model.ok() || !(*model)->make_runner(runner).ok()) {
      ADD_FAILURE() << (model.ok() ? "no runner" : model.error().message);
      std::abort();
    }
    return *std::move(model);
  }

 private:
  std::optional<RandomDecoder> decoder_;
};

RunnerOptions alone_runner(ops::KvType kv) {
  RunnerOptions runner;
  runner.kv = kv;
  runner.context_tokens = 256;
  runner.prefill_chunk_tokens = 256;
  runner.max_output_rows = runtime::kOutputRowsAtOnce;
  return runner;
}

int64_t window_of(const model::TextConfig& config) {
  for (const model::LayerConfig& layer : config.layers) {
    if (layer.sliding_window > 0) return layer.sliding_window;
  }
  ADD_FAILURE() << "no layer has a window";
  return 1;
}

// In one step and one sequence: logits of every position.
Rows run_alone(LoadedModel& model, std::span<const int32_t> ids) {
  Rows rows;
  const auto done = runtime::stream_logits(
      model, ids, false, nullptr, [&](int64_t, std::span<const float> row) -> Result<void> {
        rows.emplace_back(row.begin(), row.end());
        return {};
      });
  EXPECT_TRUE(done.ok());
  return rows;
}

bool same_bytes(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// Runs a schedule and compares what it gives with `alone`, by request and position. "": the same.
class ScheduleRun {
 public:
  ScheduleRun(runtime::ModelRunner& runner, const Schedule& schedule,
              const std::vector<Rows>& alone)
      : runner_(runner), schedule_(schedule), alone_(alone), slots_(schedule.ids.size(), -1) {}

  std::string compare() {
    for (size_t i = 0; i < schedule_.steps.size(); ++i) {
      const std::string difference = run_step(schedule_.steps[i]);
      if (!difference.empty()) return fmt::format("step {}: {}", i, difference);
    }
    return {};
  }
  int64_t compared() const { return compared_; }

 private:
  std::string run_step(const testing::ScheduleStep& step) {
    for (const int request : step.leaves) runner_.close_sequence(slot(request));
    for (const int request : step.enters) {
      slot(request) = runner_.open_sequence();
      if (slot(request) < 0) return fmt::format("no room for request {}", request);
    }
    if (step.pieces.empty()) return {};
    rows_.clear();
    requests_.clear();
    for (const testing::SchedulePiece& piece : step.pieces) {
      for (int64_t p = piece.begin; p < piece.begin + piece.count; ++p) {
        rows_.push_back({schedule_.ids[static_cast<size_t>(piece.request)][static_cast<size_t>(p)],
                         static_cast<int32_t>(p), slot(piece.request)});
        requests_.push_back(piece.request);
      }
    }
    std::string difference;
    const auto done = runner_.run_for_logits(
        rows_, step.outputs, nullptr, [&](int64_t i, std::span<const float> got) -> Result<void> {
          const auto row = static_cast<size_t>(step.outputs[static_cast<size_t>(i)]);
          const auto position = static_cast<size_t>(rows_[row].position);
          const auto& expected = alone_[static_cast<size_t>(requests_[row])][position];
          ++compared_;
          if (difference.empty() && !same_bytes(got, expected)) {
            difference = fmt::format("request {} at position {} (row {}) differs", requests_[row],
                                     position, row);
          }
          return {};
        });
    return done.ok() ? difference : done.error().message;
  }
  int& slot(int request) { return slots_[static_cast<size_t>(request)]; }

  runtime::ModelRunner& runner_;
  const Schedule& schedule_;
  const std::vector<Rows>& alone_;
  std::vector<int> slots_;
  std::vector<StepRow> rows_;
  std::vector<int> requests_;  // of rows_
  int64_t compared_ = 0;
};

std::vector<uint64_t> seeds(std::initializer_list<uint64_t> usual) {
  const char* one = std::getenv("MARKBASE_SCHEDULE_SEED");
  if (one == nullptr) return usual;
  return {std::strtoull(one, nullptr, 10)};
}

// Threads, instruction set and cuts of the batch, cache type of both, by the seed and the model.
struct Choice {
  EngineOptions options;
  RunnerOptions runner;
};
Choice choose(uint64_t seed, const std::string& name, BackendKind backend, int64_t max_sequences) {
  uint64_t mixed = seed * 1000 + static_cast<uint64_t>(max_sequences);
  for (const char c : name) mixed = mixed * 31 + static_cast<unsigned char>(c);
  testing::Random random(mixed);
  constexpr ops::KvType kTypes[] = {ops::KvType::kF16, ops::KvType::kBF16, ops::KvType::kF32,
                                    ops::KvType::kQ8};
  constexpr int64_t kChunks[] = {1, 5, 24, 64, 200};
  Choice choice;
  choice.options.backend = backend;
  choice.options.num_threads = 1 + static_cast<int>(random.below(4));
  choice.runner = alone_runner(kTypes[random.below(4)]);
  choice.runner.max_sequences = max_sequences;
  choice.runner.prefill_chunk_tokens = kChunks[random.below(5)];
  std::vector<std::string> levels;
  for (const runtime::CpuLevel& level : runtime::cpu_levels()) {
    if (level.supported) levels.push_back(level.name);
  }
  const auto level = static_cast<size_t>(random.below(static_cast<int64_t>(levels.size())));
  if (backend == BackendKind::kCpu) {
    choice.options.cpu_isa = levels[level];
    choice.options.activations = random.below(4) == 0 ? "q8" : "16";
  }
  return choice;
}

TEST_P(RandomSchedule, EveryRequestIsAsAlone) {
  for (const BackendKind backend : {BackendKind::kCpu, BackendKind::kRef}) {
    for (const int64_t max_sequences : {2, 8, 33}) {
      // The reference backend is slow: one small batch.
      if (backend == BackendKind::kRef && max_sequences != 8) continue;
      for (const uint64_t seed : backend == BackendKind::kRef ? seeds({3}) : seeds({1, 2})) {
        const Choice choice = choose(seed, GetParam().name, backend, max_sequences);
        EngineOptions alone_options;
        alone_options.backend = backend;
        alone_options.num_threads = 2;
        alone_options.activations = choice.options.activations;
        const auto single = load(alone_options, alone_runner(choice.runner.kv));
        const Schedule schedule =
            testing::random_schedule(seed, {.max_sequences = max_sequences,
                                            .chunk_tokens = choice.runner.prefill_chunk_tokens,
                                            .context_tokens = choice.runner.context_tokens,
                                            .window = window_of(single->config),
                                            .vocab_size = single->config.vocab_size});
        EXPECT_EQ(schedule.largest_batch(), max_sequences);
        std::vector<Rows> alone;
        for (const auto& ids : schedule.ids) alone.push_back(run_alone(*single, ids));
        const auto shared = load(choice.options, choice.runner);
        ScheduleRun run(*shared->runner, schedule, alone);
        const std::string difference = run.compare();
        ASSERT_TRUE(difference.empty())
            << difference << "\n"
            << shared->backend.description << ", " << ops::kv_type_name(choice.runner.kv)
            << " cache, activations " << choice.options.activations << "\n"
            << schedule.text();
        EXPECT_GT(run.compared(), 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RandomSchedule, ::testing::ValuesIn(subjects()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace markbase
