#include "support/tiny_gemma4.h"

#include <fmt/format.h>

#include "base/check.h"
#include "formats/gguf/gguf_types.h"
#include "formats/gguf/gguf_writer.h"
#include "formats/safetensors/safetensors_writer.h"

namespace markbase::testing {
namespace {

using base::Json;

constexpr int64_t kHidden = 64;
constexpr int64_t kVocab = 96;
constexpr int64_t kLayers = 6;
constexpr int64_t kHeads = 4;
constexpr int64_t kHeadDim = 32;
constexpr int64_t kGlobalHeadDim = 64;
constexpr int64_t kWidth = 128;
constexpr int64_t kPerLayer = 32;
constexpr int64_t kExperts = 4;
constexpr int64_t kExpertWidth = 32;

struct Features {
  bool per_layer_embeddings;
  int64_t num_shared;
  bool double_wide;
  bool keys_are_values;
  bool experts;
  int64_t kv_heads;
  int64_t global_kv_heads;  // 0: the key is null
};

Features features(Gemma4Shape shape) {
  switch (shape) {
    case Gemma4Shape::kE2B:
      return {true, 3, true, false, false, 1, 0};
    case Gemma4Shape::kE4B:
      return {true, 3, false, false, false, 2, 0};
    case Gemma4Shape::k12B:
      return {false, 0, false, true, false, 2, 1};
    case Gemma4Shape::k26B:
      return {false, 0, false, true, true, 2, 1};
    case Gemma4Shape::k31B:
      break;
  }
  return {false, 0, false, true, false, 4, 1};
}

bool is_full(int64_t layer) { return layer % 3 == 2; }
bool borrows(const Features& f, int64_t layer) { return layer >= kLayers - f.num_shared; }
int64_t width(const Features& f, int64_t layer) {
  return f.double_wide && borrows(f, layer) ? 2 * kWidth : kWidth;
}
int64_t head_dim(int64_t layer) { return is_full(layer) ? kGlobalHeadDim : kHeadDim; }
int64_t kv_heads(const Features& f, int64_t layer) {
  return is_full(layer) && f.keys_are_values ? f.global_kv_heads : f.kv_heads;
}

Json text_config(const Features& f, bool unified) {
  Json layer_types = Json::array();
  for (int64_t i = 0; i < kLayers; ++i)
    layer_types.push_back(is_full(i) ? "full_attention" : "sliding_attention");
  Json config = {
      {"model_type", unified ? "gemma4_unified_text" : "gemma4_text"},
      {"vocab_size", kVocab},
      {"hidden_size", kHidden},
      {"intermediate_size", kWidth},
      {"num_hidden_layers", kLayers},
      {"num_attention_heads", kHeads},
      {"num_key_value_heads", f.kv_heads},
      {"num_global_key_value_heads", nullptr},
      {"head_dim", kHeadDim},
      {"global_head_dim", kGlobalHeadDim},
      {"attention_k_eq_v", f.keys_are_values},
      {"num_kv_shared_layers", f.num_shared},
      {"use_double_wide_mlp", f.double_wide},
      {"layer_types", layer_types},
      {"sliding_window", 8},
      {"max_position_embeddings", 256},
      {"hidden_size_per_layer_input", f.per_layer_embeddings ? kPerLayer : 0},
      {"vocab_size_per_layer_input", kVocab},
      {"enable_moe_block", f.experts},
      {"num_experts", nullptr},
      {"top_k_experts", nullptr},
      {"moe_intermediate_size", nullptr},
      {"final_logit_softcapping", 30.0},
      {"hidden_activation", "gelu_pytorch_tanh"},
      {"use_bidirectional_attention", f.keys_are_values ? Json("vision") : Json(nullptr)},
      {"rope_parameters",
       {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
        {"full_attention",
         {{"rope_type", "proportional"},
          {"partial_rotary_factor", 0.25},
          {"rope_theta", 1000000.0}}}}}};
  if (f.global_kv_heads > 0) config["num_global_key_value_heads"] = f.global_kv_heads;
  if (f.experts) {
    config["num_experts"] = kExperts;
    config["top_k_experts"] = 2;
    config["moe_intermediate_size"] = kExpertWidth;
  }
  return config;
}

void add_layer(const Features& f, int64_t i, const std::string& at, TinyCheckpoint* out) {
  const auto put = [&](const std::string& name, std::vector<int64_t> shape) {
    out->tensors[at + name] = {std::move(shape), "BF16", ""};
  };
  const int64_t hd = head_dim(i);
  for (const char* norm : {"input_layernorm", "post_attention_layernorm",
                           "pre_feedforward_layernorm", "post_feedforward_layernorm"}) {
    put(norm + std::string(".weight"), {kHidden});
  }
  put("self_attn.q_proj.weight", {kHeads * hd, kHidden});
  put("self_attn.k_proj.weight", {kv_heads(f, i) * hd, kHidden});
  if (!(f.keys_are_values && is_full(i)))
    put("self_attn.v_proj.weight", {kv_heads(f, i) * hd, kHidden});
  put("self_attn.o_proj.weight", {kHidden, kHeads * hd});
  put("self_attn.q_norm.weight", {hd});
  put("self_attn.k_norm.weight", {hd});
  put("mlp.gate_proj.weight", {width(f, i), kHidden});
  put("mlp.up_proj.weight", {width(f, i), kHidden});
  put("mlp.down_proj.weight", {kHidden, width(f, i)});
  put("layer_scalar", {1});
  if (f.per_layer_embeddings) {
    put("per_layer_input_gate.weight", {kPerLayer, kHidden});
    put("per_layer_projection.weight", {kHidden, kPerLayer});
    put("post_per_layer_input_norm.weight", {kHidden});
  }
  if (!f.experts) return;
  put("router.proj.weight", {kExperts, kHidden});
  put("router.scale", {kHidden});
  put("router.per_expert_scale", {kExperts});
  put("experts.gate_up_proj", {kExperts, 2 * kExpertWidth, kHidden});
  put("experts.down_proj", {kExperts, kHidden, kExpertWidth});
  put("post_feedforward_layernorm_1.weight", {kHidden});
  put("pre_feedforward_layernorm_2.weight", {kHidden});
  put("post_feedforward_layernorm_2.weight", {kHidden});
}

void add_text(const Features& f, const std::string& prefix, TinyCheckpoint* out) {
  const auto put = [&](const std::string& name, std::vector<int64_t> shape) {
    out->tensors[prefix + name] = {std::move(shape), "BF16", ""};
  };
  put("embed_tokens.weight", {kVocab, kHidden});
  put("norm.weight", {kHidden});
  if (f.per_layer_embeddings) {
    put("embed_tokens_per_layer.weight", {kVocab, kLayers * kPerLayer});
    put("per_layer_model_projection.weight", {kLayers * kPerLayer, kHidden});
    put("per_layer_projection_norm.weight", {kPerLayer});
  }
  for (int64_t i = 0; i < kLayers; ++i)
    add_layer(f, i, fmt::format("{}layers.{}.", prefix, i), out);
}

int64_t elements(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (const int64_t n : shape) product *= n;
  return product;
}

std::string bytes_of(const TinyTensor& tensor, uint64_t num_bytes) {
  return tensor.data.empty() ? std::string(num_bytes, '\0') : tensor.data;
}

tensor::DType dtype_of(const std::string& type) {
  for (const auto dtype : {tensor::DType::kF32, tensor::DType::kF16, tensor::DType::kBF16,
                           tensor::DType::kU32, tensor::DType::kU8, tensor::DType::kI32}) {
    if (tensor::dtype_name(dtype) == type) return dtype;
  }
  MB_CHECK_MSG(false, "a type of the tests");
  return tensor::DType::kF32;
}

std::string safetensors(const std::map<std::string, TinyTensor>& tensors) {
  formats::SafetensorsWriter writer(std::map<std::string, std::string>{{"format", "pt"}});
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const tensor::DType dtype = dtype_of(tensor.type);
    writer.add_tensor(name, tensor.shape, dtype);
    data += bytes_of(tensor,
                     static_cast<uint64_t>(elements(tensor.shape)) * tensor::dtype_bytes(dtype));
  }
  return writer.header() + data;
}

void add_value(const std::string& key, const Json& value, formats::GgufWriter* writer) {
  if (value.is_string()) return writer->add(key, value.get<std::string>());
  if (value.is_boolean()) return writer->add(key, value.get<bool>());
  if (value.is_number_float()) return writer->add(key, value.get<float>());
  if (value.is_number()) return writer->add(key, value.get<uint32_t>());
  if (value.front().is_boolean()) return writer->add_array(key, value.get<std::vector<bool>>());
  if (value.front().is_string())
    return writer->add_array(key, value.get<std::vector<std::string>>());
  if (value.front().is_number_float())
    return writer->add_array(key, value.get<std::vector<float>>());
  writer->add_array(key, value.get<std::vector<int32_t>>());
}

std::string gguf(const Json& metadata, const std::map<std::string, TinyTensor>& tensors) {
  formats::GgufWriter writer;
  for (const auto& [key, value] : metadata.items()) add_value(key, value, &writer);
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const uint32_t id = formats::ggml_type_id(tensor.type).value();
    const formats::GgmlType& type = *formats::find_ggml_type(id);
    writer.add_tensor(name, tensor.shape, id);
    const auto num_bytes =
        static_cast<uint64_t>(elements(tensor.shape)) / type.block_elements * type.block_bytes;
    data += bytes_of(tensor, num_bytes);
    data.resize(data.size() + writer.padded(num_bytes) - num_bytes, '\0');
  }
  return writer.header() + data;
}

