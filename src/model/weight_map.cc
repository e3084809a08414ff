#include "model/weight_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/half.h"
#include "model/config_fields.h"
#include "model/weight_names.h"
#include "model/weight_shapes.h"
#include "model/weight_unused.h"

namespace markbase::model {
namespace {

constexpr std::string_view kWeightSuffix = ".weight";

// What a file that leaves a scale out means by it.
constexpr std::array<float, kMaxExperts> kOnes = [] {
  std::array<float, kMaxExperts> ones{};
  for (float& one : ones) one = 1.0F;
  return ones;
}();

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string shape_text(const WeightShape& shape, bool is_vector) {
  return is_vector ? fmt::format("[{}]", shape.cols)
                   : fmt::format("[{}, {}]", shape.rows, shape.cols);
}

bool is_plain_float(quant::Format format) {
  return format == quant::Format::kF32 || format == quant::Format::kF16 ||
         format == quant::Format::kBF16;
}

class Mapper {
 public:
  Mapper(const formats::WeightSource& source, const TextConfig& config, std::vector<Fault>* faults)
      : source_(source), config_(config), faults_(faults), names_(source) {}

  WeightMap run() {
    // Files of Gemma 3 hold norm weights less one; the converter to GGUF adds the one.
    const bool less_one = config_.model_type == "gemma3_text" && !names_.is_gguf();
    map_.norm_offset = less_one ? 1.0F : 0.0F;
    map_.tied_head =
        names_.is_gguf() ? source_.find("output.weight") == nullptr : config_.tie_word_embeddings;
    has_per_layer_embeddings_ = config_.hidden_size_per_layer_input > 0;
    has_experts_ = config_.num_experts > 0;
    find_contradictions();
    for (const NameRow& row : weight_names()) {
      if (!row.in_layer && wants(row, -1)) add(row, -1);
    }
    for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
      for (const NameRow& row : weight_names()) {
        if (row.in_layer && wants(row, layer)) add(row, layer);
      }
      if (has_experts_) add_experts(layer);
    }
    map_.embed_scale = embed_scale(WeightId::kEmbedTokens, config_.hidden_size);
    map_.per_layer_embed_scale =
        embed_scale(WeightId::kEmbedTokensPerLayer, config_.hidden_size_per_layer_input);
    list_unused();
    return std::move(map_);
  }

 private:
  // A tensor that stands where the decoder computes would change what it computes: nobody knows
  // how.
  void list_unused() {
    for (const formats::TensorInfo& tensor : source_.tensors()) {
      if (used_.contains(tensor.name)) continue;
      UnusedTensor unused = why_unused(config_, tensor.name);
      unused.in_decoder = !unused.known && in_decoder(tensor.name);
      if (unused.in_decoder) {
        fault("a surplus tensor", tensor.name,
              fmt::format("only tensors of {} in its decoder", config_.model_type), unused.why);
      }
      map_.unused.push_back(std::move(unused));
    }
  }

  // In a layer, or a part of a module that is used ("norm.bias" beside "norm.weight").
  bool in_decoder(std::string_view tensor) const {
    if (tensor.starts_with(names_.all_layers())) return true;
    for (size_t dot = tensor.rfind('.'); dot != std::string_view::npos && dot > 0;
         dot = tensor.rfind('.', dot - 1)) {
      if (used_.contains(std::string(tensor.substr(0, dot)) + std::string(kWeightSuffix)))
        return true;
    }
    return false;
  }

  const LayerConfig& layer_of(int64_t layer) const {
    return config_.layers[static_cast<size_t>(layer)];
  }

  bool wants(const NameRow& row, int64_t layer) const {
    switch (row.presence) {
      case Presence::kAlways:
        return true;
      case Presence::kUntiedHead:
        return !map_.tied_head;
      case Presence::kOwnKeys:
        return layer_of(layer).owns_kv();
      case Presence::kOwnValues:
        return layer_of(layer).owns_kv() && !layer_of(layer).attention_k_eq_v;
      case Presence::kScalar:
        return config_.layer_scalar;
      case Presence::kPerLayerEmbeddings:
        return has_per_layer_embeddings_;
      case Presence::kExperts:
      case Presence::kExpertScale:
        return has_experts_;
    }
    return false;
  }

