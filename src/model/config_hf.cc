// config.json of a Hugging Face or MLX directory.
#include <cmath>

#include "base/error.h"
#include "model/config_readers.h"

namespace markbase::model {
namespace {

// rope_type (or the older "type") of a rope dictionary; "default" when it has none.
Result<RopeConfig> rope_from(const ConfigFields& fields, std::string_view theta_key, double theta) {
  RopeConfig rope;
  MB_ASSIGN(rope.rope_theta, fields.real(theta_key, 0.0, kMaxTheta, theta));
  const char* type_key = fields.find("rope_type") != nullptr ? "rope_type" : "type";
  MB_ASSIGN(const std::string type, fields.text(type_key, "default"));
  if (type == "linear") {
    MB_ASSIGN(rope.factor, fields.real("factor", 0.0, kMaxRopeFactor));
  } else if (type != "default") {
    return fields.wrong(type_key, "\"default\" or \"linear\"");
  }
  return rope;
}

Result<RopeConfig> rope_entry(const ConfigFields& fields, std::string_view dictionary,
                              std::string_view layer_type, double theta) {
  const base::Json* all = fields.find(dictionary);
  if (!all->is_object()) return fields.wrong(dictionary, "an object");
  const ConfigFields by_type(*all, fields.where() + ": " + std::string(dictionary));
  const base::Json* entry = by_type.find(layer_type);
  if (entry == nullptr || !entry->is_object()) return by_type.wrong(layer_type, "an object");
  return rope_from(ConfigFields(*entry, by_type.where() + "." + std::string(layer_type)),
                   "rope_theta", theta);
}

// [sliding, full]
Result<std::vector<RopeConfig>> read_ropes(const ConfigFields& fields) {
  constexpr double kLocalTheta = 1e4;
  constexpr double kGlobalTheta = 1e6;
  RopeConfig sliding;
  RopeConfig full;
  const base::Json* parameters = fields.find("rope_parameters");
  if (parameters != nullptr && parameters->is_object() && parameters->contains("full_attention")) {
    MB_ASSIGN(sliding, rope_entry(fields, "rope_parameters", "sliding_attention", kLocalTheta));
    MB_ASSIGN(full, rope_entry(fields, "rope_parameters", "full_attention", kGlobalTheta));
    return std::vector<RopeConfig>{sliding, full};
  }
  if (parameters != nullptr)
    return fields.wrong("rope_parameters", "an object with full_attention");
  MB_ASSIGN(sliding.rope_theta, fields.real("rope_local_base_freq", 0.0, kMaxTheta, kLocalTheta));
  if (const base::Json* scaling = fields.find("rope_scaling"); scaling != nullptr) {
    if (!scaling->is_object()) return fields.wrong("rope_scaling", "an object or null");
    MB_ASSIGN(full, rope_from(ConfigFields(*scaling, fields.where() + ": rope_scaling"),
                              "rope_theta", kGlobalTheta));
  }
  MB_ASSIGN(full.rope_theta, fields.real("rope_theta", 0.0, kMaxTheta, kGlobalTheta));
  return std::vector<RopeConfig>{sliding, full};
}

Result<TextConfig> read_gemma3(const ConfigFields& fields) {
  MB_TRY(refuse_unknown_features(fields));
  MB_ASSIGN(const bool two_way, fields.boolean("use_bidirectional_attention", false));
  if (two_way) return fields.wrong("use_bidirectional_attention", "false");
  TextConfig config;
  config.model_type = "gemma3_text";
  MB_ASSIGN(config.vocab_size, fields.integer("vocab_size", 1, kMaxVocab, 262208));
  MB_ASSIGN(config.hidden_size, fields.integer("hidden_size", 1, kMaxWidth));
  MB_ASSIGN(config.num_hidden_layers, fields.integer("num_hidden_layers", 1, kMaxLayers));
  MB_ASSIGN(config.num_attention_heads, fields.integer("num_attention_heads", 1, kMaxHeads, 8));
  MB_ASSIGN(config.max_position_embeddings,
            fields.integer("max_position_embeddings", 1, kMaxPositions, 131072));
  MB_ASSIGN(const double eps, fields.real("rms_norm_eps", 0.0, 1.0, 1e-6));
  MB_ASSIGN(const double scalar, fields.real("query_pre_attn_scalar", 0.0, 1e9, 256.0));
  MB_ASSIGN(const double cap, fields.real("final_logit_softcapping", 0.0, 1e9, 0.0));
  config.rms_norm_eps = static_cast<float>(eps);
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  config.final_logit_softcapping = static_cast<float>(cap);
  MB_ASSIGN(config.ropes, read_ropes(fields));
  MB_ASSIGN(const auto types, read_layer_types(fields, config.num_hidden_layers));

  LayerConfig layer;
  MB_ASSIGN(layer.head_dim, fields.integer("head_dim", 2, kMaxHeadDim, 256));
  MB_ASSIGN(layer.num_key_value_heads, fields.integer("num_key_value_heads", 1, kMaxHeads, 4));
  MB_ASSIGN(layer.intermediate_size, fields.integer("intermediate_size", 1, kMaxWidth));
  MB_ASSIGN(const int64_t window, fields.integer("sliding_window", 1, kMaxPositions, 4096));
  if (layer.head_dim % 2 != 0) return fields.wrong("head_dim", "an even number");
  if (config.num_attention_heads % layer.num_key_value_heads != 0) {
    return fields.wrong("num_key_value_heads", fmt::format("a divisor of num_attention_heads ({})",
                                                           config.num_attention_heads));
  }
  for (RopeConfig& rope : config.ropes) rope.head_dim = layer.head_dim;
  for (const LayerType type : types) {
    layer.type = type;
    layer.sliding_window = type == LayerType::kSliding ? window : 0;
    layer.rope_idx = type == LayerType::kSliding ? 0 : 1;
    config.layers.push_back(layer);
  }
  return config;
}

}  // namespace

Result<std::vector<LayerType>> read_layer_types(const ConfigFields& fields, int64_t count) {
  std::vector<LayerType> types;
  if (const base::Json* list = fields.find("layer_types"); list != nullptr) {
    if (!list->is_array() || static_cast<int64_t>(list->size()) != count) {
      return fields.wrong("layer_types", fmt::format("{} names, one a layer", count));
    }
    for (const base::Json& name : *list) {
      if (name == "sliding_attention") {
        types.push_back(LayerType::kSliding);
      } else if (name == "full_attention") {
        types.push_back(LayerType::kFull);
      } else {
        return base::bad_input(
            "{}: layer_types: expected \"sliding_attention\" or \"full_attention\", got {}",
            fields.where(), shown(name));
      }
    }
    return types;
  }
  constexpr int64_t kPattern = 6;
  const char* key = fields.find("sliding_window_pattern") != nullptr ? "sliding_window_pattern"
                                                                     : "_sliding_window_pattern";
  MB_ASSIGN(const int64_t pattern, fields.integer(key, 1, kMaxLayers, kPattern));
  for (int64_t i = 0; i < count; ++i) {
    types.push_back((i + 1) % pattern == 0 ? LayerType::kFull : LayerType::kSliding);
  }
  return types;
}

// What this decoder does not compute must be off.
Result<void> refuse_unknown_features(const ConfigFields& fields) {
  if (fields.find("attn_logit_softcapping") != nullptr) {
    return fields.wrong("attn_logit_softcapping",
                        "null (a soft cap inside attention is not supported)");
  }
  MB_ASSIGN(const bool bias, fields.boolean("attention_bias", false));
  if (bias) return fields.wrong("attention_bias", "false");
  constexpr const char* kGelu = "gelu_pytorch_tanh";
  const char* key =
      fields.find("hidden_activation") != nullptr ? "hidden_activation" : "hidden_act";
  MB_ASSIGN(const std::string activation, fields.text(key, kGelu));
  if (activation != kGelu) return fields.wrong(key, "\"gelu_pytorch_tanh\"");
  return {};
}

namespace {

// Types of models that keep the decoder's keys in text_config.
bool is_whole_model(std::string_view model_type) {
  return model_type == "gemma3" || model_type == "gemma4" || model_type == "gemma4_unified";
}

}  // namespace

Result<TextConfig> config_from_hf(const base::Json& root, std::string_view where) {
  if (!root.is_object())
    return base::bad_input("{}: expected a JSON object, got {}", where, shown(root));
  const ConfigFields top(root, where);
  MB_ASSIGN(std::string model_type, top.text("model_type"));
  const base::Json* text = top.find("text_config");
  if (text != nullptr && !text->is_object()) return top.wrong("text_config", "an object");
  if (text != nullptr && is_whole_model(model_type)) {
    MB_ASSIGN(model_type, ConfigFields(*text, where).text("model_type", model_type + "_text"));
  }
  const std::string text_where = std::string(where) + (text != nullptr ? ": text_config" : "");
  const ConfigFields fields(text != nullptr ? *text : root, text_where);
  const bool unified = model_type == "gemma4_unified_text" || model_type == "gemma4_unified";
  Result<TextConfig> read =
      base::bad_input("{}: model_type: \"{}\" is not supported; supported: {}", where, model_type,
                      supported_architectures());
  if (model_type == "gemma3_text") read = read_gemma3(fields);
  // Without a text_config the keys of the text part stand at the top, whatever the type's name.
  if (unified || model_type == "gemma4_text" || model_type == "gemma4")
    read = gemma4_from_hf(fields, unified);
  MB_ASSIGN(TextConfig config, std::move(read));
  MB_ASSIGN(const bool tied, top.boolean("tie_word_embeddings", true));
  config.tie_word_embeddings = tied;
  if (text != nullptr) {
    MB_ASSIGN(config.tie_word_embeddings,
              ConfigFields(*text, text_where).boolean("tie_word_embeddings", tied));
  }
  return config;
}

}  // namespace markbase::model
