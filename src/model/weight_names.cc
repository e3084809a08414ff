#include "model/weight_names.h"

#include <algorithm>

#include "base/error.h"

namespace markbase::model {
namespace {

using enum WeightId;
using enum Presence;

// clang-format off
constexpr std::array kNames = {
    NameRow{kEmbedTokens, kAlways, false, false,
            "embed_tokens", "embed_tokens.weight", "token_embd.weight"},
    NameRow{kLmHead, kUntiedHead, false, false, "lm_head", "lm_head.weight", "output.weight"},
    NameRow{kNorm, kAlways, false, true, "norm", "norm.weight", "output_norm.weight"},
    NameRow{kEmbedTokensPerLayer, kPerLayerEmbeddings, false, false,
            "embed_tokens_per_layer", "embed_tokens_per_layer.weight",
            "per_layer_token_embd.weight"},
    NameRow{kPerLayerModelProjection, kPerLayerEmbeddings, false, false,
            "per_layer_model_projection", "per_layer_model_projection.weight",
            "per_layer_model_proj.weight"},
    NameRow{kPerLayerProjectionNorm, kPerLayerEmbeddings, false, true,
            "per_layer_projection_norm", "per_layer_projection_norm.weight",
            "per_layer_proj_norm.weight"},

    NameRow{kInputLayernorm, kAlways, true, true,
            "input_layernorm", "input_layernorm.weight", "attn_norm.weight"},
    NameRow{kQProj, kAlways, true, false, "attn.q_proj", "self_attn.q_proj.weight", "attn_q.weight"},
    NameRow{kKProj, kOwnKeys, true, false,
            "attn.k_proj", "self_attn.k_proj.weight", "attn_k.weight"},
    NameRow{kVProj, kOwnValues, true, false,
            "attn.v_proj", "self_attn.v_proj.weight", "attn_v.weight"},
    NameRow{kQNorm, kAlways, true, true,
            "attn.q_norm", "self_attn.q_norm.weight", "attn_q_norm.weight"},
    NameRow{kKNorm, kOwnKeys, true, true,
            "attn.k_norm", "self_attn.k_norm.weight", "attn_k_norm.weight"},
    NameRow{kOProj, kAlways, true, false,
            "attn.o_proj", "self_attn.o_proj.weight", "attn_output.weight"},
    NameRow{kPostAttentionLayernorm, kAlways, true, true,
            "post_attention_layernorm", "post_attention_layernorm.weight",
            "post_attention_norm.weight"},
    NameRow{kPreFeedforwardLayernorm, kAlways, true, true,
            "pre_feedforward_layernorm", "pre_feedforward_layernorm.weight", "ffn_norm.weight"},
    NameRow{kGateProj, kAlways, true, false,
            "mlp.gate_proj", "mlp.gate_proj.weight", "ffn_gate.weight"},
    NameRow{kUpProj, kAlways, true, false, "mlp.up_proj", "mlp.up_proj.weight", "ffn_up.weight"},
    NameRow{kDownProj, kAlways, true, false,
            "mlp.down_proj", "mlp.down_proj.weight", "ffn_down.weight"},
    NameRow{kPostFeedforwardLayernorm1, kExperts, true, true,
            "post_feedforward_layernorm_1", "post_feedforward_layernorm_1.weight",
            "post_ffw_norm_1.weight"},
    NameRow{kRouterScale, kExperts, true, true,
            "router.scale", "router.scale", "ffn_gate_inp.scale"},
    NameRow{kRouterProj, kExperts, true, false,
            "router.proj", "router.proj.weight", "ffn_gate_inp.weight"},
    NameRow{kPerExpertScale, kExpertScale, true, true,
            "router.per_expert_scale", "router.per_expert_scale", "ffn_down_exps.scale"},
    NameRow{kPreFeedforwardLayernorm2, kExperts, true, true,
            "pre_feedforward_layernorm_2", "pre_feedforward_layernorm_2.weight",
            "pre_ffw_norm_2.weight"},
    NameRow{kPostFeedforwardLayernorm2, kExperts, true, true,
            "post_feedforward_layernorm_2", "post_feedforward_layernorm_2.weight",
            "post_ffw_norm_2.weight"},
    NameRow{kPostFeedforwardLayernorm, kAlways, true, true,
            "post_feedforward_layernorm", "post_feedforward_layernorm.weight",
            "post_ffw_norm.weight"},
    NameRow{kPerLayerInputGate, kPerLayerEmbeddings, true, false,
            "per_layer_input_gate", "per_layer_input_gate.weight", "inp_gate.weight"},
    NameRow{kPerLayerProjection, kPerLayerEmbeddings, true, false,
            "per_layer_projection", "per_layer_projection.weight", "proj.weight"},
    NameRow{kPostPerLayerInputNorm, kPerLayerEmbeddings, true, true,
            "post_per_layer_input_norm", "post_per_layer_input_norm.weight", "post_norm.weight"},
    NameRow{kLayerScalar, kScalar, true, true,
            "layer_scalar", "layer_scalar", "layer_output_scale.weight"},
};

// Hugging Face stacks gate on up in one tensor without suffix; MLX parts them.
constexpr std::array kExpertNames = {
    ExpertRow{kExpertGateProj, "gate_proj",
              {{{"experts.switch_glu.gate_proj", 0, 1}, {"experts.gate_up_proj", 0, 2}}},
              {{{"ffn_gate_up_exps", 0, 2}, {"ffn_gate_exps", 0, 1}}}},
    ExpertRow{kExpertUpProj, "up_proj",
              {{{"experts.switch_glu.up_proj", 0, 1}, {"experts.gate_up_proj", 1, 2}}},
              {{{"ffn_gate_up_exps", 1, 2}, {"ffn_up_exps", 0, 1}}}},
    ExpertRow{kExpertDownProj, "down_proj",
              {{{"experts.switch_glu.down_proj", 0, 1}, {"experts.down_proj", 0, 1}}},
              {{{"ffn_down_exps", 0, 1}, {"ffn_down_exps", 0, 1}}}},
};
// clang-format on

// Prefixes of the text part, the most usual first. The second and the fourth are written by nobody
// that we know, but mlx-vlm reads them.
constexpr std::array kHfPrefixes = {"language_model.model.",
                                    "model.language_model.model.",
                                    "model.language_model.",
                                    "language_model.",
                                    "model.",
                                    ""};

}  // namespace

std::span<const NameRow> weight_names() { return kNames; }
std::span<const ExpertRow> expert_names() { return kExpertNames; }

NameScheme::NameScheme(const formats::WeightSource& source)
    : gguf_(source.kind() == formats::FileKind::kGguf) {
  const auto found = std::find_if(kHfPrefixes.begin(), kHfPrefixes.end(), [&](const char* prefix) {
    return source.find(std::string(prefix) + "embed_tokens.weight") != nullptr;
  });
  if (found != kHfPrefixes.end()) prefix_ = *found;
}

std::string NameScheme::all_layers() const { return gguf_ ? "blk." : prefix_ + "layers."; }

std::string NameScheme::layer_prefix(int64_t layer) const {
  return fmt::format("{}{}.", all_layers(), layer);
}

std::string NameScheme::tensor(const NameRow& row, int64_t layer) const {
  if (row.in_layer) return layer_prefix(layer) + (gguf_ ? row.gguf : row.hf);
  if (gguf_) return row.gguf;
  if (row.id != kLmHead) return prefix_ + row.hf;
  // The head stands beside the decoder, not inside it.
  const bool nested = prefix_ == "language_model.model.";
  return nested ? "language_model.lm_head.weight" : "lm_head.weight";
}

}  // namespace markbase::model
