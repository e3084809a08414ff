// Metadata keys of a Gemma 4 GGUF.
#include "base/error.h"
#include "model/config_readers.h"

namespace markbase::model {
namespace {

std::string own(std::string_view key) { return "gemma4." + std::string(key); }

// True for a sliding layer: one value for each layer, or one for all.
Result<bool> sliding_at(const ConfigFields& fields, int64_t idx, int64_t count) {
  const std::string key = own("attention.sliding_window_pattern");
  const base::Json* value = fields.find(key);
  const bool list = value != nullptr && value->is_array();
  if (list && static_cast<int64_t>(value->size()) != count) {
    return fields.wrong(key, fmt::format("{} values, one a layer", count));
  }
  const base::Json* at = list ? &(*value)[static_cast<size_t>(idx)] : value;
  const bool usable = at != nullptr && (at->is_boolean() || (list && (*at == 0 || *at == 1)));
  if (!usable) return fields.wrong(key, "booleans, one a layer");
  return at->is_boolean() ? at->get<bool>() : *at == 1;
}

struct KindKeys {
  const char* key_length;
  const char* value_length;
  const char* dimension_count;
  const char* freq_base;
  int64_t head_dim;
  double theta;
};
constexpr KindKeys kSliding = {"attention.key_length_swa",
                               "attention.value_length_swa",
                               "rope.dimension_count_swa",
                               "rope.freq_base_swa",
                               256,
                               1e4};
constexpr KindKeys kFull = {"attention.key_length",
                            "attention.value_length",
                            "rope.dimension_count",
                            "rope.freq_base",
                            512,
                            1e6};

Result<RopeConfig> read_kind(const ConfigFields& fields, const KindKeys& keys) {
  RopeConfig rope;
  MB_ASSIGN(rope.head_dim, fields.integer(own(keys.key_length), 2, kMaxHeadDim, keys.head_dim));
  if (rope.head_dim % 2 != 0) return fields.wrong(own(keys.key_length), "an even number");
  for (const char* key : {keys.value_length, keys.dimension_count}) {
    MB_ASSIGN(const int64_t same, fields.integer(own(key), 1, kMaxHeadDim, rope.head_dim));
    if (same != rope.head_dim) {
      return fields.wrong(own(key), fmt::format("{}, {}", own(keys.key_length), rope.head_dim));
    }
  }
  MB_ASSIGN(rope.rope_theta, fields.real(own(keys.freq_base), 0.0, kMaxTheta, keys.theta));
  return rope;
}

Result<void> read_layers(const ConfigFields& fields, TextConfig* config) {
  const int64_t count = config->num_hidden_layers;
  MB_ASSIGN(const RopeConfig sliding, read_kind(fields, kSliding));
  MB_ASSIGN(const RopeConfig full, read_kind(fields, kFull));
  const std::string kv_key = own("attention.head_count_kv");
  const std::string shared_key = own("attention.shared_kv_layers");
  MB_ASSIGN(const int64_t num_shared, fields.integer(shared_key, 0, count, 0));
  for (int64_t i = 0; i < count; ++i) {
    MB_ASSIGN(const bool is_sliding, sliding_at(fields, i, count));
    LayerConfig layer;
    layer.type = is_sliding ? LayerType::kSliding : LayerType::kFull;
    layer.head_dim = is_sliding ? sliding.head_dim : full.head_dim;
    layer.rope_idx = rope_index(is_sliding ? sliding : full, config);
    MB_ASSIGN(layer.num_key_value_heads,
              fields.integer_at(kv_key, i, count, 1, kMaxHeads, config->num_attention_heads));
    MB_ASSIGN(layer.intermediate_size,
              fields.integer_at(own("feed_forward_length"), i, count, 1, kMaxWidth));
    if (is_sliding) {
      MB_ASSIGN(layer.sliding_window,
                fields.integer(own("attention.sliding_window"), 1, kMaxPositions));
    }
    config->layers.push_back(layer);
  }
  MB_TRY(check_heads(fields, own("attention.head_count"), kv_key, *config));
  return share_kv(fields, shared_key, num_shared, config);
}

// One number, or the same for every layer.
Result<int64_t> uniform(const ConfigFields& fields, const std::string& key, int64_t count,
                        int64_t high) {
  MB_ASSIGN(const int64_t first, fields.integer_at(key, 0, count, 1, high));
  for (int64_t i = 1; i < count; ++i) {
    MB_ASSIGN(const int64_t other, fields.integer_at(key, i, count, 1, high));
    if (other != first) return fields.wrong(key, "the same number in every layer");
  }
  return first;
}

Result<void> read_experts(const ConfigFields& fields, TextConfig* config) {
  MB_ASSIGN(config->num_experts, fields.integer(own("expert_count"), 0, kMaxExperts, 0));
  if (config->num_experts == 0) return {};
  MB_ASSIGN(config->top_k_experts,
            fields.integer(own("expert_used_count"), 1, config->num_experts));
  MB_ASSIGN(config->moe_intermediate_size, uniform(fields, own("expert_feed_forward_length"),
                                                   config->num_hidden_layers, kMaxWidth));
  return {};
}

Result<void> refuse_features(const ConfigFields& fields) {
  const auto is_none = [&](const std::string& key, double none) {
    const base::Json* value = fields.find(key);
    return value == nullptr || (value->is_number() && *value == none);
  };
  if (!is_none(own("attn_logit_softcapping"), 0.0)) {
    return fields.wrong(own("attn_logit_softcapping"), "none");
  }
  if (!is_none(own("attention.scale"), 1.0)) return fields.wrong(own("attention.scale"), "1");
  MB_ASSIGN(const std::string scaling, fields.text(own("rope.scaling.type"), "none"));
  if (scaling != "none") return fields.wrong(own("rope.scaling.type"), "\"none\"");
  if (!is_none(own("rope.scaling.factor"), 1.0)) {
    return fields.wrong(own("rope.scaling.factor"), "1");
  }
  MB_ASSIGN(const bool causal, fields.boolean(own("attention.causal"), true));
  if (!causal) return fields.wrong(own("attention.causal"), "true");
  return {};
}

}  // namespace

Result<TextConfig> gemma4_from_gguf(const ConfigFields& fields) {
  MB_TRY(refuse_features(fields));
  TextConfig config;
  config.model_type = "gemma4_text";
  config.value_norm = true;
  config.layer_scalar = true;
  MB_ASSIGN(config.hidden_size, fields.integer(own("embedding_length"), 1, kMaxWidth));
  MB_ASSIGN(config.num_hidden_layers, fields.integer(own("block_count"), 1, kMaxLayers));
  MB_ASSIGN(config.num_attention_heads,
            uniform(fields, own("attention.head_count"), config.num_hidden_layers, kMaxHeads));
  MB_ASSIGN(config.max_position_embeddings,
            fields.integer(own("context_length"), 1, kMaxPositions));
  MB_ASSIGN(const double eps, fields.real(own("attention.layer_norm_rms_epsilon"), 0.0, 1.0));
  MB_ASSIGN(const double cap, fields.real(own("final_logit_softcapping"), 0.0, 1e9, 0.0));
  config.rms_norm_eps = static_cast<float>(eps);
  config.final_logit_softcapping = static_cast<float>(cap);
  MB_ASSIGN(config.hidden_size_per_layer_input,
            fields.integer(own("embedding_length_per_layer_input"), 0, kMaxWidth, 0));
  MB_TRY(read_experts(fields, &config));
  MB_TRY(read_layers(fields, &config));
  return config;
}

}  // namespace markbase::model