  const formats::TensorInfo* find(WeightId id, int64_t layer) const {
    for (const NameRow& row : weight_names()) {
      if (row.id == id) return source_.find(names_.tensor(row, layer));
    }
    return nullptr;
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

  // Parts of a model that are there as a whole or not at all: one fault says what hundreds of
  // missing or surplus tensors would.
  void find_contradictions() {
    part(WeightId::kEmbedTokensPerLayer, -1, "hidden_size_per_layer_input",
         config_.hidden_size_per_layer_input, &has_per_layer_embeddings_);
    part(WeightId::kRouterProj, 0, "the number of experts", config_.num_experts, &has_experts_);
    for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
      const LayerConfig& layer = layer_of(i);
      const formats::TensorInfo* values = find(WeightId::kVProj, i);
      if (!layer.owns_kv() || !layer.attention_k_eq_v || values == nullptr) continue;
      fault("the configuration contradicts the tensors", values->name,
            "no v_proj in a full layer (attention_k_eq_v is true)", shape_text(values->shape));
    }
  }

  void part(WeightId id, int64_t layer, std::string_view key, int64_t value, bool* there) {
    const formats::TensorInfo* tensor = find(id, layer);
    if ((tensor != nullptr) == (value > 0)) return;
    *there = false;
    std::string name;
    for (const NameRow& row : weight_names()) {
      if (row.id == id) name = names_.tensor(row, layer);
    }
    fault("the configuration contradicts the tensors", name,
          fmt::format("{} tensor, as {} is {}", value > 0 ? "a" : "no", key, value),
          tensor == nullptr ? "no such tensor" : shape_text(tensor->shape));
  }

  // Why a shape is what the configuration says, where one key decides it.
  std::string because(WeightId id, int64_t layer) const {
    if (layer < 0) return "";
    const LayerConfig& own = layer_of(layer);
    const bool mlp =
        id == WeightId::kGateProj || id == WeightId::kUpProj || id == WeightId::kDownProj;
    if (mlp && !own.owns_kv()) {
      const bool wide = own.intermediate_size > layer_of(0).intermediate_size;
      return fmt::format(" (use_double_wide_mlp is {})", wide);
    }
    if (id == WeightId::kVProj && own.type == LayerType::kFull && config_.value_norm)
      return " (attention_k_eq_v is false)";
    return "";
  }

  void add(const NameRow& row, int64_t layer) {
    const std::string tensor = names_.tensor(row, layer);
    const WeightShape shape = expected_shape(config_, row.id, layer);
    const std::string expected = shape_text(shape, row.is_vector) + because(row.id, layer);
    MappedWeight weight;
    weight.id = row.id;
    weight.layer = layer;
    weight.is_vector = row.is_vector;
    weight.name = layer < 0 ? std::string(row.ours) : fmt::format("layer.{}.{}", layer, row.ours);
    weight.source_name = tensor;
    const formats::TensorInfo* info = source_.find(tensor);
    if (info == nullptr) {
      if (!may_be_left_out(row)) return missing(row, tensor, expected);
      weight.source_name += " (left out: 1)";
      weight.view = ones(shape.cols);
      map_.weights.push_back(std::move(weight));
      return;
    }
    used_.insert(tensor);
    const bool good = row.is_vector ? vector_view(*info, shape.cols, expected, &weight.view)
                                    : matrix_view(tensor, shape, expected, &weight.view);
    if (good) map_.weights.push_back(std::move(weight));
  }

  // Quantised by another program, a module has no tensor of the usual name: the source knows.
  void missing(const NameRow& row, const std::string& tensor, const std::string& expected) {
    for (const char* part : {".weight_packed", ".qweight"}) {
      if (row.is_vector || source_.find(module_of(tensor) + part) == nullptr) continue;
      const Result<quant::WeightView> refused = source_.weight(module_of(tensor));
      if (refused.ok()) continue;
      faults_->push_back({refused.error().message, "", "", ""});
      return;
    }
    fault("a tensor is missing", tensor, expected, "no such tensor");
  }

