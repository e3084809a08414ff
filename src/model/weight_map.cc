#include "model/weight_map.h"

#include <array>
#include <cmath>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/half.h"

namespace markbase::model {
namespace {

struct NameRow {
  WeightId id;
  bool in_layer;
  bool is_vector;
  const char* ours;
  const char* hf;    // after the prefix, without ".weight"
  const char* gguf;  // after "blk.N." within a layer, without ".weight"
};

constexpr std::array kNames = {
    NameRow{WeightId::kEmbedTokens, false, false, "embed_tokens", "embed_tokens", "token_embd"},
    NameRow{WeightId::kLmHead, false, false, "lm_head", "lm_head", "output"},
    NameRow{WeightId::kNorm, false, true, "norm", "norm", "output_norm"},
    NameRow{WeightId::kInputLayernorm, true, true, "input_layernorm", "input_layernorm",
            "attn_norm"},
    NameRow{WeightId::kQProj, true, false, "attn.q_proj", "self_attn.q_proj", "attn_q"},
    NameRow{WeightId::kKProj, true, false, "attn.k_proj", "self_attn.k_proj", "attn_k"},
    NameRow{WeightId::kVProj, true, false, "attn.v_proj", "self_attn.v_proj", "attn_v"},
    NameRow{WeightId::kQNorm, true, true, "attn.q_norm", "self_attn.q_norm", "attn_q_norm"},
    NameRow{WeightId::kKNorm, true, true, "attn.k_norm", "self_attn.k_norm", "attn_k_norm"},
    NameRow{WeightId::kOProj, true, false, "attn.o_proj", "self_attn.o_proj", "attn_output"},
    NameRow{WeightId::kPostAttentionLayernorm, true, true, "post_attention_layernorm",
            "post_attention_layernorm", "post_attention_norm"},
    NameRow{WeightId::kPreFeedforwardLayernorm, true, true, "pre_feedforward_layernorm",
            "pre_feedforward_layernorm", "ffn_norm"},
    NameRow{WeightId::kGateProj, true, false, "mlp.gate_proj", "mlp.gate_proj", "ffn_gate"},
    NameRow{WeightId::kUpProj, true, false, "mlp.up_proj", "mlp.up_proj", "ffn_up"},
    NameRow{WeightId::kDownProj, true, false, "mlp.down_proj", "mlp.down_proj", "ffn_down"},
    NameRow{WeightId::kPostFeedforwardLayernorm, true, true, "post_feedforward_layernorm",
            "post_feedforward_layernorm", "post_ffw_norm"},
};

// Prefixes of the text part, the most specific first.
constexpr std::array kHfPrefixes = {"language_model.model.", "model.language_model.", "model.", ""};

struct Shape {
  int64_t rows;
  int64_t cols;
};

// [outputs, inputs]; a norm is one row.
Shape expected_shape(const TextConfig& config, WeightId id, int64_t layer_idx) {
  const int64_t hidden = config.hidden_size;
  const LayerConfig& layer = config.layers[static_cast<size_t>(layer_idx < 0 ? 0 : layer_idx)];
  switch (id) {
    case WeightId::kEmbedTokens:
    case WeightId::kLmHead:
      return {config.vocab_size, hidden};
    case WeightId::kQProj:
      return {config.num_attention_heads * layer.head_dim, hidden};
    case WeightId::kKProj:
    case WeightId::kVProj:
      return {layer.num_key_value_heads * layer.head_dim, hidden};
    case WeightId::kOProj:
      return {hidden, config.num_attention_heads * layer.head_dim};
    case WeightId::kQNorm:
    case WeightId::kKNorm:
      return {1, layer.head_dim};
    case WeightId::kGateProj:
    case WeightId::kUpProj:
      return {layer.intermediate_size, hidden};
    case WeightId::kDownProj:
      return {hidden, layer.intermediate_size};
    default:
      return {1, hidden};
  }
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

class Mapper {
 public:
  Mapper(const formats::WeightSource& source, const TextConfig& config, std::vector<Fault>* faults)
      : source_(source), config_(config), faults_(faults) {
    gguf_ = source.kind() == formats::FileKind::kGguf;
    for (const char* prefix : kHfPrefixes) {
      if (gguf_ || source.find(std::string(prefix) + "embed_tokens.weight") == nullptr) continue;
      prefix_ = prefix;
      break;
    }
  }

  WeightMap run() {
    // Files of Gemma 3 hold norm weights less one; the converter to GGUF adds the one.
    map_.norm_offset = gguf_ ? 0.0F : 1.0F;
    map_.tied_head = gguf_ ? source_.find("output.weight") == nullptr : config_.tie_word_embeddings;
    for (const NameRow& row : kNames) {
      if (row.in_layer || (row.id == WeightId::kLmHead && map_.tied_head)) continue;
      add(row, -1);
    }
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      for (const NameRow& row : kNames) {
        if (row.in_layer) add(row, layer);
      }
    }
    map_.embed_scale = embed_scale();
    list_unused();
    return std::move(map_);
  }

 private:
  // Without ".weight".
  std::string module_name(const NameRow& row, int64_t layer) const {
    if (gguf_)
      return row.in_layer ? fmt::format("blk.{}.{}", layer, row.gguf) : std::string(row.gguf);
    if (row.in_layer) return fmt::format("{}layers.{}.{}", prefix_, layer, row.hf);
    if (row.id != WeightId::kLmHead) return prefix_ + row.hf;
    // The head stands beside the decoder, not inside it.
    const bool nested = prefix_ == "language_model.model.";
    return nested ? "language_model.lm_head" : "lm_head";
  }

  std::string file_of(std::string_view tensor) const {
    const formats::TensorInfo* info = source_.find(tensor);
    const size_t idx = info == nullptr ? 0 : static_cast<size_t>(info->file_idx);
    return idx < source_.files().size() ? source_.files()[idx] : std::string("?");
  }

  void fault(std::string what, const std::string& tensor, std::string expected, std::string got) {
    faults_->push_back(
        {std::move(what), file_of(tensor) + ": " + tensor, std::move(expected), std::move(got)});
  }

  void add(const NameRow& row, int64_t layer) {
    const std::string module = module_name(row, layer);
    const std::string tensor = module + ".weight";
    const formats::TensorInfo* info = source_.find(tensor);
    const Shape expected = expected_shape(config_, row.id, layer);
    const std::string expected_text = row.is_vector
                                          ? fmt::format("[{}]", expected.cols)
                                          : fmt::format("[{}, {}]", expected.rows, expected.cols);
    if (info == nullptr) {
      fault("a tensor is missing", tensor, expected_text, "no such tensor");
      return;
    }
    mark_used(module);
    MappedWeight weight;
    weight.id = row.id;
    weight.layer = layer;
    weight.is_vector = row.is_vector;
    weight.name = layer < 0 ? std::string(row.ours) : fmt::format("layer.{}.{}", layer, row.ours);
    weight.source_name = tensor;
    if (row.is_vector) {
      if (!vector_view(*info, expected.cols, expected_text, &weight.view)) return;
    } else if (!matrix_view(gguf_ ? tensor : module, tensor, expected, expected_text,
                            &weight.view)) {
      return;
    }
    map_.weights.push_back(std::move(weight));
  }

  bool vector_view(const formats::TensorInfo& info, int64_t width, const std::string& expected_text,
                   quant::WeightView* view) {
    if (info.shape != std::vector<int64_t>{width}) {
      fault("the shape contradicts the configuration", info.name, expected_text,
            shape_text(info.shape));
      return false;
    }
    if (!info.block_format || !is_plain_float(*info.block_format)) {
      fault("a norm weight of an unsupported type", info.name, "F32, F16 or BF16", info.type_name);
      return false;
    }
    view->format = *info.block_format;
    view->rows = 1;
    view->cols = width;
    view->data = info.data;
    return true;
  }

  bool matrix_view(const std::string& module, const std::string& tensor, const Shape& expected,
                   const std::string& expected_text, quant::WeightView* view) {
    Result<quant::WeightView> found = source_.weight(module);
    if (!found.ok()) {
      faults_->push_back({found.error().message, "", "", ""});
      return false;
    }
    if (found->rows != expected.rows || found->cols != expected.cols) {
      fault("the shape contradicts the configuration", tensor, expected_text,
            fmt::format("[{}, {}]", found->rows, found->cols));
      return false;
    }
    *view = *found;
    return true;
  }

  static bool is_plain_float(quant::Format format) {
    return format == quant::Format::kF32 || format == quant::Format::kF16 ||
           format == quant::Format::kBF16;
  }

  void mark_used(const std::string& module) {
    for (const char* part : {".weight", ".scales", ".biases"}) used_.insert(module + part);
  }

  float embed_scale() const {
    const float exact = std::sqrt(static_cast<float>(config_.hidden_size));
    if (gguf_ || map_.weights.empty() || map_.weights[0].id != WeightId::kEmbedTokens) return exact;
    const quant::WeightView& table = map_.weights[0].view;
    const bool affine = table.format == quant::Format::kAffine;
    const bool bf16 =
        affine ? table.scale_dtype == tensor::DType::kBF16 : table.format == quant::Format::kBF16;
    const bool f16 =
        affine ? table.scale_dtype == tensor::DType::kF16 : table.format == quant::Format::kF16;
    if (bf16) return base::bf16_to_float(base::float_to_bf16(exact));
    if (f16) return base::fp16_to_float(base::float_to_fp16(exact));
    return exact;
  }

  void list_unused() {
    for (const formats::TensorInfo& tensor : source_.tensors()) {
      if (used_.contains(tensor.name)) continue;
      UnusedTensor unused{tensor.name, "", true};
      const auto has = [&](std::string_view part) {
        return tensor.name.find(part) != std::string::npos;
      };
      if (has("rotary_emb") || has("rope_freqs")) {
        unused.why = "rotary frequencies are computed from the configuration";
      } else if (has("lm_head.")) {
        unused.why = "the head is tied to the embedding table";
      } else if (has("vision") || has("multi_modal_projector") || tensor.name.starts_with("mm.") ||
                 tensor.name.starts_with("v.")) {
        unused.why = "vision is not supported by this build: the text part is used alone";
      } else {
        unused.why = "not a tensor of this architecture";
        unused.known = false;
      }
      map_.unused.push_back(std::move(unused));
    }
  }

  const formats::WeightSource& source_;
  const TextConfig& config_;
  std::vector<Fault>* faults_;
  bool gguf_ = false;
  std::string prefix_ = "model.";
  std::set<std::string, std::less<>> used_;
  WeightMap map_;
};

}  // namespace

std::string fault_message(const Fault& fault) {
  if (fault.where.empty()) return fault.what;
  return fmt::format("{}: {}: expected {}, got {}", fault.where, fault.what, fault.expected,
                     fault.got);
}

WeightMap map_weights(const formats::WeightSource& source, const TextConfig& config,
                      std::vector<Fault>* faults) {
  return Mapper(source, config, faults).run();
}

Result<WeightMap> map_weights(const formats::WeightSource& source, const TextConfig& config) {
  std::vector<Fault> faults;
  WeightMap map = map_weights(source, config, &faults);
  if (!faults.empty()) return base::bad_input("{}", fault_message(faults.front()));
  return map;
}

}  // namespace markbase::model
