// inspect: what the files of a model say, without loading it.
#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/guard.h"
#include "markbase/tools.h"
#include "model/config_keys.h"
#include "runtime/chat_prompt.h"
#include "runtime/ids_only_tokenizer.h"
#include "runtime/loaded_model.h"
#include "runtime/tools/weight_groups.h"

namespace markbase::tools {
namespace {

using runtime::ModelPath;
using runtime::PathKind;

base::Json tokenizer_json(const tokenizer::Tokenizer& tokenizer) {
  return {{"vocab_size", tokenizer.vocab_size()},
          {"bos_id", tokenizer.bos_id()},
          {"eos_id", tokenizer.eos_id()},
          {"pad_id", tokenizer.pad_id()},
          {"unk_id", tokenizer.unk_id()},
          {"extra_stop_ids", tokenizer.extra_stop_ids()},
          {"chat_format", runtime::has_chat_format(tokenizer)},
          {"source", tokenizer.source()}};
}

base::Json generation_json(const runtime::GenerationConfig& generation) {
  const SamplingOptions& s = generation.sampling;
  // As written: the nearest double of 0.95F is not what a reader expects to see.
  const auto decimal = [](float value) { return std::stod(fmt::format("{}", value)); };
  return {{"temperature", decimal(s.temperature)},
          {"top_k", s.top_k},
          {"top_p", decimal(s.top_p)},
          {"min_p", decimal(s.min_p)},
          {"repetition_penalty", decimal(s.repetition_penalty)},
          {"stop_ids", generation.stop_ids},
          {"suppress_ids", generation.suppress_ids}};
}

base::Json layers_json(const model::TextConfig& config) {
  base::Json layers = base::Json::array();
  for (const model::LayerConfig& layer : config.layers) {
    const model::RopeConfig& rope = config.ropes[static_cast<size_t>(layer.rope_idx)];
    layers.push_back({{"kind", model::layer_type_name(layer.type)},
                      {"head_dim", layer.head_dim},
                      {"num_key_value_heads", layer.num_key_value_heads},
                      {"intermediate_size", layer.intermediate_size},
                      {"sliding_window", layer.sliding_window},
                      {"rope_theta", rope.rope_theta},
                      {"rope_factor", rope.factor},
                      {"partial_rotary_factor", rope.partial_rotary_factor},
                      {"keys_are_values", layer.attention_k_eq_v},
                      {"kv_of_layer", layer.owns_kv() ? base::Json(layers.size())
                                                      : base::Json(layer.kv_source_idx)}});
  }
  return layers;
}

base::Json config_json(const model::TextConfig& config) {
  return {{"model_type", config.model_type},
          {"vocab_size", config.vocab_size},
          {"hidden_size", config.hidden_size},
          {"num_hidden_layers", config.num_hidden_layers},
          {"num_attention_heads", config.num_attention_heads},
          {"max_position_embeddings", config.max_position_embeddings},
          {"rms_norm_eps", config.rms_norm_eps},
          {"attention_scale", config.attention_scale},
          {"final_logit_softcapping", config.final_logit_softcapping},
          {"tie_word_embeddings", config.tie_word_embeddings},
          {"hidden_size_per_layer_input", config.hidden_size_per_layer_input},
          {"vocab_size_per_layer_input", config.vocab_size_per_layer_input},
          {"num_experts", config.num_experts},
          {"top_k_experts", config.top_k_experts},
          {"moe_intermediate_size", config.moe_intermediate_size}};
}

base::Json quantization_json(const formats::WeightSource& source) {
  struct Sum {
    int64_t tensors = 0;
    uint64_t bytes = 0;
  };
  std::map<std::string, Sum> sums;
  for (const formats::TensorInfo& tensor : source.tensors()) {
    Sum& sum = sums[tensor.type_name];
    ++sum.tensors;
    sum.bytes += tensor.data.size();
  }
  base::Json out = base::Json::array();
  for (const auto& [format, sum] : sums) {
    out.push_back({{"format", format}, {"tensors", sum.tensors}, {"bytes", sum.bytes}});
  }
  return out;
}

base::Json tensors_json(const formats::WeightSource& source) {
  base::Json out = base::Json::array();
  for (const formats::TensorInfo& tensor : source.tensors()) {
    out.push_back({{"name", tensor.name},
                   {"shape", tensor.shape},
                   {"type", tensor.type_name},
                   {"bytes", tensor.data.size()}});
  }
  return out;
}

// The model's own name for itself, where it has one.
std::string name_of(const formats::WeightSource& source, const ModelPath& path) {
  const base::Json& config = source.config();
  for (const char* key : {"general.name", "_name_or_path"}) {
    const auto found = config.find(key);
    if (found != config.end() && found->is_string() && !found->get<std::string>().empty()) {
      return found->get<std::string>();
    }
  }
  return std::filesystem::path(path.path).stem().string();
}

// Each tensor, and what is left aside for each reason.
void add_unused(const formats::WeightSource& source, const model::WeightMap& map, base::Json* out) {
  struct Sum {
    int64_t tensors = 0;
    uint64_t bytes = 0;
  };
  std::map<std::string, Sum> by_reason;
  base::Json unused = base::Json::array();
  for (const model::UnusedTensor& tensor : map.unused) {
    const uint64_t bytes = source.find(tensor.name)->data.size();
    unused.push_back({{"name", tensor.name}, {"why", tensor.why}, {"bytes", bytes}});
    Sum& sum = by_reason[tensor.why];
    ++sum.tensors;
    sum.bytes += bytes;
  }
  (*out)["unused"] = std::move(unused);
  base::Json reasons = base::Json::array();
  for (const auto& [why, sum] : by_reason)
    reasons.push_back({{"why", why}, {"tensors", sum.tensors}, {"bytes", sum.bytes}});
  (*out)["unused_by_reason"] = std::move(reasons);
}

Result<void> add_model(const formats::WeightSource& source, const ModelPath& path,
                       const InspectOptions& options, const ops::Backend& backend,
                       base::Json* out) {
  MB_ASSIGN(const model::TextConfig config, model::read_config(source));
  std::vector<model::Fault> faults;
  const model::WeightMap map = model::map_weights(source, config, &faults);
  (*out)["architecture"] = config.model_type;
  (*out)["name"] = name_of(source, path);
  (*out)["files"] = source.files();
  (*out)["layers"] = layers_json(config);
  (*out)["quantization"] = quantization_json(source);
  (*out)["modalities"] = {"text"};
  (*out)["groups"] = weight_groups_json(config, map);
  add_unused(source, map, out);
  (*out)["unknown_keys"] = model::unknown_config_keys(source.config(), source.kind());
  base::Json fault_list = base::Json::array();
  for (const model::Fault& fault : faults) fault_list.push_back(model::fault_message(fault));
  (*out)["faults"] = std::move(fault_list);
  (*out)["config"] = config_json(config);
  if (options.tensors) (*out)["tensors"] = tensors_json(source);
  // A plan is made for whole models only: a file that holds just a vocabulary has none.
  (*out)["plan"] = nullptr;
  if (!faults.empty()) return {};
  MB_ASSIGN(runtime::RunnerOptions runner, runtime::runner_options(options.engine));
  MB_ASSIGN(runner.context_tokens, runtime::context_limit(config, options.engine));
  runner.kv_pool_tokens = runtime::pool_tokens(runner.context_tokens, runner.max_sequences);
  (*out)["plan"] = runtime::plan_json(
      runtime::plan_memory(config, map, backend, runner, options.engine.memory_bytes));
  return {};
}

// Defaults for generating; a file without a model has ids up to the end of its vocabulary.
Result<void> add_generation(const base::Json& config, const ModelPath& path,
                            const tokenizer::Tokenizer* tokenizer, base::Json* out) {
  const runtime::IdsOnlyTokenizer none(path.path);
  const bool has_config = (*out)["config"].is_object();
  const int64_t vocab_size = has_config             ? (*out)["config"]["vocab_size"].get<int64_t>()
                             : tokenizer != nullptr ? tokenizer->vocab_size()
                                                    : 0;
  MB_ASSIGN(const runtime::GenerationConfig generation,
            runtime::load_generation_config(path, config, tokenizer != nullptr ? *tokenizer : none,
                                            vocab_size));
  (*out)["generation"] = generation_json(generation);
  return {};
}

bool holds_weights(const ModelPath& path) {
  if (path.kind == PathKind::kGguf) return true;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path.path, error)) {
    if (entry.path().extension() == ".safetensors") return true;
  }
  return false;
}

