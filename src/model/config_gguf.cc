// Metadata keys of a GGUF file.
#include <cmath>

#include "base/error.h"
#include "model/config_readers.h"

namespace markbase::model {
namespace {

Result<LayerType> layer_type_at(const ConfigFields& fields, const std::string& key, int64_t idx,
                                int64_t count) {
  constexpr int64_t kPattern = 6;
  const base::Json* value = fields.find(key);
  if (value != nullptr && value->is_array()) {
    if (static_cast<int64_t>(value->size()) != count) {
      return fields.wrong(key, fmt::format("{} values, one a layer", count));
    }
    const base::Json& at = (*value)[static_cast<size_t>(idx)];
    if (!at.is_boolean() && !at.is_number_integer()) return fields.wrong(key, "booleans");
    const bool sliding = at.is_boolean() ? at.get<bool>() : at != 0;
    return sliding ? LayerType::kSliding : LayerType::kFull;
  }
  MB_ASSIGN(const int64_t pattern, fields.integer(key, 1, kMaxLayers, kPattern));
  return (idx + 1) % pattern == 0 ? LayerType::kFull : LayerType::kSliding;
}

// [sliding, full]
Result<std::vector<RopeConfig>> read_ropes(const ConfigFields& fields, const std::string& prefix,
                                           int64_t head_dim) {
  RopeConfig sliding{.rope_theta = 1e4, .factor = 1.0, .head_dim = head_dim};
  RopeConfig full{.rope_theta = 1e6, .factor = 1.0, .head_dim = head_dim};
  const std::string local =
      prefix + (fields.find(prefix + "rope.local.freq_base") != nullptr ? "rope.local.freq_base"
                                                                        : "rope.freq_base_swa");
  MB_ASSIGN(sliding.rope_theta, fields.real(local, 0.0, kMaxTheta, sliding.rope_theta));
  MB_ASSIGN(full.rope_theta,
            fields.real(prefix + "rope.freq_base", 0.0, kMaxTheta, full.rope_theta));
  // A factor alone is a linear one, as llama.cpp takes it.
  const bool scaled = fields.find(prefix + "rope.scaling.factor") != nullptr;
  MB_ASSIGN(const std::string type,
            fields.text(prefix + "rope.scaling.type", scaled ? "linear" : "none"));
  if (type == "linear") {
    MB_ASSIGN(full.factor, fields.real(prefix + "rope.scaling.factor", 0.0, kMaxRopeFactor));
  } else if (type != "none") {
    return fields.wrong(prefix + "rope.scaling.type", "\"none\" or \"linear\"");
  }
  return std::vector<RopeConfig>{sliding, full};
}

// Not in the file: 1/sqrt(head_dim), but the 27B (62 layers) divides by sqrt(hidden / heads).
double attention_scale(const TextConfig& config, int64_t head_dim) {
  constexpr int64_t kLayersOf27B = 62;
  const double scalar = config.num_hidden_layers == kLayersOf27B
                            ? static_cast<double>(config.hidden_size) /
                                  static_cast<double>(config.num_attention_heads)
                            : static_cast<double>(head_dim);
  return 1.0 / std::sqrt(scalar);
}

Result<LayerConfig> read_layer(const ConfigFields& fields, const std::string& prefix,
                               const TextConfig& config, int64_t idx, int64_t head_dim) {
  const int64_t count = config.num_hidden_layers;
  LayerConfig layer;
  layer.head_dim = head_dim;
  const std::string kv_key = prefix + "attention.head_count_kv";
  MB_ASSIGN(layer.num_key_value_heads,
            fields.integer_at(kv_key, idx, count, 1, kMaxHeads, config.num_attention_heads));
  if (config.num_attention_heads % layer.num_key_value_heads != 0) {
    return fields.wrong(kv_key, fmt::format("divisors of {}attention.head_count ({})", prefix,
                                            config.num_attention_heads));
  }
  MB_ASSIGN(layer.intermediate_size,
            fields.integer_at(prefix + "feed_forward_length", idx, count, 1, kMaxWidth));
  MB_ASSIGN(layer.type,
            layer_type_at(fields, prefix + "attention.sliding_window_pattern", idx, count));
  if (layer.type == LayerType::kSliding) {
    MB_ASSIGN(layer.sliding_window,
              fields.integer(prefix + "attention.sliding_window", 1, kMaxPositions));
  }
  layer.rope_idx = layer.type == LayerType::kSliding ? 0 : 1;
  return layer;
}

}  // namespace

Result<TextConfig> config_from_gguf(const base::Json& metadata, std::string_view where) {
  if (!metadata.is_object()) {
    return base::bad_input("{}: expected metadata keys, got {}", where, shown(metadata));
  }
  const ConfigFields fields(metadata, where);
  MB_ASSIGN(const std::string architecture, fields.text("general.architecture"));
  if (architecture == "gemma4") return gemma4_from_gguf(fields);
  if (architecture == "clip") {
    return base::bad_input(
        "{}: general.architecture: expected a model, got \"clip\" (a projector for pictures and "
        "sound: name the model's own file)",
        where);
  }
  if (architecture != "gemma3") {
    return base::bad_input("{}: general.architecture: \"{}\" is not supported; supported: {}",
                           where, architecture, supported_architectures());
  }
  const std::string prefix = architecture + ".";
  TextConfig config;
  config.model_type = "gemma3_text";
  MB_ASSIGN(config.hidden_size, fields.integer(prefix + "embedding_length", 1, kMaxWidth));
  MB_ASSIGN(config.num_hidden_layers, fields.integer(prefix + "block_count", 1, kMaxLayers));
  MB_ASSIGN(config.num_attention_heads,
            fields.integer(prefix + "attention.head_count", 1, kMaxHeads));
  MB_ASSIGN(config.max_position_embeddings,
            fields.integer(prefix + "context_length", 1, kMaxPositions));
  MB_ASSIGN(const double eps, fields.real(prefix + "attention.layer_norm_rms_epsilon", 0.0, 1.0));
  MB_ASSIGN(const double cap, fields.real(prefix + "final_logit_softcapping", 0.0, 1e9, 0.0));
  MB_ASSIGN(const int64_t head_dim,
            fields.integer(prefix + "attention.key_length", 2, kMaxHeadDim, 256));
  MB_ASSIGN(const int64_t value_dim,
            fields.integer(prefix + "attention.value_length", 2, kMaxHeadDim, head_dim));
  if (head_dim % 2 != 0) return fields.wrong(prefix + "attention.key_length", "an even number");
  if (value_dim != head_dim) {
    return fields.wrong(prefix + "attention.value_length",
                        fmt::format("the key length, {}", head_dim));
  }
  if (const base::Json* cap_inside = fields.find(prefix + "attn_logit_softcapping");
      cap_inside != nullptr && *cap_inside != 0.0) {
    return fields.wrong(prefix + "attn_logit_softcapping", "none");
  }
  config.rms_norm_eps = static_cast<float>(eps);
  config.final_logit_softcapping = static_cast<float>(cap);
  config.attention_scale = static_cast<float>(attention_scale(config, head_dim));
  MB_ASSIGN(config.ropes, read_ropes(fields, prefix, head_dim));
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    MB_ASSIGN(const LayerConfig layer, read_layer(fields, prefix, config, i, head_dim));
    config.layers.push_back(layer);
  }
  return config;
}

}  // namespace markbase::model
