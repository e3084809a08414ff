#include "runtime/loaded_model.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "base/error.h"
#include "formats/broken.h"
#include "markbase/version.h"
#include "runtime/chat_prompt.h"
#include "runtime/content_hash.h"
#include "runtime/ids_only_tokenizer.h"
#include "runtime/repack_cache.h"

namespace markbase::runtime {
namespace {

std::string count_text(int64_t tensors) {
  return tensors == 1 ? "1 tensor is" : fmt::format("{} tensors are", tensors);
}

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

Result<void> check_vocabulary(const LoadedModel& model) {
  const int64_t tokens = model.tokenizer->vocab_size();
  if (vocabulary_fits(tokens, model.config.vocab_size)) return {};
  return base::bad_input("{}: expected at most {} tokens (rows of the embedding table), got {}",
                         model.tokenizer->source(), model.config.vocab_size, tokens);
}

// What verify calls a fault though the decoder has all it needs: said, and gone on without.
void warn_of_leftovers(const formats::WeightSource& source, const model::TextConfig& config,
                       const model::WeightMap& map, const EngineOptions& options) {
  if (!options.message) return;
  for (const std::string& remark : source.remarks()) options.message(Severity::kWarning, remark);
  const auto foreign = [](const model::UnusedTensor& tensor) { return !tensor.known; };
  const auto first = std::ranges::find_if(map.unused, foreign);
  if (first == map.unused.end()) return;
  options.message(
      Severity::kWarning,
      fmt::format("{}: {} left aside that {} has no place for, {} first", source.files().front(),
                  count_text(std::ranges::count_if(map.unused, foreign)), config.model_type,
                  formats::shown(first->name)));
}

std::string chat_format_text(const LoadedModel& model) {
  if (!model.tokenizer->chat_template().empty())
    return "template " + chat_template_place(model.path);
  return has_chat_format(*model.tokenizer) ? "the one of its family, the files carry no template"
                                           : "none";
}

std::string stop_ids_text(const LoadedModel& model) {
  std::vector<std::string> stops;
  for (const int32_t id : model.generation.stop_ids)
    stops.push_back(fmt::format("{} {}", id, model.tokenizer->piece(id)));
  return stops.empty() ? "none" : fmt::format("{}", fmt::join(stops, ", "));
}

uint64_t fingerprint_of(const formats::WeightSource& source, const model::WeightMap& map,
                        const LoadedModel& model, const EngineOptions& options) {
  const std::string activations = options.activations == "auto" ? "16" : options.activations;
  const std::string build = fmt::format("{} {} {} {}", model.backend.backend->name(), activations,
                                        MARKBASE_VERSION, MARKBASE_COMMIT);
  // Weights alone do not make keys and values: scales, angles, windows and norms come from the
  // configuration. All of it counts, so that nothing in it can be forgotten.
  const std::string config = base::dump_json(source.config());
  const RepackKey key = repack_key(source, map, build);
  return content_hash(std::as_bytes(std::span(key)),
                      content_hash(std::as_bytes(std::span(config))));
}

// What was chosen and where it comes from.
void explain(const LoadedModel& model, const EngineOptions& options) {
  if (!options.message) return;
  const auto say = [&](const std::string& text) { options.message(Severity::kDebug, text); };
  const RunnerOptions& runner = model.runner_options;
  const SamplingOptions& s = model.generation.sampling;
  say(fmt::format("model: {}, {}, loaded in {:.0f} ms", model.path.path, model.config.model_type,
                  model.load_ms));
  say("backend: " + model.backend.description);
  say(fmt::format("KV cache: {}, {} tokens; prefill in chunks of {}", ops::kv_type_name(runner.kv),
                  runner.context_tokens, runner.prefill_chunk_tokens));
  say("chat format: " + chat_format_text(model));
  say("stop ids: " + stop_ids_text(model));
  say(
      fmt::format("sampling of the model: temperature {}, top-k {}, top-p {}, min-p {}, repetition "
                  "penalty {}",
                  s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty));
}

}  // namespace

bool vocabulary_fits(int64_t tokens, int64_t table_rows) {
  constexpr int64_t kTolerated = 64;
  return tokens <= table_rows + kTolerated;
}

Result<void> check_options(const EngineOptions& options) {
  // The upper end is the model's own.
  if (options.context_tokens < 0) {
    return base::usage_error("--ctx: expected 1 or more (0: the model's limit), got {}",
                             options.context_tokens);
  }
  if (options.prefill_chunk_tokens < 1 || options.prefill_chunk_tokens > kMostPrefillChunkTokens) {
    return base::usage_error("--prefill-chunk: expected 1 to {}, got {}", kMostPrefillChunkTokens,
                             options.prefill_chunk_tokens);
  }
  if (options.max_sequences < 1 || options.max_sequences > kMostSequences) {
    return base::usage_error("max_sequences: expected 1 to {}, got {}", kMostSequences,
                             options.max_sequences);
  }
  if (options.max_queue < 0 || options.max_queue > kMostQueue) {
    return base::usage_error("max_queue: expected 0 to {}, got {}", kMostQueue, options.max_queue);
  }
  MB_TRY(num_threads(options));
  MB_TRY(kv_type(options));
  return {};
}

Result<RunnerOptions> runner_options(const EngineOptions& options) {
  RunnerOptions runner;
  MB_ASSIGN(runner.kv, kv_type(options));
  runner.prefill_chunk_tokens = options.prefill_chunk_tokens;
  runner.max_output_rows = kOutputRowsAtOnce;
  runner.max_sequences = options.max_sequences;
  // One for each sequence's own history, and some that they have in common.
  constexpr int64_t kCommonPrefixes = 8;
  if (options.prefix_cache) runner.kept_windows = options.max_sequences + kCommonPrefixes;
  return runner;
}

Result<void> LoadedModel::make_runner(const RunnerOptions& options) {
  runner.reset();
  MB_ASSIGN(runner, ModelRunner::create(config, weights, *backend.backend, options,
                                        generation.suppress_ids, mapped_weights));
  runner_options = options;
  return {};
}

namespace {

// Null where the files have none.
Result<std::unique_ptr<tokenizer::Tokenizer>> read_tokenizer(const ModelPath& path) {
  MB_ASSIGN(const bool is_there, has_tokenizer(path));
  if (!is_there) return std::unique_ptr<tokenizer::Tokenizer>();
  return load_tokenizer(path);
}

Result<void> take_tokenizer(Result<std::unique_ptr<tokenizer::Tokenizer>> read,
                            const EngineOptions& options, LoadedModel* model) {
  MB_ASSIGN(model->tokenizer, std::move(read));
  model->has_tokenizer = model->tokenizer != nullptr;
  if (model->has_tokenizer) return check_vocabulary(*model);
  model->tokenizer = std::make_unique<IdsOnlyTokenizer>(model->path.path);
  if (options.message) {
    options.message(Severity::kWarning,
                    model->path.path + ": no tokenizer found: only ids can be given");
  }
  return check_vocabulary(*model);
}

void say_plan(const LoadedModel& model, const EngineOptions& options) {
  if (options.message) options.message(Severity::kInfo, "plan: " + plan_text(model.plan));
}

// The plan, and whether the packed weights are mapped, which costs no memory of our own.
Result<void> load_planned_weights(const formats::WeightSource& source, const model::WeightMap& map,
                                  const EngineOptions& options, LoadedModel* model) {
  auto cache = open_repack_cache(source, map, model->backend, options);
  const MemoryPlan packed_plan = model->plan;
  if (cache) model->plan = with_mapped_weights(packed_plan, map, *model->backend.backend);
  say_plan(*model, options);
  const bool is_cached = cache.has_value();
  MB_ASSIGN(LoadedWeights loaded,
            load_weights(source, model->config, map, model->backend, options, std::move(cache)));
  model->packed_file = std::move(loaded.packed_file);
  model->weights = std::move(loaded.weights);
  if (model->packed_file) {
    model->mapped_weights.set_packed(*model->packed_file);
  } else if (is_cached) {
    model->plan = packed_plan;
    say_plan(*model, options);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<LoadedModel>> load_model(const std::string& path,
                                                const EngineOptions& options,
                                                const PlanFunction& plan) {
  const auto start = std::chrono::steady_clock::now();
  MB_TRY(check_options(options));
  auto model = std::make_unique<LoadedModel>();
  MB_ASSIGN(model->backend, make_backend(options));
  if (options.repack_cache && model->backend.backend->packed_layout().empty()) {
    return base::usage_error("--repack-cache: the {} backend keeps no packed weights in files",
                             model->backend.backend->name());
  }
  MB_ASSIGN(model->path, open_model_path(path));
  // A vocabulary of 262144 tokens takes longer than mapping packed weights: it is read beside them.
  // Where weights are packed, the memory that reading takes would come on top of theirs: it is read
  // before. The future waits for it on every way out.
  const auto when = options.repack_cache ? std::launch::async : std::launch::deferred;
  auto reading = std::async(when, read_tokenizer, model->path);
  MB_ASSIGN(auto source, formats::open_weight_source(model->path.path));
  MB_ASSIGN(model->config, model::read_config(*source));
  MB_ASSIGN(const model::WeightMap map, model::map_weights(*source, model->config));
  warn_of_leftovers(*source, model->config, map, options);
  if (!options.repack_cache) MB_TRY(take_tokenizer(reading.get(), options, model.get()));
  MB_ASSIGN(RunnerOptions runner, runner_options(options));
  const ops::Backend& backend = *model->backend.backend;
  MB_ASSIGN(model->plan, plan ? plan(model->config, map, backend, &runner)
                              : choose_context(model->config, map, backend, options, &runner));
  if (options.message && options.context_tokens == 0 &&
      runner.context_tokens < model->config.max_position_embeddings) {
    options.message(Severity::kWarning,
                    fmt::format("context shortened to {} tokens of {} to fit in memory",
                                runner.context_tokens, model->config.max_position_embeddings));
  }
  MB_TRY(load_planned_weights(*source, map, options, model.get()));
  if (reading.valid()) MB_TRY(take_tokenizer(reading.get(), options, model.get()));
  MB_ASSIGN(model->generation, load_generation_config(model->path, source->config(),
                                                      *model->tokenizer, model->config.vocab_size));
  model->fingerprint = fingerprint_of(*source, map, *model, options);
  const auto table = std::ranges::find_if(map.weights, model::is_mapped_table);
  if (table != map.weights.end()) {
    model->mapped_weights.set_table(*source, table->view);
    model->source = std::move(source);
  }
  MB_TRY(model->make_runner(runner));
  model->progress = options.progress;
  model->load_ms = ms_since(start);
  explain(*model, options);
  return model;
}

}  // namespace markbase::runtime
