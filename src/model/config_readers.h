// The parts of config.cc: one reader for each architecture and kind of file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/config_fields.h"

namespace markbase::model {

// Keys of a Gemma 4 text decoder, wherever they stand in the file. `unified`: the defaults of the
// encoder-free model.
Result<TextConfig> gemma4_from_hf(const ConfigFields& fields, bool unified);
// Keys "gemma4.*". What a GGUF says by its tensors alone (keys that serve as values, the rotated
// part of a head, rows of the tables) is read_config's.
Result<TextConfig> gemma4_from_gguf(const ConfigFields& fields);

// "layer_types", or every sixth layer full. The last layer is full in Gemma 4, whatever the list
// says.
Result<std::vector<LayerType>> read_layer_types(const ConfigFields& fields, int64_t count);
// gelu_pytorch_tanh, no biases, no soft cap inside attention.
Result<void> refuse_unknown_features(const ConfigFields& fields);

// Index of `rope` in config->ropes, appended if it is new.
int rope_index(const RopeConfig& rope, TextConfig* config);
// The last num_shared layers attend to the K and V of the last layer before them of their own type.
// Errors name `key`.
Result<void> share_kv(const ConfigFields& fields, std::string_view key, int64_t num_shared,
                      TextConfig* config);
// Every layer's key-value heads divide the query heads, head dimensions are even.
Result<void> check_heads(const ConfigFields& fields, std::string_view heads_key,
                         std::string_view kv_key, const TextConfig& config);

}  // namespace markbase::model
