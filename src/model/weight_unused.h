// Why a tensor of a file has no place in the decoder.
#pragma once

#include "model/config.h"
#include "model/weight_map.h"

namespace markbase::model {

// `tensor` was not mapped. known is false when nothing we know has that name.
UnusedTensor why_unused(const TextConfig& config, std::string_view tensor);

}  // namespace markbase::model