Result<std::string> inspect_unguarded(const std::string& path, const InspectOptions& options) {
  MB_TRY(runtime::check_options(options.engine));
  // What cannot compute is refused even where a file has nothing to plan.
  MB_ASSIGN(const runtime::BackendHandle backend, runtime::make_backend(options.engine));
  MB_ASSIGN(const ModelPath model_path, runtime::open_model_path(path));
  base::Json out = {{"path", model_path.path},
                    {"format", model_path.kind == PathKind::kGguf ? "gguf" : "safetensors"},
                    {"architecture", ""},
                    {"name", ""},
                    {"layers", base::Json::array()},
                    {"quantization", base::Json::array()},
                    {"tokenizer", nullptr},
                    {"template", ""},
                    {"generation", nullptr},
                    {"modalities", base::Json::array()},
                    {"groups", base::Json::array()},
                    {"unused", base::Json::array()},
                    {"unused_by_reason", base::Json::array()},
                    {"plan", nullptr},
                    {"config", nullptr}};
  MB_ASSIGN(const bool has_tokenizer, runtime::has_tokenizer(model_path));
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
  if (has_tokenizer) {
    MB_ASSIGN(tokenizer, runtime::load_tokenizer(model_path));
    out["tokenizer"] = tokenizer_json(*tokenizer);
    out["template"] = tokenizer->chat_template();
  }
  if (holds_weights(model_path)) {
    MB_ASSIGN(const auto source, formats::open_weight_source(model_path.path));
    const bool vocabulary_only = source->tensors().empty() && has_tokenizer;
    if (vocabulary_only) {
      const auto found = source->config().find("general.architecture");
      if (found != source->config().end()) out["architecture"] = *found;
      out["name"] = name_of(*source, model_path);
    } else {
      MB_TRY(add_model(*source, model_path, options, *backend.backend, &out));
    }
    MB_TRY(add_generation(source->config(), model_path, tokenizer.get(), &out));
  } else if (tokenizer != nullptr) {
    MB_TRY(add_generation({}, model_path, tokenizer.get(), &out));
  }
  return base::dump_json(out);
}

}  // namespace

Result<std::string> inspect_json(const std::string& path, const InspectOptions& options) {
  return base::guarded("inspect_json", [&] { return inspect_unguarded(path, options); });
}

}  // namespace markbase::tools
