#include "support/random_decoder.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "quant/encode.h"
#include "runtime/ids_only_tokenizer.h"
#include "support/random.h"

namespace markbase::testing {
namespace {

using model::LayerConfig;
using model::LayerType;
using model::WeightId;

// A source without files: its weights are in memory already.
class MemorySource final : public formats::WeightSource {
 public:
  formats::FileKind kind() const override { return formats::FileKind::kSafetensors; }
  std::span<const formats::TensorInfo> tensors() const override { return {}; }
  const formats::TensorInfo* find(std::string_view) const override { return nullptr; }
  const base::Json& config() const override { return config_; }
  std::span<const std::string> files() const override { return {&path_, 1}; }
  std::vector<base::FileIdentity> identities() const override { return {}; }
  Result<quant::WeightView> weight(std::string_view name) const override {
    return base::bad_input("{}: no such weight", name);
  }
  void release(std::span<const std::byte>) const override {}
  void prefetch(std::span<const std::byte>) const override {}
  Result<void> check_intact() const override { return {}; }

 private:
  base::Json config_;
  std::string path_ = "memory";
};

LayerConfig layer_of(LayerType type, int64_t kv_heads, int64_t head_dim, int64_t wide,
                     int64_t window) {
  LayerConfig layer;
  layer.type = type;
  layer.head_dim = head_dim;
  layer.num_key_value_heads = kv_heads;
  layer.intermediate_size = wide;
  layer.sliding_window = type == LayerType::kSliding ? window : 0;
  layer.rope_idx = type == LayerType::kSliding ? 0 : 1;
  return layer;
}

}  // namespace

std::string decoder_shape_name(DecoderShape shape) {
  switch (shape) {
    case DecoderShape::kPerLayerInputs:
      return "PerLayerInputs";
    case DecoderShape::kExperts:
      return "Experts";
    case DecoderShape::kKeysAreValues:
      return "KeysAreValues";
    case DecoderShape::kOddSources:
      return "OddSources";
    case DecoderShape::kSharedKeys:
      return "SharedKeys";
    case DecoderShape::kOneGlobalHead:
      return "OneGlobalHead";
  }
  MB_CHECK(false);
}

void RandomDecoder::set_shape(DecoderShape shape) {
  const auto layers = [&](std::string_view types, int64_t sliding_kv, int64_t full_kv) {
    for (const char type : types) {
      const bool full = type == 'F';
      config_.layers.push_back(layer_of(full ? LayerType::kFull : LayerType::kSliding,
                                        full ? full_kv : sliding_kv, full ? 32 : 16, 96, window_));
    }
  };
  const auto share = [&](size_t layer, int64_t source, int64_t wide) {
    config_.layers[layer].kv_source_idx = source;
    config_.layers[layer].intermediate_size = wide;
  };
  switch (shape) {
    case DecoderShape::kPerLayerInputs:
      layers("SSFSSF", 1, 1);
      share(3, 1, 192);
      share(4, 1, 192);
      share(5, 2, 192);
      config_.hidden_size_per_layer_input = 32;
      config_.vocab_size_per_layer_input = table_rows_;
      break;
    case DecoderShape::kExperts:
      layers("SSF", 4, 2);
      config_.num_experts = 20;
      config_.top_k_experts = 3;
      config_.moe_intermediate_size = 32;
      break;
    case DecoderShape::kKeysAreValues:
      layers("SFSF", 4, 2);
      break;
    case DecoderShape::kOddSources:
      layers("FSFFFSF", 2, 2);
      share(4, 3, 96);
      share(5, 1, 96);
      share(6, 3, 96);
      break;
    case DecoderShape::kSharedKeys:
      layers("SFSF", 2, 2);
      share(2, 0, 96);
      share(3, 1, 96);
      config_.hidden_size_per_layer_input = 32;
      config_.vocab_size_per_layer_input = table_rows_;
      break;
    case DecoderShape::kOneGlobalHead:
      layers("SSFSF", 4, 1);
      config_.final_logit_softcapping = 6.0F;
      break;
  }
  const bool keys_are_values = shape == DecoderShape::kExperts ||
                               shape == DecoderShape::kKeysAreValues ||
                               shape == DecoderShape::kOneGlobalHead;
  for (LayerConfig& layer : config_.layers) {
    layer.attention_k_eq_v = keys_are_values && layer.type == LayerType::kFull;
  }
}

RandomDecoder::RandomDecoder(DecoderShape shape, quant::Format format, int64_t table_rows,
                             int64_t window)
    : format_(format), table_rows_(table_rows), window_(window) {
  config_.model_type = "gemma4_text";
  config_.vocab_size = kVocab;
  config_.hidden_size = 64;
  config_.num_attention_heads = 4;
  config_.max_position_embeddings = 4096;
  config_.final_logit_softcapping = 30.0F;
  config_.value_norm = true;
  config_.layer_scalar = true;
  config_.ropes = {{.rope_theta = 1e4, .head_dim = 16},
                   {.rope_theta = 1e6, .partial_rotary_factor = 0.25, .head_dim = 32}};
  set_shape(shape);
  config_.num_hidden_layers = static_cast<int64_t>(config_.layers.size());
  const int64_t ple_width = config_.num_hidden_layers * config_.hidden_size_per_layer_input;
  map_.embed_scale = 8.0F;
  map_.per_layer_embed_scale = 5.65685425F;
  add_matrix(WeightId::kEmbedTokens, -1, -1, kVocab, config_.hidden_size, 0.3F);
  add_vector(WeightId::kNorm, -1, config_.hidden_size, 0.3F);
  if (ple_width > 0) {
    add_matrix(WeightId::kEmbedTokensPerLayer, -1, -1, config_.vocab_size_per_layer_input,
               ple_width, 0.2F);
    add_matrix(WeightId::kPerLayerModelProjection, -1, -1, ple_width, config_.hidden_size, 1.0F);
    add_vector(WeightId::kPerLayerProjectionNorm, -1, config_.hidden_size_per_layer_input, 0.3F);
  }
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    add_layer(config_.layers[static_cast<size_t>(i)], i);
  }
}

