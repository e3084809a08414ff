// Keys that an object of a JSON text has twice: readers disagree about what they mean.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "markbase/result.h"

namespace markbase::base {

// The first, at any depth. `json` must be valid.
std::optional<std::string> repeated_key(std::string_view json);
// Errors (kUsage): there is one. `what` names the text, or is empty.
Result<void> check_no_repeated_key(std::string_view json, std::string_view what = "");

}  // namespace markbase::base
