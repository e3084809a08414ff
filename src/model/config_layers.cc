// What the readers of Gemma 4 share, whatever the file.
#include <algorithm>

#include "base/error.h"
#include "model/config_readers.h"

namespace markbase::model {
namespace {

// The last of the first `count` layers of that type, -1 if there is none.
int64_t last_of_type(const std::vector<LayerConfig>& layers, int64_t count, LayerType type) {
  for (int64_t i = count - 1; i >= 0; --i) {
    if (layers[static_cast<size_t>(i)].type == type) return i;
  }
  return -1;
}

}  // namespace

int rope_index(const RopeConfig& rope, TextConfig* config) {
  const auto found = std::find(config->ropes.begin(), config->ropes.end(), rope);
  const auto idx = static_cast<int>(found - config->ropes.begin());
  if (found == config->ropes.end()) config->ropes.push_back(rope);
  return idx;
}

Result<void> share_kv(const ConfigFields& fields, std::string_view key, int64_t num_shared,
                      TextConfig* config) {
  const int64_t first = config->num_hidden_layers - num_shared;
  for (int64_t i = first; i < config->num_hidden_layers; ++i) {
    LayerConfig& layer = config->layers[static_cast<size_t>(i)];
    const int64_t source = last_of_type(config->layers, first, layer.type);
    if (source < 0) {
      return fields.wrong(key, fmt::format("a {} layer before layer {} whose K and V layer {} uses",
                                           layer_type_name(layer.type), first, i));
    }
    const LayerConfig& owner = config->layers[static_cast<size_t>(source)];
    if (owner.head_dim != layer.head_dim ||
        owner.num_key_value_heads != layer.num_key_value_heads) {
      return fields.wrong(
          key, fmt::format("layer {} to have the heads of layer {} whose K and V it uses ({} of "
                           "{}, not {} of {})",
                           i, source, owner.num_key_value_heads, owner.head_dim,
                           layer.num_key_value_heads, layer.head_dim));
    }
    layer.kv_source_idx = source;
  }
  return {};
}

Result<void> check_heads(const ConfigFields& fields, std::string_view heads_key,
                         std::string_view kv_key, const TextConfig& config) {
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    if (config.num_attention_heads % layer.num_key_value_heads != 0) {
      return fields.wrong(kv_key,
                          fmt::format("a divisor of {} ({}) in layer {} (which has {})", heads_key,
                                      config.num_attention_heads, i, layer.num_key_value_heads));
    }
  }
  return {};
}

}  // namespace markbase::model