// The tensors in `parts` runs of about equal count.
std::vector<std::map<std::string, TinyTensor>> divided(
    const std::map<std::string, TinyTensor>& tensors, int parts) {
  std::vector<std::map<std::string, TinyTensor>> out(static_cast<size_t>(parts));
  size_t idx = 0;
  for (const auto& [name, tensor] : tensors)
    out[idx++ * static_cast<size_t>(parts) / tensors.size()][name] = tensor;
  return out;
}

struct GgufName {
  const char* hf;
  const char* gguf;
};
constexpr GgufName kLayerNames[] = {
    {"input_layernorm.weight", "attn_norm.weight"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"post_attention_layernorm.weight", "post_attention_norm.weight"},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
    {"layer_scalar", "layer_output_scale.weight"},
    {"per_layer_input_gate.weight", "inp_gate.weight"},
    {"per_layer_projection.weight", "proj.weight"},
    {"post_per_layer_input_norm.weight", "post_norm.weight"},
    {"router.proj.weight", "ffn_gate_inp.weight"},
    {"router.scale", "ffn_gate_inp.scale"},
    {"router.per_expert_scale", "ffn_down_exps.scale"},
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"experts.down_proj", "ffn_down_exps.weight"},
    {"post_feedforward_layernorm_1.weight", "post_ffw_norm_1.weight"},
    {"pre_feedforward_layernorm_2.weight", "pre_ffw_norm_2.weight"},
    {"post_feedforward_layernorm_2.weight", "post_ffw_norm_2.weight"},
};
constexpr GgufName kModelNames[] = {
    {"embed_tokens.weight", "token_embd.weight"},
    {"norm.weight", "output_norm.weight"},
    {"embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
    {"per_layer_model_projection.weight", "per_layer_model_proj.weight"},
    {"per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
};

Json gguf_metadata(const Features& f) {
  Json pattern = Json::array();
  Json widths = Json::array();
  Json heads = Json::array();
  for (int64_t i = 0; i < kLayers; ++i) {
    pattern.push_back(!is_full(i));
    widths.push_back(width(f, i));
    heads.push_back(kv_heads(f, i));
  }
  Json json = {{"general.architecture", "gemma4"},
               {"gemma4.block_count", kLayers},
               {"gemma4.context_length", 256},
               {"gemma4.embedding_length", kHidden},
               {"gemma4.feed_forward_length", f.double_wide ? widths : Json(kWidth)},
               {"gemma4.attention.head_count", kHeads},
               {"gemma4.attention.head_count_kv", f.global_kv_heads > 0 ? heads : Json(f.kv_heads)},
               {"gemma4.attention.key_length", kGlobalHeadDim},
               {"gemma4.attention.value_length", kGlobalHeadDim},
               {"gemma4.attention.key_length_swa", kHeadDim},
               {"gemma4.attention.value_length_swa", kHeadDim},
               {"gemma4.attention.layer_norm_rms_epsilon", 1e-6},
               {"gemma4.attention.sliding_window", 8},
               {"gemma4.attention.sliding_window_pattern", pattern},
               {"gemma4.attention.shared_kv_layers", f.num_shared},
               {"gemma4.embedding_length_per_layer_input", f.per_layer_embeddings ? kPerLayer : 0},
               {"gemma4.rope.freq_base", 1e6},
               {"gemma4.rope.freq_base_swa", 1e4},
               {"gemma4.rope.dimension_count", kGlobalHeadDim},
               {"gemma4.rope.dimension_count_swa", kHeadDim},
               {"gemma4.final_logit_softcapping", 30.0}};
  if (f.experts) {
    json["gemma4.expert_count"] = kExperts;
    json["gemma4.expert_used_count"] = 2;
    json["gemma4.expert_feed_forward_length"] = kExpertWidth;
  }
  return json;
}

std::string rope_freqs() {
  std::string data;
  for (int64_t k = 0; k < kGlobalHeadDim / 2; ++k) {
    const float divisor = k < kGlobalHeadDim / 8 ? 1.0F : 1e30F;
    data.append(reinterpret_cast<const char*>(&divisor), sizeof(divisor));
  }
  return data;
}

}  // namespace

std::string_view shape_name(Gemma4Shape shape) {
  constexpr std::string_view kNames[] = {"E2B", "E4B", "12B", "26B", "31B"};
  return kNames[static_cast<size_t>(shape)];
}

void TinyCheckpoint::rename(const std::string& from, const std::string& to) {
  MB_CHECK(has(from) && !has(to));
  auto node = tensors.extract(from);
  node.key() = to;
  tensors.insert(std::move(node));
}

void TinyCheckpoint::rename_prefix(const std::string& from, const std::string& to) {
  std::map<std::string, TinyTensor> renamed;
  for (auto& [name, tensor] : tensors) {
    renamed[name.starts_with(from) ? to + name.substr(from.size()) : name] = std::move(tensor);
  }
  tensors = std::move(renamed);
}

std::string TinyCheckpoint::write_hf(const TempDir& dir) const {
  dir.write("config.json", config.dump());
  dir.write("model.safetensors", safetensors(tensors));
  return dir.path().string();
}

std::string TinyCheckpoint::write_hf_shards(const TempDir& dir, int parts) const {
  dir.write("config.json", config.dump());
  Json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", Json::object()}};
  int part = 0;
  for (const auto& some : divided(tensors, parts)) {
    const std::string file = fmt::format("model-{:05}-of-{:05}.safetensors", ++part, parts);
    dir.write(file, safetensors(some));
    for (const auto& [name, tensor] : some) index["weight_map"][name] = file;
  }
  dir.write("model.safetensors.index.json", index.dump());
  return dir.path().string();
}

std::string TinyCheckpoint::write_gguf(const TempDir& dir) const {
  return dir.write("model.gguf", gguf(config, tensors));
}

std::string TinyCheckpoint::write_gguf_splits(const TempDir& dir, int parts) const {
  int part = 0;
  for (const auto& some : divided(tensors, parts)) {
    Json metadata = part == 0 ? config : Json::object();
    metadata["split.no"] = part++;
    metadata["split.count"] = parts;
    metadata["split.tensors.count"] = tensors.size();
    dir.write(fmt::format("model-{:05}-of-{:05}.gguf", part, parts), gguf(metadata, some));
  }
  return dir.file(fmt::format("model-00001-of-{:05}.gguf", parts));
}

TinyCheckpoint tiny_gemma4_hf(Gemma4Shape shape) {
  const bool unified = shape == Gemma4Shape::k12B;
  TinyCheckpoint out;
  out.config = {
      {"model_type", unified ? "gemma4_unified" : "gemma4"},
      {"architectures",
       {unified ? "Gemma4UnifiedForConditionalGeneration" : "Gemma4ForConditionalGeneration"}},
      {"text_config", text_config(features(shape), unified)},
      {"vision_config", Json::object()},
      {"audio_config", nullptr},
      {"tie_word_embeddings", true}};
  add_text(features(shape), "model.language_model.", &out);
  const std::string tower = unified ? "model.vision_embedder.patch_dense.weight"
                                    : "model.vision_tower.patch_embedder.input_proj.weight";
  out.tensors[tower] = {{8, 32}, "BF16", ""};
  out.tensors["model.embed_vision.embedding_projection.weight"] = {{kHidden, 32}, "BF16", ""};
  if (features(shape).per_layer_embeddings || unified)
    out.tensors["model.embed_audio.embedding_projection.weight"] = {{kHidden, 32}, "BF16", ""};
  return out;
}

TinyCheckpoint tiny_gemma4_text(Gemma4Shape shape) {
  TinyCheckpoint out;
  out.config = text_config(features(shape), shape == Gemma4Shape::k12B);
  out.config["architectures"] = {"Gemma4ForCausalLM"};
  add_text(features(shape), "model.", &out);
  return out;
}

TinyCheckpoint tiny_gemma4_gguf(Gemma4Shape shape) {
  TinyCheckpoint hf;
  add_text(features(shape), "", &hf);
  TinyCheckpoint out;
  out.config = gguf_metadata(features(shape));
  const auto move = [&](const std::string& from, const std::string& to) {
    if (!hf.has(from)) return;
    TinyTensor tensor = hf.tensors.at(from);
    const bool vector = tensor.shape.size() == 1 || to.find("ffn_gate_inp") != std::string::npos;
    tensor.type = vector ? "F32" : "Q8_0";
    out.tensors[to] = std::move(tensor);
  };
  for (const GgufName& name : kModelNames) move(name.hf, name.gguf);
  for (int64_t i = 0; i < kLayers; ++i) {
    for (const GgufName& name : kLayerNames)
      move(fmt::format("layers.{}.{}", i, name.hf), fmt::format("blk.{}.{}", i, name.gguf));
  }
  out.tensors["rope_freqs.weight"] = {{kGlobalHeadDim / 2}, "F32", rope_freqs()};
  return out;
}

void quantise_module(TinyCheckpoint* checkpoint, const std::string& module, int bits,
                     int group_size, std::string_view mode) {
  TinyTensor& weight = checkpoint->tensors.at(module + ".weight");
  std::vector<int64_t> groups = weight.shape;
  MB_CHECK(groups.back() % group_size == 0);
  groups.back() /= group_size;
  weight.shape.back() = weight.shape.back() * bits / 32;
  weight.type = "U32";
  const bool affine = mode == "affine";
  checkpoint->tensors[module + ".scales"] = {groups, affine ? "BF16" : "U8", ""};
  if (affine) checkpoint->tensors[module + ".biases"] = {groups, "BF16", ""};
}

TinyCheckpoint tiny_gemma4_mlx(Gemma4Shape shape, int bits, int group_size) {
  TinyCheckpoint out = tiny_gemma4_hf(shape);
  out.rename_prefix("model.language_model.", "language_model.model.");
  out.rename_prefix("model.", "");
  for (int64_t i = 0; i < kLayers && features(shape).experts; ++i) {
    const std::string at = fmt::format("language_model.model.layers.{}.experts.", i);
    const TinyTensor both = out.tensors.at(at + "gate_up_proj");
    out.tensors.erase(at + "gate_up_proj");
    for (const char* half : {"gate", "up"}) {
      out.tensors[fmt::format("{}switch_glu.{}_proj.weight", at, half)] = {
          {kExperts, kExpertWidth, kHidden}, "BF16", ""};
    }
    out.rename(at + "down_proj", at + "switch_glu.down_proj.weight");
  }
  Json block = {{"group_size", group_size}, {"bits", bits}, {"mode", "affine"}};
  std::vector<std::string> modules;
  for (const auto& [name, tensor] : out.tensors) {
    const bool text = name.starts_with("language_model.") && name.ends_with(".weight");
    if (text && tensor.shape.size() >= 2 && tensor.shape.back() % group_size == 0)
      modules.push_back(name.substr(0, name.size() - 7));
  }
  for (const std::string& module : modules) {
    if (module.ends_with("router.proj")) {
      quantise_module(&out, module, 8, 64);
      block[module] = {{"group_size", 64}, {"bits", 8}};
    } else {
      quantise_module(&out, module, bits, group_size);
    }
  }
  out.config["quantization"] = block;
  out.config["quantization_config"] = block;
  return out;
}

}  // namespace markbase::testing