void RandomDecoder::add_layer(const LayerConfig& layer, int64_t idx) {
  const int64_t hidden = config_.hidden_size;
  const int64_t q_width = config_.num_attention_heads * layer.head_dim;
  const int64_t kv_width = layer.num_key_value_heads * layer.head_dim;
  const int64_t wide = layer.intermediate_size;
  const auto matrix = [&](WeightId id, int64_t rows, int64_t cols) {
    add_matrix(id, idx, -1, rows, cols, 1.0F / std::sqrt(static_cast<float>(cols)));
  };
  for (const WeightId id :
       {WeightId::kInputLayernorm, WeightId::kPostAttentionLayernorm,
        WeightId::kPreFeedforwardLayernorm, WeightId::kPostFeedforwardLayernorm}) {
    add_vector(id, idx, hidden, 0.3F);
  }
  add_vector(WeightId::kQNorm, idx, layer.head_dim, 0.3F);
  add_vector(WeightId::kLayerScalar, idx, 1, 0.2F);
  matrix(WeightId::kQProj, q_width, hidden);
  if (layer.owns_kv()) {
    add_vector(WeightId::kKNorm, idx, layer.head_dim, 0.3F);
    matrix(WeightId::kKProj, kv_width, hidden);
    if (!layer.attention_k_eq_v) matrix(WeightId::kVProj, kv_width, hidden);
  }
  matrix(WeightId::kOProj, hidden, q_width);
  matrix(WeightId::kGateProj, wide, hidden);
  matrix(WeightId::kUpProj, wide, hidden);
  matrix(WeightId::kDownProj, hidden, wide);
  if (const int64_t width = config_.hidden_size_per_layer_input; width > 0) {
    matrix(WeightId::kPerLayerInputGate, width, hidden);
    matrix(WeightId::kPerLayerProjection, hidden, width);
    add_vector(WeightId::kPostPerLayerInputNorm, idx, hidden, 0.3F);
  }
  if (config_.num_experts == 0) return;
  for (const WeightId id :
       {WeightId::kPostFeedforwardLayernorm1, WeightId::kPreFeedforwardLayernorm2,
        WeightId::kPostFeedforwardLayernorm2, WeightId::kRouterScale}) {
    add_vector(id, idx, hidden, 0.3F);
  }
  add_vector(WeightId::kPerExpertScale, idx, config_.num_experts, 0.3F);
  add_matrix(WeightId::kRouterProj, idx, -1, config_.num_experts, hidden, 3.0F);
  for (int64_t e = 0; e < config_.num_experts; ++e) {
    const int64_t width = config_.moe_intermediate_size;
    add_matrix(WeightId::kExpertGateProj, idx, e, width, hidden, 0.125F);
    add_matrix(WeightId::kExpertUpProj, idx, e, width, hidden, 0.125F);
    add_matrix(WeightId::kExpertDownProj, idx, e, hidden, width, 0.18F);
  }
}

