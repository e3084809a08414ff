#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "model/config_gguf_tensors.h"

namespace markbase::model {

std::string_view layer_type_name(LayerType type) {
  return type == LayerType::kSliding ? "sliding_attention" : "full_attention";
}

std::vector<float> RopeConfig::inv_freq() const {
  std::vector<float> out(static_cast<size_t>(head_dim / 2));
  const auto rotated = static_cast<size_t>(num_rotated_pairs());
  for (size_t k = 0; k < rotated; ++k) {
    const float exponent = static_cast<float>(2 * k) / static_cast<float>(head_dim);
    const auto power = static_cast<float>(std::pow(rope_theta, static_cast<double>(exponent)));
    out[k] = (1.0F / power) / static_cast<float>(factor);
  }
  return out;
}

int64_t RopeConfig::num_rotated_pairs() const {
  const double pairs = partial_rotary_factor * static_cast<double>(head_dim) / 2.0;
  return std::min(static_cast<int64_t>(pairs), head_dim / 2);
}

int64_t TextConfig::max_head_dim() const {
  int64_t most = 0;
  for (const LayerConfig& layer : layers) most = std::max(most, layer.head_dim);
  return most;
}

int64_t TextConfig::max_key_value_heads() const {
  int64_t most = 0;
  for (const LayerConfig& layer : layers) most = std::max(most, layer.num_key_value_heads);
  return most;
}

int64_t TextConfig::max_intermediate_size() const {
  int64_t most = 0;
  for (const LayerConfig& layer : layers) most = std::max(most, layer.intermediate_size);
  return most;
}

std::string_view supported_architectures() {
  return "gemma4, gemma4_unified (Gemma 4; gemma4_text alone; \"gemma4\" in a GGUF), gemma3_text "
         "(Gemma 3 270M and 1B, and the text part of the larger ones; \"gemma3\" in a GGUF)";
}

std::string config_path(const formats::WeightSource& source) {
  const std::string first = source.files().empty() ? std::string() : source.files().front();
  if (source.kind() == formats::FileKind::kGguf) return first;
  return (std::filesystem::path(first).parent_path() / "config.json").string();
}

Result<TextConfig> read_config(const formats::WeightSource& source) {
  const std::string where = config_path(source);
  if (source.kind() == formats::FileKind::kSafetensors)
    return config_from_hf(source.config(), where);
  MB_ASSIGN(TextConfig config, config_from_gguf(source.config(), where));
  MB_TRY(complete_from_tensors(source, where, &config));
  return config;
}

}  // namespace markbase::model
