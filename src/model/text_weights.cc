#include "model/text_weights.h"

#include <array>

namespace markbase::model {
namespace {

uint64_t bytes_of(const std::unique_ptr<ops::PackedWeight>& weight) {
  return weight == nullptr ? 0 : weight->size_bytes();
}

// The matrices of a layer that every token meets.
std::array<const std::unique_ptr<ops::PackedWeight>*, 10> dense_matrices(
    const LayerWeights& layer) {
  return {&layer.q_proj,
          &layer.k_proj,
          &layer.v_proj,
          &layer.o_proj,
          &layer.gate_proj,
          &layer.up_proj,
          &layer.down_proj,
          &layer.per_layer_input_gate,
          &layer.per_layer_projection,
          &layer.router_proj};
}

uint64_t dense_bytes(const LayerWeights& layer) {
  uint64_t bytes = 0;
  for (const auto* weight : dense_matrices(layer)) bytes += bytes_of(*weight);
  return bytes;
}

uint64_t expert_bytes(const LayerWeights& layer) {
  uint64_t bytes = 0;
  for (const PackedWeights* experts :
       {&layer.expert_gate_proj, &layer.expert_up_proj, &layer.expert_down_proj}) {
    for (const auto& weight : *experts) bytes += bytes_of(weight);
  }
  return bytes;
}

std::unique_ptr<ops::PackedWeight>* expert_slot(LayerWeights& layer, WeightId id, int64_t expert) {
  const auto idx = static_cast<size_t>(expert);
  switch (id) {
    case WeightId::kExpertGateProj:
      return &layer.expert_gate_proj[idx];
    case WeightId::kExpertUpProj:
      return &layer.expert_up_proj[idx];
    case WeightId::kExpertDownProj:
      return &layer.expert_down_proj[idx];
    default:
      return nullptr;
  }
}

}  // namespace

TextWeights::TextWeights(const TextConfig& config) : top_k_experts_(config.top_k_experts) {
  layers.resize(static_cast<size_t>(config.num_hidden_layers));
  for (LayerWeights& layer : layers) {
    const auto num_experts = static_cast<size_t>(config.num_experts);
    layer.expert_gate_proj.resize(num_experts);
    layer.expert_up_proj.resize(num_experts);
    layer.expert_down_proj.resize(num_experts);
  }
}

std::unique_ptr<ops::PackedWeight>* TextWeights::matrix_slot(const MappedWeight& weight) {
  switch (weight.id) {
    case WeightId::kEmbedTokens:
      return &embed_tokens;
    case WeightId::kLmHead:
      return &lm_head;
    case WeightId::kEmbedTokensPerLayer:
      return &embed_tokens_per_layer;
    case WeightId::kPerLayerModelProjection:
      return &per_layer_model_projection;
    default:
      break;
  }
  LayerWeights& layer = layers[static_cast<size_t>(weight.layer)];
  if (weight.expert >= 0) return expert_slot(layer, weight.id, weight.expert);
  switch (weight.id) {
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
    case WeightId::kPerLayerInputGate:
      return &layer.per_layer_input_gate;
    case WeightId::kPerLayerProjection:
      return &layer.per_layer_projection;
    case WeightId::kRouterProj:
      return &layer.router_proj;
    default:
      return nullptr;
  }
}

tensor::TensorView* TextWeights::vector_slot(const MappedWeight& weight) {
  if (weight.id == WeightId::kNorm) return &norm;
  if (weight.id == WeightId::kPerLayerProjectionNorm) return &per_layer_projection_norm;
  LayerWeights& layer = layers[static_cast<size_t>(weight.layer)];
  switch (weight.id) {
    case WeightId::kInputLayernorm:
      return &layer.input_layernorm;
    case WeightId::kPostAttentionLayernorm:
      return &layer.post_attention_layernorm;
    case WeightId::kPreFeedforwardLayernorm:
      return &layer.pre_feedforward_layernorm;
    case WeightId::kPostFeedforwardLayernorm:
      return &layer.post_feedforward_layernorm;
    case WeightId::kPostFeedforwardLayernorm1:
      return &layer.post_feedforward_layernorm_1;
    case WeightId::kPreFeedforwardLayernorm2:
      return &layer.pre_feedforward_layernorm_2;
    case WeightId::kPostFeedforwardLayernorm2:
      return &layer.post_feedforward_layernorm_2;
    case WeightId::kPostPerLayerInputNorm:
      return &layer.post_per_layer_input_norm;
    case WeightId::kRouterScale:
      return &layer.router_scale;
    case WeightId::kPerExpertScale:
      return &layer.per_expert_scale;
    case WeightId::kQNorm:
      return &layer.q_norm;
    case WeightId::kKNorm:
      return &layer.k_norm;
    default:
      return nullptr;
  }
}

// Experts are alike: as many bytes for each.
uint64_t TextWeights::bytes_per_token() const {
  uint64_t bytes = head().size_bytes() + bytes_of(per_layer_model_projection);
  for (const LayerWeights& layer : layers) {
    bytes += dense_bytes(layer);
    if (layer.expert_gate_proj.empty()) continue;
    bytes +=
        expert_bytes(layer) * static_cast<uint64_t>(top_k_experts_) / layer.expert_gate_proj.size();
  }
  return bytes;
}

uint64_t TextWeights::total_bytes() const {
  uint64_t bytes =
      bytes_of(embed_tokens) + bytes_of(lm_head) + bytes_of(per_layer_model_projection);
  for (const LayerWeights& layer : layers) bytes += dense_bytes(layer) + expert_bytes(layer);
  return bytes;
}

}  // namespace markbase::model
