// What the weights of a model cost: by group of tensors, in the file and for each token.
#pragma once

#include "base/json.h"
#include "model/config.h"
#include "model/weight_map.h"

namespace markbase::tools {

// [{"group", "tensors", "weights", "bytes", "bits_per_weight", "formats": [...],
// "bytes_per_token"}]: embedding, head, per-layer embeddings, attention, mlp, router, experts,
// norms, those that the model has. A tensor of stacked experts counts once. bytes_per_token: what
// one decoded token reads of the file's bytes: a row of a table that is only looked up, the chosen
// experts, all of the rest.
base::Json weight_groups_json(const model::TextConfig& config, const model::WeightMap& map);

// "Q4_K", "BF16", "affine 4-bit, groups of 64", ...
std::string format_text(const quant::WeightView& view);

}  // namespace markbase::tools
