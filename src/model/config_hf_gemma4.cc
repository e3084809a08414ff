// config.json of a Gemma 4 text decoder. Defaults are those of the published configuration class.
#include <cctype>
#include <map>

#include "base/error.h"
#include "model/config_readers.h"

namespace markbase::model {
namespace {

// What differs between layers, before a layer's own overrides.
struct LayerSizes {
  int64_t head_dim = 0;
  int64_t num_key_value_heads = 0;
};

struct LayerKeys {
  LayerSizes sliding;
  LayerSizes full;
  int64_t intermediate_size = 0;
  int64_t sliding_window = 0;
  int64_t num_shared = 0;
  bool attention_k_eq_v = false;
  bool use_double_wide_mlp = false;
  RopeConfig sliding_rope;
  RopeConfig full_rope;
};

Result<RopeConfig> rope_of(const ConfigFields& by_type, std::string_view layer_type,
                           const RopeConfig& fallback) {
  const base::Json* entry = by_type.find(layer_type);
  if (entry == nullptr) return fallback;
  if (!entry->is_object()) return by_type.wrong(layer_type, "an object");
  const ConfigFields fields(*entry, by_type.where() + "." + std::string(layer_type));
  RopeConfig rope;
  MB_ASSIGN(rope.rope_theta, fields.real("rope_theta", 0.0, kMaxTheta, fallback.rope_theta));
  MB_ASSIGN(const std::string type, fields.text("rope_type", "default"));
  constexpr double kJustAboveOne = 1.0000001;
  if (type == "proportional") {
    MB_ASSIGN(rope.factor, fields.real("factor", 0.0, kMaxRopeFactor, 1.0));
    MB_ASSIGN(rope.partial_rotary_factor,
              fields.real("partial_rotary_factor", 0.0, kJustAboveOne, 1.0));
    return rope;
  }
  if (type != "default") return fields.wrong("rope_type", "\"default\" or \"proportional\"");
  for (const char* key : {"partial_rotary_factor", "factor"}) {
    const base::Json* value = fields.find(key);
    if (value != nullptr && *value != 1.0) {
      return fields.wrong(key, "1 with rope_type \"default\"");
    }
  }
  return rope;
}

Result<void> read_ropes(const ConfigFields& fields, LayerKeys* keys) {
  keys->sliding_rope = {.rope_theta = 1e4};
  keys->full_rope = {.rope_theta = 1e6, .partial_rotary_factor = 0.25};
  if (fields.find("rope_scaling") != nullptr) {
    return fields.wrong("rope_scaling", "null (Gemma 4 has rope_parameters)");
  }
  const base::Json* parameters = fields.find("rope_parameters");
  if (parameters == nullptr) return {};
  if (!parameters->is_object() ||
      (!parameters->contains("full_attention") && !parameters->contains("sliding_attention"))) {
    return fields.wrong("rope_parameters", "an object with full_attention and sliding_attention");
  }
  const ConfigFields by_type(*parameters, fields.where() + ": rope_parameters");
  MB_ASSIGN(keys->sliding_rope, rope_of(by_type, "sliding_attention", keys->sliding_rope));
  MB_ASSIGN(keys->full_rope, rope_of(by_type, "full_attention", keys->full_rope));
  return {};
}

Result<LayerKeys> read_layer_keys(const ConfigFields& fields, bool unified) {
  constexpr int64_t kGlobalHeadDim = 512;
  LayerKeys keys;
  MB_ASSIGN(keys.sliding.head_dim, fields.integer("head_dim", 2, kMaxHeadDim, 256));
  MB_ASSIGN(keys.sliding.num_key_value_heads,
            fields.integer("num_key_value_heads", 1, kMaxHeads, 4));
  // A layer-by-layer configuration takes the place of the global head size, and so does null.
  const bool no_global =
      fields.is_null("global_head_dim") || fields.find("per_layer_config") != nullptr;
  MB_ASSIGN(keys.full.head_dim, fields.integer("global_head_dim", 2, kMaxHeadDim,
                                               no_global ? keys.sliding.head_dim : kGlobalHeadDim));
  MB_ASSIGN(keys.attention_k_eq_v, fields.boolean("attention_k_eq_v", false));
  MB_ASSIGN(
      const int64_t global_kv_heads,
      fields.integer("num_global_key_value_heads", 1, kMaxHeads, keys.sliding.num_key_value_heads));
  // The key counts only where keys serve as values.
  keys.full.num_key_value_heads =
      keys.attention_k_eq_v ? global_kv_heads : keys.sliding.num_key_value_heads;
  MB_ASSIGN(keys.intermediate_size, fields.integer("intermediate_size", 1, kMaxWidth / 2, 9216));
  MB_ASSIGN(keys.sliding_window,
            fields.integer("sliding_window", 1, kMaxPositions, unified ? 1024 : 512));
  MB_ASSIGN(keys.use_double_wide_mlp, fields.boolean("use_double_wide_mlp", false));
  MB_TRY(read_ropes(fields, &keys));
  return keys;
}

// {"05": {"head_dim": 512}}: the layer's number, padded with zeros.
Result<std::map<int64_t, const base::Json*>> read_overrides(const ConfigFields& fields,
                                                            int64_t num_layers) {
  std::map<int64_t, const base::Json*> out;
  const base::Json* all = fields.find("per_layer_config");
  if (all == nullptr) return out;
  if (!all->is_object()) return fields.wrong("per_layer_config", "an object of layers");
  for (const auto& [name, value] : all->items()) {
    constexpr size_t kMostDigits = 6;
    const bool digits = !name.empty() && name.size() <= kMostDigits &&
                        name.find_first_not_of("0123456789") == std::string::npos;
    const int64_t layer = digits ? std::stoll(name) : -1;
    if (layer < 0 || layer >= num_layers || !value.is_object() || out.contains(layer)) {
      return base::bad_input(
          "{}: per_layer_config: expected an object for some of the layers 0 to {}, each once, got "
          "{}: {}",
          fields.where(), num_layers - 1, shown(name), shown(value));
    }
    out[layer] = &value;
  }
  return out;
}

Result<void> apply_override(const ConfigFields& fields, const base::Json& json, int64_t layer_idx,
                            LayerConfig* layer) {
  const ConfigFields own(json, fmt::format("{}: per_layer_config.{}", fields.where(), layer_idx));
  for (const auto& [key, value] : json.items()) {
    if (key != "head_dim" && key != "num_key_value_heads") {
      return own.wrong(key, "head_dim and num_key_value_heads alone");
    }
  }
  MB_ASSIGN(layer->head_dim, own.integer("head_dim", 2, kMaxHeadDim, layer->head_dim));
  MB_ASSIGN(layer->num_key_value_heads,
            own.integer("num_key_value_heads", 1, kMaxHeads, layer->num_key_value_heads));
  return {};
}

Result<void> read_layers(const ConfigFields& fields, bool unified, TextConfig* config) {
  const int64_t count = config->num_hidden_layers;
  MB_ASSIGN(LayerKeys keys, read_layer_keys(fields, unified));
  MB_ASSIGN(std::vector<LayerType> types, read_layer_types(fields, count));
  types.back() = LayerType::kFull;
  MB_ASSIGN(const auto overrides, read_overrides(fields, count));
  MB_ASSIGN(const int64_t num_shared, fields.integer("num_kv_shared_layers", 0, count, 0));
  for (int64_t i = 0; i < count; ++i) {
    const bool full = types[static_cast<size_t>(i)] == LayerType::kFull;
    const LayerSizes& sizes = full ? keys.full : keys.sliding;
    LayerConfig layer;
    layer.type = types[static_cast<size_t>(i)];
    layer.head_dim = sizes.head_dim;
    layer.num_key_value_heads = sizes.num_key_value_heads;
    if (const auto own = overrides.find(i); own != overrides.end()) {
      MB_TRY(apply_override(fields, *own->second, i, &layer));
    }
    if (layer.head_dim % 2 != 0) {
      return base::bad_input("{}: head_dim: expected an even number in layer {}, got {}",
                             fields.where(), i, layer.head_dim);
    }
    layer.sliding_window = full ? 0 : keys.sliding_window;
    layer.attention_k_eq_v = keys.attention_k_eq_v && full;
    const bool wide = keys.use_double_wide_mlp && i >= count - num_shared;
    layer.intermediate_size = keys.intermediate_size * (wide ? 2 : 1);
    RopeConfig rope = full ? keys.full_rope : keys.sliding_rope;
    rope.head_dim = layer.head_dim;
    layer.rope_idx = rope_index(rope, config);
    config->layers.push_back(layer);
  }
  MB_TRY(check_heads(fields, "num_attention_heads", "num_key_value_heads", *config));
  return share_kv(fields, "num_kv_shared_layers", num_shared, config);
}

// 0 rows and columns where the model has no per-layer embeddings.
Result<void> read_per_layer_embeddings(const ConfigFields& fields, bool unified,
                                       TextConfig* config) {
  constexpr const char* kWidth = "hidden_size_per_layer_input";
  if (fields.is_null(kWidth)) return {};
  MB_ASSIGN(config->hidden_size_per_layer_input,
            fields.integer(kWidth, 0, kMaxWidth, unified ? 0 : 256));
  if (config->hidden_size_per_layer_input == 0) return {};
  MB_ASSIGN(config->vocab_size_per_layer_input,
            fields.integer("vocab_size_per_layer_input", 1, kMaxVocab, 262144));
  return {};
}

Result<void> read_experts(const ConfigFields& fields, TextConfig* config) {
  MB_ASSIGN(const bool enabled, fields.boolean("enable_moe_block", false));
  if (!enabled) return {};
  MB_ASSIGN(config->num_experts, fields.integer("num_experts", 1, kMaxExperts));
  MB_ASSIGN(config->top_k_experts, fields.integer("top_k_experts", 1, config->num_experts));
  constexpr const char* kWidth = "moe_intermediate_size";
  constexpr const char* kAlias = "expert_intermediate_size";
  const char* key =
      fields.find(kWidth) == nullptr && fields.find(kAlias) != nullptr ? kAlias : kWidth;
  MB_ASSIGN(config->moe_intermediate_size, fields.integer(key, 1, kMaxWidth));
  MB_ASSIGN(const int64_t alias,
            fields.integer(kAlias, 1, kMaxWidth, config->moe_intermediate_size));
  if (alias != config->moe_intermediate_size) {
    return fields.wrong(kAlias,
                        fmt::format("moe_intermediate_size, {}", config->moe_intermediate_size));
  }
  return {};
}

// Two-way attention inside pictures leaves text as it is; over all tokens it does not.
Result<void> check_direction(const ConfigFields& fields) {
  const base::Json* value = fields.find("use_bidirectional_attention");
  if (value == nullptr || *value == "vision" || *value == false) return {};
  return fields.wrong("use_bidirectional_attention",
                      "null or \"vision\" (a model of embeddings is not supported)");
}

}  // namespace

Result<TextConfig> gemma4_from_hf(const ConfigFields& fields, bool unified) {
  MB_TRY(refuse_unknown_features(fields));
  MB_TRY(check_direction(fields));
  TextConfig config;
  config.model_type = unified ? "gemma4_unified_text" : "gemma4_text";
  config.value_norm = true;
  config.layer_scalar = true;
  MB_ASSIGN(config.vocab_size, fields.integer("vocab_size", 1, kMaxVocab, 262144));
  MB_ASSIGN(config.hidden_size, fields.integer("hidden_size", 1, kMaxWidth, 2304));
  MB_ASSIGN(config.num_hidden_layers, fields.integer("num_hidden_layers", 1, kMaxLayers, 30));
  MB_ASSIGN(config.num_attention_heads, fields.integer("num_attention_heads", 1, kMaxHeads, 8));
  MB_ASSIGN(config.max_position_embeddings,
            fields.integer("max_position_embeddings", 1, kMaxPositions, unified ? 262144 : 131072));
  MB_ASSIGN(const double eps, fields.real("rms_norm_eps", 0.0, 1.0, 1e-6));
  MB_ASSIGN(const double cap, fields.real("final_logit_softcapping", 0.0, 1e9, 0.0));
  config.rms_norm_eps = static_cast<float>(eps);
  config.final_logit_softcapping = static_cast<float>(cap);
  MB_TRY(read_per_layer_embeddings(fields, unified, &config));
  MB_TRY(read_experts(fields, &config));
  MB_TRY(read_layers(fields, unified, &config));
  return config;
}

}  // namespace markbase::model
