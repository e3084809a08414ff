// TextConfig: the shape of a Gemma text decoder, by the field names that Hugging Face publishes.
//
// It comes from config.json or from GGUF metadata; the forward pass knows only this struct. What
// differs between layers stands in LayerConfig, so a model whose layers differ needs other data,
// not other code.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "formats/weight_source.h"
#include "markbase/result.h"

namespace markbase::model {

enum class LayerType : uint8_t { kSliding, kFull };
std::string_view layer_type_name(LayerType type);  // "sliding_attention", "full_attention"

// Frequencies of the rotary embedding: inv_freq[k] = theta^(-2k / head_dim) / factor for the first
// int(partial_rotary_factor * head_dim / 2) pairs k, 0 (no rotation) for the others
// ("proportional").
struct RopeConfig {
  double rope_theta = 10000.0;
  double factor = 1.0;  // "linear" scaling
  double partial_rotary_factor = 1.0;
  int64_t head_dim = 0;

  bool operator==(const RopeConfig&) const = default;
  int64_t num_rotated_pairs() const;
  // [head_dim / 2], computed in float32 step by step as the reference does.
  std::vector<float> inv_freq() const;
};

struct LayerConfig {
  LayerType type = LayerType::kFull;
  int64_t head_dim = 0;
  int64_t num_key_value_heads = 0;
  int64_t intermediate_size = 0;
  int64_t sliding_window = 0;     // keys a query sees, itself included; 0: all
  int rope_idx = 0;               // into TextConfig::ropes
  bool attention_k_eq_v = false;  // no v_proj: V is the key projection before its norm and rope
  // Layer whose K and V this one attends to: -1: its own. Otherwise it has no k_proj, v_proj,
  // k_norm.
  int64_t kv_source_idx = -1;

  bool owns_kv() const { return kv_source_idx < 0; }
};

struct TextConfig {
  std::string model_type;  // "gemma3_text"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6F;
  float attention_scale = 1.0F;          // query_pre_attn_scalar^-1/2
  float final_logit_softcapping = 0.0F;  // 0: none
  bool tie_word_embeddings = true;
  bool value_norm = false;    // V is RMS-normed without weight
  bool layer_scalar = false;  // each layer's output is multiplied by a number of its own
  int64_t hidden_size_per_layer_input = 0;  // width of a layer's slice of the per-layer embeddings
  int64_t vocab_size_per_layer_input = 0;   // rows of their table; 0 with the above: there are none
  int64_t num_experts = 0;                  // 0: dense layers only
  int64_t top_k_experts = 0;
  int64_t moe_intermediate_size = 0;
  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;  // num_hidden_layers

  int64_t max_head_dim() const;
  int64_t max_key_value_heads() const;
  int64_t max_intermediate_size() const;
};

// What this build understands, for messages.
std::string_view supported_architectures();

// Errors (kBadInput): an architecture we do not know, a key that is missing, of another type or out
// of range, a feature that this decoder does not have. `where` names the file.
Result<TextConfig> config_from_hf(const base::Json& config, std::string_view where);
Result<TextConfig> config_from_gguf(const base::Json& metadata, std::string_view where);
// By the kind of the source; for GGUF the vocabulary size is that of the embedding table.
Result<TextConfig> read_config(const formats::WeightSource& source);
// The path that read_config names in its errors.
std::string config_path(const formats::WeightSource& source);

}  // namespace markbase::model
