#include "model/config_gguf_tensors.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace markbase::model {
namespace {

constexpr std::string_view kGemma4 = "gemma4_text";

Result<int64_t> table_rows(const formats::WeightSource& source, std::string_view where,
                           const char* name) {
  const formats::TensorInfo* table = source.find(name);
  if (table != nullptr && table->shape.size() == 2 && table->shape[0] > 0) return table->shape[0];
  return base::bad_input("{}: {}: expected a table [vocab, width], got {}", where, name,
                         table == nullptr ? "none" : "another shape");
}

// A single layer without values is a damaged file; all full layers without them is a model.
void find_shared_values(const formats::WeightSource& source, TextConfig* config) {
  const auto lacks_values = [&](const LayerConfig& layer) {
    const auto idx = &layer - config->layers.data();
    return source.find(fmt::format("blk.{}.attn_v.weight", idx)) == nullptr;
  };
  const auto counts = [](const LayerConfig& layer) {
    return layer.type == LayerType::kFull && layer.owns_kv();
  };
  const bool all = std::all_of(config->layers.begin(), config->layers.end(),
                               [&](const auto& l) { return !counts(l) || lacks_values(l); });
  for (LayerConfig& layer : config->layers)
    layer.attention_k_eq_v = all && layer.type == LayerType::kFull;
}

// Number of leading ones; -1 when anything but ones and then very large numbers is there.
int64_t leading_ones(std::span<const float> divisors) {
  constexpr float kStandsStill = 1e29F;  // files have 1e30
  size_t ones = 0;
  while (ones < divisors.size() && divisors[ones] == 1.0F) ++ones;
  const bool rest = std::all_of(divisors.begin() + static_cast<std::ptrdiff_t>(ones),
                                divisors.end(), [](float v) { return v >= kStandsStill; });
  return rest ? static_cast<int64_t>(ones) : -1;
}

Result<void> read_rope_freqs(const formats::WeightSource& source, std::string_view where,
                             TextConfig* config) {
  constexpr const char* kName = "rope_freqs.weight";
  const auto is_full = [](const LayerConfig& l) { return l.type == LayerType::kFull; };
  const auto full = std::find_if(config->layers.begin(), config->layers.end(), is_full);
  if (full == config->layers.end()) return {};
  const int64_t pairs = full->head_dim / 2;
  const std::string expected =
      fmt::format("[{}] F32: ones for the pairs that turn, then 1e30", pairs);
  const formats::TensorInfo* tensor = source.find(kName);
  if (tensor == nullptr) {
    return base::bad_input("{}: {}: expected {}, got no such tensor", where, kName, expected);
  }
  if (tensor->shape != std::vector<int64_t>{pairs} || tensor->block_format != quant::Format::kF32) {
    return base::bad_input("{}: {}: expected {}, got {} [{}]", where, kName, expected,
                           tensor->type_name, fmt::join(tensor->shape, ", "));
  }
  const quant::WeightView view = {quant::Format::kF32, 1, pairs, tensor->data};
  std::vector<float> divisors(static_cast<size_t>(pairs));
  quant::decode_row(view, 0, divisors);
  const int64_t rotated = leading_ones(divisors);
  if (rotated < 0) {
    return base::bad_input("{}: {}: expected {}, got other values", where, kName, expected);
  }
  RopeConfig rope = config->ropes[static_cast<size_t>(full->rope_idx)];
  rope.partial_rotary_factor = static_cast<double>(rotated) / static_cast<double>(pairs);
  config->ropes.push_back(rope);
  for (LayerConfig& layer : config->layers) {
    if (is_full(layer)) layer.rope_idx = static_cast<int>(config->ropes.size()) - 1;
  }
  return {};
}

// A table of angles that no layer uses would only cost memory.
void drop_unused_ropes(TextConfig* config) {
  std::vector<RopeConfig> used;
  for (LayerConfig& layer : config->layers) {
    const RopeConfig rope = config->ropes[static_cast<size_t>(layer.rope_idx)];
    const auto found = std::find(used.begin(), used.end(), rope);
    layer.rope_idx = static_cast<int>(found - used.begin());
    if (found == used.end()) used.push_back(rope);
  }
  config->ropes = std::move(used);
}

}  // namespace

Result<void> complete_from_tensors(const formats::WeightSource& source, std::string_view where,
                                   TextConfig* config) {
  MB_ASSIGN(config->vocab_size, table_rows(source, where, "token_embd.weight"));
  config->tie_word_embeddings = source.find("output.weight") == nullptr;
  if (config->model_type != kGemma4) return {};
  if (config->hidden_size_per_layer_input > 0) {
    MB_ASSIGN(config->vocab_size_per_layer_input,
              table_rows(source, where, "per_layer_token_embd.weight"));
  }
  find_shared_values(source, config);
  MB_TRY(read_rope_freqs(source, where, config));
  drop_unused_ropes(config);
  return {};
}

}  // namespace markbase::model
