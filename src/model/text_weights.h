// The weights of a text decoder inside a backend.
#pragma once

#include <memory>
#include <vector>

#include "model/config.h"
#include "model/weight_map.h"
#include "ops/backend.h"

namespace markbase::model {

using PackedWeights = std::vector<std::unique_ptr<ops::PackedWeight>>;

// What a layer does not have stays empty.
struct LayerWeights {
  tensor::TensorView input_layernorm;               // [hidden_size] f32
  tensor::TensorView post_attention_layernorm;      // [hidden_size] f32
  tensor::TensorView pre_feedforward_layernorm;     // [hidden_size] f32
  tensor::TensorView post_feedforward_layernorm;    // [hidden_size] f32
  tensor::TensorView post_feedforward_layernorm_1;  // [hidden_size] f32
  tensor::TensorView pre_feedforward_layernorm_2;   // [hidden_size] f32
  tensor::TensorView post_feedforward_layernorm_2;  // [hidden_size] f32
  tensor::TensorView post_per_layer_input_norm;     // [hidden_size] f32
  tensor::TensorView q_norm;                        // [head_dim] f32
  tensor::TensorView k_norm;                        // [head_dim] f32
  tensor::TensorView router_scale;                  // [hidden_size] f32, times hidden_size^-1/2
  tensor::TensorView per_expert_scale;              // [num_experts] f32
  float layer_scalar = 1.0F;
  std::unique_ptr<ops::PackedWeight> q_proj;
  std::unique_ptr<ops::PackedWeight> k_proj;
  std::unique_ptr<ops::PackedWeight> v_proj;
  std::unique_ptr<ops::PackedWeight> o_proj;
  std::unique_ptr<ops::PackedWeight> gate_proj;
  std::unique_ptr<ops::PackedWeight> up_proj;
  std::unique_ptr<ops::PackedWeight> down_proj;
  std::unique_ptr<ops::PackedWeight> per_layer_input_gate;
  std::unique_ptr<ops::PackedWeight> per_layer_projection;
  std::unique_ptr<ops::PackedWeight> router_proj;
  PackedWeights expert_gate_proj;  // [num_experts]
  PackedWeights expert_up_proj;
  PackedWeights expert_down_proj;
};

// Valid while the backend lives, and the file that a mapped table looks into.
struct TextWeights {
  std::unique_ptr<ops::PackedWeight> embed_tokens;
  std::unique_ptr<ops::PackedWeight> lm_head;                     // null: the head is embed_tokens
  std::unique_ptr<ops::PackedWeight> embed_tokens_per_layer;      // mapped: looked up, never packed
  std::unique_ptr<ops::PackedWeight> per_layer_model_projection;  // null without per-layer inputs
  tensor::TensorView norm;                                        // [hidden_size] f32
  tensor::TensorView per_layer_projection_norm;  // [hidden_size_per_layer_input] f32
  float embed_scale = 1.0F;
  float per_layer_embed_scale = 1.0F;
  std::vector<LayerWeights> layers;
  std::unique_ptr<ops::DeviceBuffer> vectors;  // what the views look into

  TextWeights() = default;
  explicit TextWeights(const TextConfig& config);

  const ops::PackedWeight& head() const { return lm_head ? *lm_head : *embed_tokens; }
  // Where a mapped weight goes: a matrix (or the table), a vector (nullptr for the layer scalar,
  // which is a number of the layer).
  std::unique_ptr<ops::PackedWeight>* matrix_slot(const MappedWeight& weight);
  tensor::TensorView* vector_slot(const MappedWeight& weight);
  // Bytes of all packed matrices, and of those that one decoded token reads.
  uint64_t total_bytes() const;
  uint64_t bytes_per_token() const;

 private:
  int64_t top_k_experts_ = 0;
};

// The one weight that is looked up where it is mapped, on every backend.
inline bool is_mapped_table(const MappedWeight& weight) {
  return weight.id == WeightId::kEmbedTokensPerLayer;
}
// The weights that a backend packs.
inline bool is_packed(const MappedWeight& weight) {
  return !weight.is_vector && !is_mapped_table(weight);
}

}  // namespace markbase::model
