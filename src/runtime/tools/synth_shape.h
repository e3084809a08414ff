// The shapes that `synth` knows: published sizes and tiny ones, their tensors by name and the size
// their random weights have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "markbase/result.h"

namespace markbase::tools {

struct SynthShape {
  std::string name;
  bool gemma4 = true;    // else gemma3_text
  bool unified = false;  // the encoder-free architecture of 12B
  int64_t vocab_size = 262144;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t num_global_key_value_heads = 0;  // 0: null
  int64_t head_dim = 256;
  int64_t global_head_dim = 512;
  int64_t pattern = 6;  // every pattern-th layer is full
  int64_t sliding_window = 512;
  int64_t max_position_embeddings = 131072;
  int64_t num_kv_shared_layers = 0;
  bool use_double_wide_mlp = false;
  int64_t hidden_size_per_layer_input = 0;
  int64_t num_experts = 0;
  int64_t top_k_experts = 0;
  int64_t moe_intermediate_size = 0;
  bool attention_k_eq_v = false;
  bool two_way_vision = false;  // use_bidirectional_attention "vision"

  bool is_full(int64_t layer) const;
  bool shares_kv(int64_t layer) const { return layer >= num_hidden_layers - num_kv_shared_layers; }
  int64_t layer_head_dim(int64_t layer) const;
  int64_t layer_kv_heads(int64_t layer) const;
  int64_t layer_width(int64_t layer) const;  // of its MLP
};

// "e2b", ..., "gemma3-1b", "tiny-e2b", ...
std::vector<std::string> synth_sizes();

// num_layers > 0: that many layers instead of all. The pattern stays, the last layer of a Gemma 4
// is full, and about the same share of layers has K and V of its own, of both kinds where any is
// shared. Errors (kUsage): an unknown size, more layers than it has.
Result<SynthShape> synth_shape(std::string_view size, int64_t num_layers);

enum class SynthRole {
  kVector,  // norms, scalars
  kMatrix,  // an ordinary projection
  kDown,    // down_proj and v_proj: what mixes give more bits
  kValue,
  kTokenTable,
  kPerLayerTable,
  kPerLayerProjection,  // per_layer_model_projection: llama.cpp never quantises it
  kRouter,
  kGateUpExperts,  // [experts, 2 * width, hidden]
  kDownExperts,    // [experts, hidden, width]
};

struct SynthTensor {
  std::string hf;    // inside the decoder, no prefix: "layers.0.mlp.up_proj.weight"
  std::string gguf;  // "blk.0.ffn_up.weight"
  std::vector<int64_t> shape;
  SynthRole role = SynthRole::kMatrix;
  int64_t layer = -1;
  bool dead = false;  // K and V weights of layers that use another's
  float center = 0;   // vectors: the middle of their values, as the model applies them
  float spread = 0;   // matrices: standard deviation; vectors: half the width
};

// All tensors of the decoder, in the order of the files.
std::vector<SynthTensor> synth_tensors(const SynthShape& shape);

// config.json without quantisation, and the keys of a GGUF file ("gemma4.block_count", ...; a
// number's JSON type says what it becomes: unsigned -> u32, float -> f32, bool, arrays of them).
base::Json synth_hf_config(const SynthShape& shape);
base::Json synth_gguf_keys(const SynthShape& shape);
// 64 ones and then 1e30 up to half a head, as many as the shape wants.
std::vector<float> synth_rope_freqs(const SynthShape& shape);

}  // namespace markbase::tools
