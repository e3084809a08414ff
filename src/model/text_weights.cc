#include "model/text_weights.h"

namespace markbase::model {

std::unique_ptr<ops::PackedWeight>* TextWeights::matrix_slot(WeightId id, int64_t layer_idx) {
  if (id == WeightId::kEmbedTokens) return &embed_tokens;
  if (id == WeightId::kLmHead) return &lm_head;
  LayerWeights& layer = layers[static_cast<size_t>(layer_idx)];
  switch (id) {
    case WeightId::kQProj:
      return &layer.q_proj;
    case WeightId::kKProj:
      return &layer.k_proj;
    case WeightId::kVProj:
      return &layer.v_proj;
    case WeightId::kOProj:
      return &layer.o_proj;
    case WeightId::kGateProj:
      return &layer.gate_proj;
    case WeightId::kUpProj:
      return &layer.up_proj;
    case WeightId::kDownProj:
      return &layer.down_proj;
    default:
      return nullptr;
  }
}

tensor::TensorView* TextWeights::vector_slot(WeightId id, int64_t layer_idx) {
  if (id == WeightId::kNorm) return &norm;
  LayerWeights& layer = layers[static_cast<size_t>(layer_idx)];
  switch (id) {
    case WeightId::kInputLayernorm:
      return &layer.input_layernorm;
    case WeightId::kPostAttentionLayernorm:
      return &layer.post_attention_layernorm;
    case WeightId::kPreFeedforwardLayernorm:
      return &layer.pre_feedforward_layernorm;
    case WeightId::kPostFeedforwardLayernorm:
      return &layer.post_feedforward_layernorm;
    case WeightId::kQNorm:
      return &layer.q_norm;
    case WeightId::kKNorm:
      return &layer.k_norm;
    default:
      return nullptr;
  }
}

uint64_t TextWeights::bytes_per_token() const {
  uint64_t bytes = head().size_bytes();
  for (const LayerWeights& layer : layers) {
    for (const auto* weight : {&layer.q_proj, &layer.k_proj, &layer.v_proj, &layer.o_proj,
                               &layer.gate_proj, &layer.up_proj, &layer.down_proj}) {
      bytes += (*weight)->size_bytes();
    }
  }
  return bytes;
}

uint64_t TextWeights::total_bytes() const {
  return bytes_per_token() + (lm_head ? embed_tokens->size_bytes() : 0);
}

}  // namespace markbase::model
