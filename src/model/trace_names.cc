// The named intermediates of a decoder, in the order in which a step shows them.
//
//   embedding                     the scaled embedding
//   ple.tokens, ple.context       [layers, width] per-layer embeddings, and what the projection of
//                                 the embedding adds to them
//   ple.inputs                    [layers, width] both together
//   layer.N.input_layernorm
//   layer.N.attn.q, .k, .v        the projections; no k and v where another layer's are used, no v
//                                 where V is made from k
//   layer.N.attn.v_norm, .k_norm, .k_rope, .q_norm, .q_rope
//   layer.N.attn.heads, .o_proj
//   layer.N.post_attention_layernorm, attn.residual, pre_feedforward_layernorm
//   layer.N.mlp.gate, .up, .product, .down_proj
//   layer.N.post_feedforward_layernorm_1
//   layer.N.router.scaled, .scores, .probs, .weights     the router's input, a score and a
//   probability
//                                 for every expert, and the weights of those chosen, best first
//   layer.N.pre_feedforward_layernorm_2, experts.output, post_feedforward_layernorm_2
//   layer.N.experts.sum           dense branch and experts
//   layer.N.post_feedforward_layernorm, mlp.residual
//   layer.N.ple.gate, .product, .projection, post_per_layer_input_norm, ple.residual
//   layer.N.output                after the layer scalar
//   final_norm, logits
#include "base/error.h"
#include "model/text_decoder.h"

namespace markbase::model {
namespace {

using Names = std::vector<TraceName>;

void add_attention(const TextConfig& config, const LayerConfig& layer, Names& names) {
  const std::vector<int64_t> queries = {config.num_attention_heads, layer.head_dim};
  const std::vector<int64_t> keys = {layer.num_key_value_heads, layer.head_dim};
  const std::vector<int64_t> hidden = {config.hidden_size};
  names.push_back({"input_layernorm", hidden});
  names.push_back({"attn.q", queries});
  if (layer.owns_kv()) names.push_back({"attn.k", keys});
  if (layer.owns_kv() && !layer.attention_k_eq_v) names.push_back({"attn.v", keys});
  if (layer.owns_kv() && config.value_norm) names.push_back({"attn.v_norm", keys});
  if (layer.owns_kv()) {
    names.push_back({"attn.k_norm", keys});
    names.push_back({"attn.k_rope", keys});
  }
  names.push_back({"attn.q_norm", queries});
  names.push_back({"attn.q_rope", queries});
  names.push_back({"attn.heads", queries});
  names.push_back({"attn.o_proj", hidden});
  names.push_back({"post_attention_layernorm", hidden});
  names.push_back({"attn.residual", hidden});
}

void add_feed_forward(const TextConfig& config, const LayerConfig& layer, Names& names) {
  const std::vector<int64_t> hidden = {config.hidden_size};
  const std::vector<int64_t> wide = {layer.intermediate_size};
  names.push_back({"pre_feedforward_layernorm", hidden});
  names.push_back({"mlp.gate", wide});
  names.push_back({"mlp.up", wide});
  names.push_back({"mlp.product", wide});
  names.push_back({"mlp.down_proj", hidden});
  if (config.num_experts > 0) {
    names.push_back({"post_feedforward_layernorm_1", hidden});
    names.push_back({"router.scaled", hidden});
    names.push_back({"router.scores", {config.num_experts}});
    names.push_back({"router.probs", {config.num_experts}});
    names.push_back({"router.weights", {config.top_k_experts}});
    names.push_back({"pre_feedforward_layernorm_2", hidden});
    names.push_back({"experts.output", hidden});
    names.push_back({"post_feedforward_layernorm_2", hidden});
    names.push_back({"experts.sum", hidden});
  }
  names.push_back({"post_feedforward_layernorm", hidden});
}

void add_layer_end(const TextConfig& config, Names& names) {
  const std::vector<int64_t> hidden = {config.hidden_size};
  const int64_t width = config.hidden_size_per_layer_input;
  if (width > 0 || config.layer_scalar) names.push_back({"mlp.residual", hidden});
  if (width > 0) {
    names.push_back({"ple.gate", {width}});
    names.push_back({"ple.product", {width}});
    names.push_back({"ple.projection", hidden});
    names.push_back({"post_per_layer_input_norm", hidden});
    if (config.layer_scalar) names.push_back({"ple.residual", hidden});
  }
  names.push_back({"output", hidden});
}

}  // namespace

std::vector<TraceName> trace_names(const TextConfig& config) {
  const int64_t width = config.hidden_size_per_layer_input;
  Names names = {{"embedding", {config.hidden_size}}};
  if (width > 0) {
    for (const char* name : {"ple.tokens", "ple.context", "ple.inputs"}) {
      names.push_back({name, {config.num_hidden_layers, width}});
    }
  }
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    Names of_layer;
    add_attention(config, layer, of_layer);
    add_feed_forward(config, layer, of_layer);
    add_layer_end(config, of_layer);
    for (TraceName& entry : of_layer) {
      names.push_back({fmt::format("layer.{}.{}", i, entry.name), std::move(entry.shape)});
    }
  }
  names.push_back({"final_norm", {config.hidden_size}});
  names.push_back({"logits", {config.vocab_size}});
  return names;
}

}  // namespace markbase::model
