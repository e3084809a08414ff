// The weights of a text decoder inside a backend.
#pragma once

#include <memory>
#include <vector>

#include "model/config.h"
#include "model/weight_map.h"
#include "ops/backend.h"

namespace markbase::model {

struct LayerWeights {
  tensor::TensorView input_layernorm;             // [hidden_size] f32
  tensor::TensorView post_attention_layernorm;    // [hidden_size] f32
  tensor::TensorView pre_feedforward_layernorm;   // [hidden_size] f32
  tensor::TensorView post_feedforward_layernorm;  // [hidden_size] f32
  tensor::TensorView q_norm;                      // [head_dim] f32
  tensor::TensorView k_norm;                      // [head_dim] f32
  std::unique_ptr<ops::PackedWeight> q_proj;
  std::unique_ptr<ops::PackedWeight> k_proj;
  std::unique_ptr<ops::PackedWeight> v_proj;
  std::unique_ptr<ops::PackedWeight> o_proj;
  std::unique_ptr<ops::PackedWeight> gate_proj;
  std::unique_ptr<ops::PackedWeight> up_proj;
  std::unique_ptr<ops::PackedWeight> down_proj;
};

// Valid while the backend lives.
struct TextWeights {
  std::unique_ptr<ops::PackedWeight> embed_tokens;
  std::unique_ptr<ops::PackedWeight> lm_head;  // null: the head is embed_tokens
  tensor::TensorView norm;                     // [hidden_size] f32
  float embed_scale = 1.0F;
  std::vector<LayerWeights> layers;
  std::unique_ptr<ops::DeviceBuffer> norms;  // what the norm views look into

  const ops::PackedWeight& head() const { return lm_head ? *lm_head : *embed_tokens; }
  // Where a mapped weight goes.
  std::unique_ptr<ops::PackedWeight>* matrix_slot(WeightId id, int64_t layer);
  tensor::TensorView* vector_slot(WeightId id, int64_t layer);
  // Bytes of all packed matrices, and of those that one decoded token reads.
  uint64_t total_bytes() const;
  uint64_t bytes_per_token() const;
};

}  // namespace markbase::model
