#include "model/weight_shapes.h"

namespace markbase::model {
namespace {

WeightShape model_shape(const TextConfig& config, WeightId id) {
  const int64_t all_layers = config.num_hidden_layers * config.hidden_size_per_layer_input;
  switch (id) {
    case WeightId::kEmbedTokens:
    case WeightId::kLmHead:
      return {config.vocab_size, config.hidden_size};
    case WeightId::kEmbedTokensPerLayer:
      return {config.vocab_size_per_layer_input, all_layers};
    case WeightId::kPerLayerModelProjection:
      return {all_layers, config.hidden_size};
    case WeightId::kPerLayerProjectionNorm:
      return {1, config.hidden_size_per_layer_input};
    default:
      return {1, config.hidden_size};
  }
}

WeightShape attention_shape(const TextConfig& config, const LayerConfig& layer, WeightId id) {
  const int64_t queries = config.num_attention_heads * layer.head_dim;
  switch (id) {
    case WeightId::kQProj:
      return {queries, config.hidden_size};
    case WeightId::kOProj:
      return {config.hidden_size, queries};
    case WeightId::kKProj:
    case WeightId::kVProj:
      return {layer.num_key_value_heads * layer.head_dim, config.hidden_size};
    default:
      return {1, layer.head_dim};
  }
}

}  // namespace

WeightShape expected_shape(const TextConfig& config, WeightId id, int64_t layer_idx) {
  if (layer_idx < 0) return model_shape(config, id);
  const int64_t hidden = config.hidden_size;
  const LayerConfig& layer = config.layers[static_cast<size_t>(layer_idx)];
  switch (id) {
    case WeightId::kQProj:
    case WeightId::kKProj:
    case WeightId::kVProj:
    case WeightId::kOProj:
    case WeightId::kQNorm:
    case WeightId::kKNorm:
      return attention_shape(config, layer, id);
    case WeightId::kGateProj:
    case WeightId::kUpProj:
      return {layer.intermediate_size, hidden};
    case WeightId::kDownProj:
      return {hidden, layer.intermediate_size};
    case WeightId::kPerLayerInputGate:
      return {config.hidden_size_per_layer_input, hidden};
    case WeightId::kPerLayerProjection:
      return {hidden, config.hidden_size_per_layer_input};
    case WeightId::kLayerScalar:
      return {1, 1};
    case WeightId::kRouterProj:
      return {config.num_experts, hidden};
    case WeightId::kPerExpertScale:
      return {1, config.num_experts};
    case WeightId::kExpertGateProj:
    case WeightId::kExpertUpProj:
      return {config.moe_intermediate_size, hidden};
    case WeightId::kExpertDownProj:
      return {hidden, config.moe_intermediate_size};
    default:
      return {1, hidden};
  }
}

}  // namespace markbase::model
