// The shape that a configuration gives each weight.
#pragma once

#include "model/config.h"
#include "model/weight_map.h"

namespace markbase::model {

struct WeightShape {
  int64_t rows;  // outputs; 1 for a vector
  int64_t cols;  // inputs
};
// layer_idx -1: a weight of no layer. One expert's matrix for those.
WeightShape expected_shape(const TextConfig& config, WeightId id, int64_t layer_idx);

}  // namespace markbase::model
