#include "model/config_keys.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

namespace markbase::model {
namespace {

using Keys = std::span<const std::string_view>;

// What the readers of config.json take from the text part.
constexpr std::string_view kTextKeys[] = {"vocab_size",
                                          "hidden_size",
                                          "intermediate_size",
                                          "num_hidden_layers",
                                          "num_attention_heads",
                                          "num_key_value_heads",
                                          "head_dim",
                                          "global_head_dim",
                                          "num_global_key_value_heads",
                                          "attention_k_eq_v",
                                          "num_kv_shared_layers",
                                          "use_double_wide_mlp",
                                          "layer_types",
                                          "sliding_window",
                                          "sliding_window_pattern",
                                          "_sliding_window_pattern",
                                          "rope_parameters",
                                          "rope_theta",
                                          "rope_local_base_freq",
                                          "rope_scaling",
                                          "hidden_size_per_layer_input",
                                          "vocab_size_per_layer_input",
                                          "enable_moe_block",
                                          "num_experts",
                                          "top_k_experts",
                                          "moe_intermediate_size",
                                          "expert_intermediate_size",
                                          "hidden_activation",
                                          "hidden_act",
                                          "rms_norm_eps",
                                          "final_logit_softcapping",
                                          "attn_logit_softcapping",
                                          "use_bidirectional_attention",
                                          "max_position_embeddings",
                                          "tie_word_embeddings",
                                          "attention_bias",
                                          "query_pre_attn_scalar",
                                          "per_layer_config",
                                          "pad_token_id",
                                          "eos_token_id",
                                          "bos_token_id",
                                          "model_type",
                                          "text_config"};

// Training, bookkeeping and defaults of generation: no effect on the decoder's numbers.
constexpr std::string_view kIdleKeys[] = {"architectures",
                                          "torch_dtype",
                                          "dtype",
                                          "transformers_version",
                                          "_name_or_path",
                                          "name_or_path",
                                          "initializer_range",
                                          "use_cache",
                                          "cache_implementation",
                                          "attention_dropout",
                                          "dropout",
                                          "id2label",
                                          "label2id",
                                          "problem_type",
                                          "return_dict",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "chunk_size_feed_forward",
                                          "is_encoder_decoder",
                                          "torchscript",
                                          "use_bfloat16",
                                          "pruned_heads",
                                          "finetuning_task",
                                          "task_specific_params",
                                          "tokenizer_class",
                                          "prefix",
                                          "is_decoder",
                                          "add_cross_attention",
                                          "cross_attention_hidden_size",
                                          "tie_encoder_decoder",
                                          "_attn_implementation",
                                          "_attn_implementation_autoset",
                                          "auto_map"};

// mlx-vlm copies generation_config.json into the config.json that it writes: the file itself is
// what is read.
constexpr std::string_view kCopiedKeys[] = {"generation_config", "do_sample", "temperature",
                                            "top_k", "top_p"};

// Of the whole model: towers, placeholder tokens, quantisation.
constexpr std::string_view kWholeKeys[] = {
    "vision_config",   "audio_config",       "image_token_id",      "audio_token_id",
    "video_token_id",  "boi_token_id",       "eoi_token_id",        "boa_token_id",
    "eoa_token_id",    "boi_token_index",    "eoi_token_index",     "boa_token_index",
    "eoa_token_index", "image_token_index",  "mm_tokens_per_image", "vision_soft_tokens_per_image",
    "quantization",    "quantization_config"};

// After the architecture's prefix.
constexpr std::string_view kGgufKeys[] = {
    "block_count", "context_length", "embedding_length", "feed_forward_length",
    "attention.head_count", "attention.head_count_kv", "attention.key_length",
    "attention.value_length", "attention.key_length_swa", "attention.value_length_swa",
    "attention.layer_norm_rms_epsilon", "attention.sliding_window",
    "attention.sliding_window_pattern", "attention.shared_kv_layers", "attention.scale",
    "attention.causal", "embedding_length_per_layer_input", "rope.freq_base", "rope.freq_base_swa",
    "rope.local.freq_base", "rope.global.freq_base", "rope.dimension_count",
    "rope.dimension_count_swa", "rope.scaling.type", "rope.scaling.factor",
    "final_logit_softcapping", "attn_logit_softcapping", "expert_count", "expert_used_count",
    "expert_feed_forward_length", "vocab_size",
    // Towers inside the same file, as some converters write them.
    "vision.", "audio.", "mm.", "image_token_id", "mm_tokens_per_image",
    "use_bidirectional_attention", "rope.partial_rotary_factor"};

bool is_in(std::string_view key, Keys keys) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

void add_unknown(const base::Json& object, const std::string& prefix, std::span<const Keys> known,
                 std::vector<std::string>* out) {
  for (const auto& [key, value] : object.items()) {
    const bool found =
        std::any_of(known.begin(), known.end(), [&](Keys keys) { return is_in(key, keys); });
    if (!found) out->push_back(prefix + key);
  }
}

bool gguf_key_known(std::string_view key) {
  constexpr std::string_view kGeneral[] = {"general.", "tokenizer.", "split.", "quantize.",
                                           "imatrix."};
  for (const std::string_view start : kGeneral) {
    if (key.starts_with(start)) return true;
  }
  const size_t dot = key.find('.');
  if (dot == std::string_view::npos) return false;
  const std::string_view own = key.substr(dot + 1);
  return std::any_of(std::begin(kGgufKeys), std::end(kGgufKeys), [&](std::string_view known) {
    return known.back() == '.' ? own.starts_with(known) : own == known;
  });
}

}  // namespace

std::vector<std::string> unknown_config_keys(const base::Json& config, formats::FileKind kind) {
  std::vector<std::string> out;
  if (kind == formats::FileKind::kGguf) {
    for (const auto& [key, value] : config.items()) {
      if (!gguf_key_known(key)) out.push_back(key);
    }
    return out;
  }
  const std::array<Keys, 4> all = {Keys(kTextKeys), Keys(kIdleKeys), Keys(kWholeKeys),
                                   Keys(kCopiedKeys)};
  add_unknown(config, "", all, &out);
  const auto text = config.find("text_config");
  if (text != config.end() && text->is_object()) {
    add_unknown(*text, "text_config.", std::span(all).first(2), &out);
  }
  return out;
}

}  // namespace markbase::model
