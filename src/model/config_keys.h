// Keys of a configuration that nothing here reads or knows to be without effect.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "formats/weight_source.h"

namespace markbase::model {

// In file order; "text_config.x" for a key of the text part. Keys of the towers are not looked at,
// nor the quantization block's. An unknown key is no fault: newer programs write keys that older
// ones need not know. What would change the arithmetic is refused by config_from_hf/_gguf by name.
std::vector<std::string> unknown_config_keys(const base::Json& config, formats::FileKind kind);

}  // namespace markbase::model