void RandomDecoder::add_matrix(WeightId id, int64_t layer, int64_t expert, int64_t rows,
                               int64_t cols, float scale) {
  add(id, layer, expert, format_, rows, cols, random_floats(++seed_, rows * cols, scale));
}

// Around one.
void RandomDecoder::add_vector(WeightId id, int64_t layer, int64_t width, float spread) {
  std::vector<float> values = random_floats(++seed_, width, spread);
  for (float& value : values) value += 1.0F;
  add(id, layer, -1, quant::Format::kF32, 1, width, values);
  map_.weights.back().is_vector = true;
}

void RandomDecoder::add(WeightId id, int64_t layer, int64_t expert, quant::Format format,
                        int64_t rows, int64_t cols, const std::vector<float>& values) {
  const quant::BlockShape block = quant::block_shape(format);
  const auto row_bytes = static_cast<size_t>(cols / block.elements * block.bytes);
  bytes_.emplace_back(static_cast<size_t>(rows) * row_bytes);
  for (int64_t row = 0; row < rows; ++row) {
    const auto source =
        std::span(values).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols));
    const auto target =
        std::span(bytes_.back()).subspan(static_cast<size_t>(row) * row_bytes, row_bytes);
    MB_CHECK(quant::encode_row(format, source, target).ok());
  }
  model::MappedWeight weight;
  weight.id = id;
  weight.layer = layer;
  weight.expert = expert;
  weight.name = fmt::format("{}.{}.{}", static_cast<int>(id), layer, expert);
  weight.source_name = weight.name;
  weight.view.format = format;
  weight.view.rows = rows;
  weight.view.cols = cols;
  weight.view.data = bytes_.back();
  map_.weights.push_back(std::move(weight));
}

std::unique_ptr<runtime::LoadedModel> RandomDecoder::load(
    const EngineOptions& options, const runtime::RunnerOptions& runner) const {
  auto loaded = std::make_unique<runtime::LoadedModel>();
  loaded->config = config_;
  loaded->source = std::make_unique<MemorySource>();
  auto backend = runtime::make_backend(options);
  MB_CHECK(backend.ok());
  loaded->backend = std::move(backend).value();
  auto weights =
      runtime::load_weights(*loaded->source, config_, map_, loaded->backend, options, std::nullopt);
  MB_CHECK_MSG(weights.ok(), weights.ok() ? "" : weights.error().message.c_str());
  loaded->weights = std::move(weights->weights);
  loaded->tokenizer = std::make_unique<runtime::IdsOnlyTokenizer>("none");
  MB_CHECK(loaded->make_runner(runner).ok());
  return loaded;
}

}  // namespace markbase::testing
