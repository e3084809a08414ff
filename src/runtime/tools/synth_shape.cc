#include "runtime/tools/synth_shape.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace markbase::tools {
namespace {

constexpr double kPartialRotaryFactor = 0.25;
constexpr double kGlobalTheta = 1e6;
constexpr double kLocalTheta = 1e4;
constexpr double kSoftCap = 30.0;
constexpr double kEps = 1e-6;

std::vector<SynthShape> published() {
  return {
      {.name = "e2b",
       .hidden_size = 1536,
       .intermediate_size = 6144,
       .num_hidden_layers = 35,
       .num_attention_heads = 8,
       .num_key_value_heads = 1,
       .pattern = 5,
       .num_kv_shared_layers = 20,
       .use_double_wide_mlp = true,
       .hidden_size_per_layer_input = 256},
      {.name = "e4b",
       .hidden_size = 2560,
       .intermediate_size = 10240,
       .num_hidden_layers = 42,
       .num_attention_heads = 8,
       .num_key_value_heads = 2,
       .num_kv_shared_layers = 18,
       .hidden_size_per_layer_input = 256},
      {.name = "12b",
       .unified = true,
       .hidden_size = 3840,
       .intermediate_size = 15360,
       .num_hidden_layers = 48,
       .num_attention_heads = 16,
       .num_key_value_heads = 8,
       .num_global_key_value_heads = 1,
       .sliding_window = 1024,
       .max_position_embeddings = 262144,
       .attention_k_eq_v = true,
       .two_way_vision = true},
      {.name = "26b-a4b",
       .hidden_size = 2816,
       .intermediate_size = 2112,
       .num_hidden_layers = 30,
       .num_attention_heads = 16,
       .num_key_value_heads = 8,
       .num_global_key_value_heads = 2,
       .sliding_window = 1024,
       .max_position_embeddings = 262144,
       .num_experts = 128,
       .top_k_experts = 8,
       .moe_intermediate_size = 704,
       .attention_k_eq_v = true,
       .two_way_vision = true},
      {.name = "31b",
       .hidden_size = 5376,
       .intermediate_size = 21504,
       .num_hidden_layers = 60,
       .num_attention_heads = 32,
       .num_key_value_heads = 16,
       .num_global_key_value_heads = 4,
       .sliding_window = 1024,
       .max_position_embeddings = 262144,
       .attention_k_eq_v = true,
       .two_way_vision = true},
      {.name = "gemma3-270m",
       .gemma4 = false,
       .hidden_size = 640,
       .intermediate_size = 2048,
       .num_hidden_layers = 18,
       .num_attention_heads = 4,
       .num_key_value_heads = 1,
       .global_head_dim = 256,
       .max_position_embeddings = 32768},
      {.name = "gemma3-1b",
       .gemma4 = false,
       .hidden_size = 1152,
       .intermediate_size = 6912,
       .num_hidden_layers = 26,
       .num_attention_heads = 4,
       .num_key_value_heads = 1,
       .global_head_dim = 256,
       .max_position_embeddings = 32768},
  };
}

// A shape with a published one's structure: everything is 256 wide, so that every format fits.
SynthShape tiny(SynthShape shape) {
  constexpr int64_t kWidth = 256;
  shape.name = "tiny-" + shape.name;
  shape.vocab_size = 512;
  shape.hidden_size = kWidth;
  shape.intermediate_size = kWidth;
  shape.num_attention_heads = 4;
  shape.num_key_value_heads = std::min<int64_t>(shape.num_key_value_heads, 4);
  shape.num_global_key_value_heads = std::min<int64_t>(shape.num_global_key_value_heads, 2);
  shape.head_dim = 64;
  shape.global_head_dim = shape.gemma4 ? 128 : shape.head_dim;
  shape.sliding_window = 16;
  shape.max_position_embeddings = 512;
  if (shape.gemma4) shape.pattern = 3;  // GGUF files of Gemma 3 say nothing of a pattern
  shape.num_hidden_layers = 6;
  shape.num_kv_shared_layers = shape.num_kv_shared_layers > 0 ? 3 : 0;
  if (shape.hidden_size_per_layer_input > 0) shape.hidden_size_per_layer_input = kWidth;
  if (shape.num_experts > 0) {
    shape.num_experts = 8;
    shape.top_k_experts = 2;
    shape.moe_intermediate_size = kWidth;
  }
  return shape;
}

std::vector<SynthShape> all_shapes() {
  std::vector<SynthShape> shapes = published();
  for (const SynthShape& shape : published()) {
    if (shape.name != "gemma3-1b") shapes.push_back(tiny(shape));
  }
  return shapes;
}

// See synth_shape() in the header.
void cut(SynthShape* shape, int64_t num_layers) {
  const int64_t all = shape->num_hidden_layers;
  const int64_t owned = all - shape->num_kv_shared_layers;
  shape->num_hidden_layers = num_layers;
  if (shape->num_kv_shared_layers == 0) return;
  // Whole patterns of owners, so that the last two are a sliding and a full layer.
  const double wanted =
      static_cast<double>(num_layers * owned) / static_cast<double>(all * shape->pattern);
  const int64_t patterns = std::max<int64_t>(1, std::llround(wanted));
  shape->num_kv_shared_layers = std::max<int64_t>(0, num_layers - patterns * shape->pattern);
}

// What is written for each tensor: HF name and GGUF name of a layer's part.
struct Part {
  std::string_view hf;
  std::string_view gguf;
};

class Builder {
 public:
  explicit Builder(const SynthShape& shape) : shape_(shape) {}