  bool may_be_left_out(const NameRow& row) const {
    return names_.is_gguf() &&
           (row.presence == Presence::kScalar || row.presence == Presence::kExpertScale);
  }

  static quant::WeightView ones(int64_t count) {
    quant::WeightView view;
    view.rows = 1;
    view.cols = count;
    view.data = std::as_bytes(std::span(kOnes).first(static_cast<size_t>(count)));
    return view;
  }

  bool vector_view(const formats::TensorInfo& info, int64_t width, const std::string& expected,
                   quant::WeightView* view) {
    const bool scalar = width == 1 && info.shape.empty();
    if (!scalar && info.shape != std::vector<int64_t>{width}) {
      fault("the shape contradicts the configuration", info.name, expected, shape_text(info.shape));
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

  // A GGUF names tensors whole; elsewhere a module is its weight, scales and biases.
  std::string module_of(const std::string& tensor) const {
    if (names_.is_gguf() || !tensor.ends_with(kWeightSuffix)) return tensor;
    return tensor.substr(0, tensor.size() - kWeightSuffix.size());
  }

  bool matrix_view(const std::string& tensor, const WeightShape& shape, const std::string& expected,
                   quant::WeightView* view) {
    used_.insert(tensor);
    Result<quant::WeightView> found = source_.weight(module_of(tensor));
    // What stands beside a weight that cannot be read says no more than that.
    if (!found.ok() || quant::is_mlx(found->format)) mark_parts(tensor);
    if (!found.ok()) {
      faults_->push_back({found.error().message, "", "", ""});
      return false;
    }
    if (found->rows != shape.rows || found->cols != shape.cols) {
      fault("the shape contradicts the configuration", tensor, expected,
            fmt::format("[{}, {}]{}", found->rows, found->cols, other_bits(*found, shape)));
      return false;
    }
    *view = *found;
    return true;
  }

  // Bits and group size that the configuration states wrongly can still fit each other: the width
  // that the weight must have shows what they are.
  static std::string other_bits(const quant::WeightView& found, const WeightShape& shape) {
    if (!quant::is_mlx(found.format) || found.rows != shape.rows) return "";
    const int64_t groups = found.cols / found.group_size;
    const int64_t row_bits = 8 * quant::row_bytes(found);
    if (shape.cols == 0 || shape.cols % groups != 0 || row_bits % shape.cols != 0) return "";
    return fmt::format(
        " by {} bits in groups of {}, as its quantization block says; the file has {} in groups of "
        "{}",
        found.bits, found.group_size, row_bits / shape.cols, shape.cols / groups);
  }

  void mark_parts(const std::string& tensor) {
    const std::string module = module_of(tensor);
    for (const char* part : {".scales", ".biases"}) used_.insert(module + part);
  }

  void add_experts(int64_t layer) {
    for (const ExpertRow& row : expert_names()) {
      const auto& candidates = names_.is_gguf() ? row.gguf : row.hf;
      const formats::TensorInfo* info = nullptr;
      const ExpertName* found = nullptr;
      for (const ExpertName& candidate : candidates) {
        const std::string name = names_.layer_prefix(layer) + candidate.name;
        if (info == nullptr) {
          info = find_stack(name);
          if (info != nullptr) found = &candidate;
        }
      }
      if (info != nullptr) {
        add_stack(row, *found, *info, layer);
      } else {
        add_single_experts(row, layer);
      }
    }
  }

  const formats::TensorInfo* find_stack(const std::string& name) const {
    const formats::TensorInfo* info = source_.find(name + std::string(kWeightSuffix));
    return info != nullptr ? info : source_.find(name);
  }

  // [num_experts, parts * rows, cols]: each expert's matrix is a run of rows.
  void add_stack(const ExpertRow& row, const ExpertName& name, const formats::TensorInfo& info,
                 int64_t layer) {
    const WeightShape one = expected_shape(config_, row.id, layer);
    const int64_t rows_each = one.rows * name.parts;
    const std::string expected =
        fmt::format("[{}, {}, {}]", config_.num_experts, rows_each, one.cols);
    used_.insert(info.name);
    if (info.shape.size() != 3 || info.shape[0] != config_.num_experts ||
        info.shape[1] != rows_each) {
      mark_parts(info.name);
      if (name.part == 0) {
        fault("the shape contradicts the configuration", info.name, expected,
              shape_text(info.shape));
      }
      return;
    }
    quant::WeightView all;
    const WeightShape stacked = {config_.num_experts * rows_each, one.cols};
    // Both halves of a fused tensor would repeat the same fault.
    const size_t faults_before = faults_->size();
    if (!matrix_view(info.name, stacked, expected, &all)) {
      if (name.part != 0) faults_->resize(faults_before);
      return;
    }
    for (int64_t e = 0; e < config_.num_experts; ++e) {
      add_expert(row, layer, e, info.name,
                 quant::row_slice(all, e * rows_each + name.part * one.rows, one.rows));
    }
  }

  // experts.17.gate_proj.weight: one tensor for each.
  void add_single_experts(const ExpertRow& row, int64_t layer) {
    const WeightShape one = expected_shape(config_, row.id, layer);
    for (int64_t e = 0; e < config_.num_experts; ++e) {
      const std::string tensor =
          fmt::format("{}experts.{}.{}{}", names_.layer_prefix(layer), e, row.ours, kWeightSuffix);
      if (source_.find(tensor) == nullptr) {
        const char* stack = names_.is_gguf() ? row.gguf[0].name : row.hf[0].name;
        fault("a tensor is missing", names_.layer_prefix(layer) + stack,
              fmt::format("{} of [{}, {}] for {} experts", row.ours, one.rows, one.cols,
                          config_.num_experts),
              e == 0 ? "no such tensor" : fmt::format("no tensor of expert {}", e));
        return;
      }
      quant::WeightView view;
      if (matrix_view(tensor, one, shape_text(one, false), &view))
        add_expert(row, layer, e, tensor, view);
    }
  }

  void add_expert(const ExpertRow& row, int64_t layer, int64_t expert, const std::string& source,
                  const quant::WeightView& view) {
    MappedWeight weight;
    weight.id = row.id;
    weight.layer = layer;
    weight.expert = expert;
    weight.name = fmt::format("layer.{}.experts.{}.{}", layer, expert, row.ours);
    weight.source_name = source;
    weight.view = view;
    map_.weights.push_back(std::move(weight));
  }

  // Files made for the reference programs round the root to the type that the table's values have
  // when they are looked up; a GGUF is read by programs that do not.
  float embed_scale(WeightId id, int64_t width) const {
    const float exact = std::sqrt(static_cast<float>(width));
    if (names_.is_gguf()) return exact;
    const auto table = std::find_if(map_.weights.begin(), map_.weights.end(),
                                    [&](const MappedWeight& weight) { return weight.id == id; });
    if (table == map_.weights.end()) return exact;
    const quant::WeightView& view = table->view;
    const bool affine = view.format == quant::Format::kAffine;
    // MLX gives the values of its float modes as BF16.
    const bool mode = quant::is_mlx(view.format) && !affine;
    const bool bf16 = mode || (affine ? view.scale_dtype == tensor::DType::kBF16
                                      : view.format == quant::Format::kBF16);
    const bool f16 =
        affine ? view.scale_dtype == tensor::DType::kF16 : view.format == quant::Format::kF16;
    if (bf16) return base::bf16_to_float(base::float_to_bf16(exact));
    if (f16) return base::fp16_to_float(base::float_to_fp16(exact));
    return exact;
  }

  const formats::WeightSource& source_;
  const TextConfig& config_;
  std::vector<Fault>* faults_;
  NameScheme names_;
  bool has_per_layer_embeddings_ = false;
  bool has_experts_ = false;
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
