// A model with everything it needs to run: files, tokenizer, backend, packed weights and a runner.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mapped_file.h"
#include "formats/weight_source.h"
#include "markbase/engine.h"
#include "markbase/options.h"
#include "markbase/result.h"
#include "model/config.h"
#include "model/text_weights.h"
#include "model/weight_map.h"
#include "runtime/backend_factory.h"
#include "runtime/mapped_weights.h"
#include "runtime/memory_plan.h"
#include "runtime/model_files.h"
#include "runtime/model_runner.h"
#include "runtime/repack_cache.h"

namespace markbase::runtime {

// Logits that prefill asks for many rows of are computed this many rows at a time.
inline constexpr int64_t kOutputRowsAtOnce = 32;

// Members stand in the order in which they are needed: what is above outlives what is below.
struct LoadedModel {
  ModelPath path;
  model::TextConfig config;
  bool has_tokenizer = false;  // otherwise `tokenizer` knows no text
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  GenerationConfig generation;
  BackendHandle backend;
  // Kept open where a table stays mapped while the model runs.
  std::unique_ptr<formats::WeightSource> source;
  std::optional<base::MappedFile> packed_file;  // where packed weights stay mapped
  MappedWeights mapped_weights;
  model::TextWeights weights;
  RunnerOptions runner_options;
  std::unique_ptr<ModelRunner> runner;
  MemoryPlan plan;
  double load_ms = 0;
  // Of everything that the bits of keys and values depend on: files, the whole configuration,
  // backend, arithmetic, build.
  uint64_t fingerprint = 0;
  std::function<void(const Progress&)> progress;  // of prompts, as EngineOptions says; may be empty

  // Another runner over the same weights: other capacities, an empty cache.
  Result<void> make_runner(const RunnerOptions& options);
};

// The runner that `options` asks for, its context and its pool apart: what is loaded and what is
// foretold are the same. Errors: kUsage.
Result<RunnerOptions> runner_options(const EngineOptions& options);

// Plans memory before the weights are read and may change what the runner is made for.
using PlanFunction =
    std::function<Result<MemoryPlan>(const model::TextConfig& config, const model::WeightMap& map,
                                     const ops::Backend& backend, RunnerOptions* runner)>;
// `plan`: empty for choose_context. Errors: as Engine::load, and those of `plan`.
Result<std::unique_ptr<LoadedModel>> load_model(const std::string& path,
                                                const EngineOptions& options,
                                                const PlanFunction& plan = {});

// The repack cache of this model, if the options allow one and there is one that fits. One that is
// of no use is a warning.
std::optional<RepackCache> open_repack_cache(const formats::WeightSource& source,
                                             const model::WeightMap& map,
                                             const BackendHandle& backend,
                                             const EngineOptions& options);

struct LoadedWeights {
  std::optional<base::MappedFile> packed_file;  // what the weights look into
  model::TextWeights weights;
};
// The weights where they lie in `cache`, or where there is none or it turns out to be damaged (a
// warning) every weight of the map packed, and kept in a cache where the options allow one.
// Progress is told in bytes; source pages are released as they are packed. Errors: kBadInput
// (unsupported type, broken scale, file truncated meanwhile), kOutOfMemory.
Result<LoadedWeights> load_weights(const formats::WeightSource& source,
                                   const model::TextConfig& config, const model::WeightMap& map,
                                   const BackendHandle& backend, const EngineOptions& options,
                                   std::optional<RepackCache> cache);

// Whether a tokenizer of so many tokens goes with an embedding table of so many rows. A few added
// tokens beyond the table are tolerated, as multimodal tokenizers have them: prompts that hold one
// are refused.
bool vocabulary_fits(int64_t tokens, int64_t table_rows);

// Checks the options that need no model. Errors: kUsage.
Result<void> check_options(const EngineOptions& options);

}  // namespace markbase::runtime