  std::vector<SynthTensor> run() {
    const int64_t hidden = shape_.hidden_size;
    const int64_t ple = shape_.hidden_size_per_layer_input;
    add({"embed_tokens.weight", "token_embd.weight"}, {shape_.vocab_size, hidden},
        SynthRole::kTokenTable, 2.5F / root(hidden));
    if (ple > 0) {
      const int64_t width = ple * shape_.num_hidden_layers;
      add({"embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
          {shape_.vocab_size, width}, SynthRole::kPerLayerTable, 1.0F / root(ple));
      add({"per_layer_model_projection.weight", "per_layer_model_proj.weight"}, {width, hidden},
          SynthRole::kPerLayerProjection, 1.0F / root(hidden));
      vector({"per_layer_projection_norm.weight", "per_layer_proj_norm.weight"}, ple);
    }
    for (layer_ = 0; layer_ < shape_.num_hidden_layers; ++layer_) layer();
    layer_ = -1;
    // Of both signs: with a tied head the answer would be the last token, whatever the layers do.
    vector({"norm.weight", "output_norm.weight"}, hidden, 0.0F, 1.75F);
    return std::move(tensors_);
  }

 private:
  static float root(int64_t n) { return std::sqrt(static_cast<float>(n)); }

  void layer() {
    const int64_t hidden = shape_.hidden_size;
    vector({"input_layernorm.weight", "attn_norm.weight"}, hidden);
    attention();
    vector({"post_attention_layernorm.weight", "post_attention_norm.weight"}, hidden);
    vector({"pre_feedforward_layernorm.weight", "ffn_norm.weight"}, hidden);
    mlp();
    vector({"post_feedforward_layernorm.weight", "post_ffw_norm.weight"}, hidden);
    if (shape_.num_experts > 0) experts();
    if (shape_.hidden_size_per_layer_input > 0) per_layer_input();
    if (shape_.gemma4) vector({"layer_scalar", "layer_output_scale.weight"}, 1, 0.9F, 0.1F);
  }

  void attention() {
    const int64_t hidden = shape_.hidden_size;
    const int64_t dim = shape_.layer_head_dim(layer_);
    const int64_t kv_rows = shape_.layer_kv_heads(layer_) * dim;
    const int64_t q_rows = shape_.num_attention_heads * dim;
    const bool no_v = shape_.attention_k_eq_v && shape_.is_full(layer_);
    // Gemma 4 does not scale the scores: the norms keep their spread near 1.5.
    const float qk = shape_.gemma4 ? std::sqrt(1.5F / root(dim)) : 1.0F;
    matrix({"self_attn.q_proj.weight", "attn_q.weight"}, q_rows, hidden);
    dead_ = shape_.shares_kv(layer_);
    matrix({"self_attn.k_proj.weight", "attn_k.weight"}, kv_rows, hidden);
    if (!no_v) {
      matrix({"self_attn.v_proj.weight", "attn_v.weight"}, kv_rows, hidden, SynthRole::kValue);
    }
    vector({"self_attn.k_norm.weight", "attn_k_norm.weight"}, dim, qk, qk / 4);
    dead_ = false;
    vector({"self_attn.q_norm.weight", "attn_q_norm.weight"}, dim, qk, qk / 4);
    matrix({"self_attn.o_proj.weight", "attn_output.weight"}, hidden, q_rows);
  }

  void mlp() {
    const int64_t hidden = shape_.hidden_size;
    const int64_t width = shape_.layer_width(layer_);
    matrix({"mlp.gate_proj.weight", "ffn_gate.weight"}, width, hidden);
    matrix({"mlp.up_proj.weight", "ffn_up.weight"}, width, hidden);
    matrix({"mlp.down_proj.weight", "ffn_down.weight"}, hidden, width, SynthRole::kDown);
  }

  void experts() {
    const int64_t hidden = shape_.hidden_size;
    const int64_t count = shape_.num_experts;
    const int64_t width = shape_.moe_intermediate_size;
    constexpr float kRouterSpread = 4.0F;  // its input has length one
    add({"router.proj.weight", "ffn_gate_inp.weight"}, {count, hidden}, SynthRole::kRouter,
        kRouterSpread);
    vector({"router.scale", "ffn_gate_inp.scale"}, hidden);
    vector({"router.per_expert_scale", "ffn_down_exps.scale"}, count);
    add({"experts.gate_up_proj", "ffn_gate_up_exps.weight"}, {count, 2 * width, hidden},
        SynthRole::kGateUpExperts, 1.0F / root(hidden));
    add({"experts.down_proj", "ffn_down_exps.weight"}, {count, hidden, width},
        SynthRole::kDownExperts, 1.0F / root(width));
    vector({"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"}, hidden);
    vector({"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"}, hidden);
    vector({"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"}, hidden);
  }

  void per_layer_input() {
    const int64_t hidden = shape_.hidden_size;
    const int64_t ple = shape_.hidden_size_per_layer_input;
    matrix({"per_layer_input_gate.weight", "inp_gate.weight"}, ple, hidden);
    matrix({"per_layer_projection.weight", "proj.weight"}, hidden, ple);
    vector({"post_per_layer_input_norm.weight", "post_norm.weight"}, hidden);
  }

  struct Names {
    std::string hf;
    std::string gguf;
  };
  Names in_layer(const Part& part) const {
    if (layer_ < 0) return {std::string(part.hf), std::string(part.gguf)};
    return {fmt::format("layers.{}.{}", layer_, part.hf),
            fmt::format("blk.{}.{}", layer_, part.gguf)};
  }

  void add_named(Names names, std::vector<int64_t> shape, SynthRole role, float spread,
                 float center = 0) {
    tensors_.push_back({.hf = std::move(names.hf),
                        .gguf = std::move(names.gguf),
                        .shape = std::move(shape),
                        .role = role,
                        .layer = layer_,
                        .dead = dead_,
                        .center = center,
                        .spread = spread});
  }
  void add(const Part& part, std::vector<int64_t> shape, SynthRole role, float spread) {
    add_named(in_layer(part), std::move(shape), role, spread);
  }
  void matrix(const Part& part, int64_t rows, int64_t cols, SynthRole role = SynthRole::kMatrix) {
    add_named(in_layer(part), {rows, cols}, role, 1.0F / root(cols));
  }
  void vector(const Part& part, int64_t size, float center = 1.0F, float half_width = 0.25F) {
    add_named(in_layer(part), {size}, SynthRole::kVector, half_width, center);
  }

  const SynthShape& shape_;
  int64_t layer_ = -1;
  bool dead_ = false;
  std::vector<SynthTensor> tensors_;
};

base::Json layer_types(const SynthShape& shape) {
  base::Json types = base::Json::array();
  for (int64_t i = 0; i < shape.num_hidden_layers; ++i) {
    types.push_back(shape.is_full(i) ? "full_attention" : "sliding_attention");
  }
  return types;
}

base::Json number_or_null(int64_t value) {
  return value > 0 ? base::Json(value) : base::Json(nullptr);
}

base::Json shared_config(const SynthShape& shape) {
  return {{"vocab_size", shape.vocab_size},
          {"hidden_size", shape.hidden_size},
          {"intermediate_size", shape.intermediate_size},
          {"num_hidden_layers", shape.num_hidden_layers},
          {"num_attention_heads", shape.num_attention_heads},
          {"num_key_value_heads", shape.num_key_value_heads},
          {"head_dim", shape.head_dim},
          {"hidden_activation", "gelu_pytorch_tanh"},
          {"max_position_embeddings", shape.max_position_embeddings},
          {"initializer_range", 0.02},
          {"rms_norm_eps", kEps},
          {"use_cache", true},
          {"pad_token_id", 0},
          {"eos_token_id", 1},
          {"bos_token_id", 2},
          {"tie_word_embeddings", true},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"sliding_window", shape.sliding_window},
          {"layer_types", layer_types(shape)},
          {"dtype", "bfloat16"}};
}

base::Json gemma3_config(const SynthShape& shape) {
  base::Json config = {{"architectures", {"Gemma3ForCausalLM"}}, {"model_type", "gemma3_text"}};
  config.update(shared_config(shape));
  config["query_pre_attn_scalar"] = shape.head_dim;
  config["attn_logit_softcapping"] = nullptr;
  config["final_logit_softcapping"] = nullptr;
  config["rope_parameters"] = {
      {"full_attention", {{"rope_type", "default"}, {"rope_theta", kGlobalTheta}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", kLocalTheta}}}};
  return config;
}

base::Json gemma4_text_config(const SynthShape& shape) {
  base::Json config = {{"model_type", shape.unified ? "gemma4_unified_text" : "gemma4_text"}};
  config.update(shared_config(shape));
  config["global_head_dim"] = shape.global_head_dim;
  config["num_global_key_value_heads"] = number_or_null(shape.num_global_key_value_heads);
  config["attention_k_eq_v"] = shape.attention_k_eq_v;
  config["num_kv_shared_layers"] = shape.num_kv_shared_layers;
  config["use_double_wide_mlp"] = shape.use_double_wide_mlp;
  config["final_logit_softcapping"] = kSoftCap;
  config["use_bidirectional_attention"] =
      shape.two_way_vision ? base::Json("vision") : base::Json(nullptr);
  config["vocab_size_per_layer_input"] = shape.vocab_size;
  config["hidden_size_per_layer_input"] = shape.hidden_size_per_layer_input;
  config["enable_moe_block"] = shape.num_experts > 0;
  config["num_experts"] = number_or_null(shape.num_experts);
  config["top_k_experts"] = number_or_null(shape.top_k_experts);
  config["moe_intermediate_size"] = number_or_null(shape.moe_intermediate_size);
  config["rope_parameters"] = {
      {"full_attention",
       {{"rope_type", "proportional"},
        {"partial_rotary_factor", kPartialRotaryFactor},
        {"rope_theta", kGlobalTheta}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", kLocalTheta}}}};
  return config;
}

base::Json per_layer(const SynthShape& shape, int64_t (SynthShape::*value)(int64_t) const) {
  base::Json list = base::Json::array();
  for (int64_t i = 0; i < shape.num_hidden_layers; ++i) {
    list.push_back(static_cast<uint32_t>((shape.*value)(i)));
  }
  return list;
}

uint32_t u32(int64_t value) { return static_cast<uint32_t>(value); }

}  // namespace

bool SynthShape::is_full(int64_t layer) const {
  return (layer + 1) % pattern == 0 || (gemma4 && layer + 1 == num_hidden_layers);
}

int64_t SynthShape::layer_head_dim(int64_t layer) const {
  return is_full(layer) ? global_head_dim : head_dim;
}

int64_t SynthShape::layer_kv_heads(int64_t layer) const {
  const bool global = is_full(layer) && attention_k_eq_v && num_global_key_value_heads > 0;
  return global ? num_global_key_value_heads : num_key_value_heads;
}

int64_t SynthShape::layer_width(int64_t layer) const {
  return use_double_wide_mlp && shares_kv(layer) ? 2 * intermediate_size : intermediate_size;
}

std::vector<std::string> synth_sizes() {
  std::vector<std::string> names;
  for (const SynthShape& shape : all_shapes()) names.push_back(shape.name);
  return names;
}

Result<SynthShape> synth_shape(std::string_view size, int64_t num_layers) {
  for (SynthShape& shape : all_shapes()) {
    if (shape.name != size) continue;
    if (num_layers > shape.num_hidden_layers) {
      return base::usage_error("--layers: {} has {} layers, got {}", size, shape.num_hidden_layers,
                               num_layers);
    }
    if (num_layers > 0 && num_layers < shape.num_hidden_layers) cut(&shape, num_layers);
    return shape;
  }
  return base::usage_error("'{}' is not a size; there are {}", size,
                           fmt::join(synth_sizes(), ", "));
}

std::vector<SynthTensor> synth_tensors(const SynthShape& shape) { return Builder(shape).run(); }

base::Json synth_hf_config(const SynthShape& shape) {
  if (!shape.gemma4) return gemma3_config(shape);
  const char* architecture =
      shape.unified ? "Gemma4UnifiedForConditionalGeneration" : "Gemma4ForConditionalGeneration";
  return {{"architectures", {architecture}},
          {"model_type", shape.unified ? "gemma4_unified" : "gemma4"},
          {"dtype", "bfloat16"},
          {"text_config", gemma4_text_config(shape)},
          {"vision_config", nullptr},
          {"audio_config", nullptr},
          {"tie_word_embeddings", true},
          {"image_token_id", 258880},
          {"audio_token_id", 258881},
          {"video_token_id", 258884},
          {"boi_token_id", 255999},
          {"eoi_token_id", 258882},
          {"boa_token_id", 256000},
          {"eoa_token_index", 258883}};
}

base::Json synth_gguf_keys(const SynthShape& shape) {
  const std::string arch = shape.gemma4 ? "gemma4" : "gemma3";
  base::Json keys = base::Json::object();
  const auto put = [&](std::string_view key, base::Json value) {
    keys[fmt::format("{}.{}", arch, key)] = std::move(value);
  };
  put("block_count", u32(shape.num_hidden_layers));
  put("context_length", u32(shape.max_position_embeddings));
  put("embedding_length", u32(shape.hidden_size));
  put("feed_forward_length", shape.use_double_wide_mlp ? per_layer(shape, &SynthShape::layer_width)
                                                       : base::Json(u32(shape.intermediate_size)));
  put("attention.head_count", u32(shape.num_attention_heads));
  put("attention.head_count_kv", shape.num_global_key_value_heads > 0
                                     ? per_layer(shape, &SynthShape::layer_kv_heads)
                                     : base::Json(u32(shape.num_key_value_heads)));
  put("attention.key_length", u32(shape.global_head_dim));
  put("attention.value_length", u32(shape.global_head_dim));
  put("attention.layer_norm_rms_epsilon", kEps);
  put("attention.sliding_window", u32(shape.sliding_window));
  put("rope.freq_base", kGlobalTheta);
  put("rope.freq_base_swa", kLocalTheta);
  if (!shape.gemma4) return keys;
  base::Json pattern = base::Json::array();
  for (int64_t i = 0; i < shape.num_hidden_layers; ++i) pattern.push_back(!shape.is_full(i));
  put("attention.sliding_window_pattern", std::move(pattern));
  put("attention.key_length_swa", u32(shape.head_dim));
  put("attention.value_length_swa", u32(shape.head_dim));
  put("attention.shared_kv_layers", u32(shape.num_kv_shared_layers));
  put("embedding_length_per_layer_input", u32(shape.hidden_size_per_layer_input));
  put("rope.dimension_count", u32(shape.global_head_dim));
  put("rope.dimension_count_swa", u32(shape.head_dim));
  put("final_logit_softcapping", kSoftCap);
  if (shape.num_experts > 0) {
    put("expert_count", u32(shape.num_experts));
    put("expert_used_count", u32(shape.top_k_experts));
    put("expert_feed_forward_length", u32(shape.moe_intermediate_size));
  }
  return keys;
}

std::vector<float> synth_rope_freqs(const SynthShape& shape) {
  if (!shape.gemma4) return {};
  constexpr float kNotRotated = 1e30F;
  const int64_t pairs = shape.global_head_dim / 2;
  const auto rotated = static_cast<size_t>(kPartialRotaryFactor * static_cast<double>(pairs));
  std::vector<float> freqs(static_cast<size_t>(pairs), kNotRotated);
  std::fill_n(freqs.begin(), rotated, 1.0F);
  return freqs;
}

}  // namespace markbase::tools
