// Keys that an object of a JSON text has twice: readers disagree about what they mean.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace markbase::cli {

// The first, at any depth. `json` must be valid.
std::optional<std::string> repeated_key(std::string_view json);

}  // namespace markbase::cli
