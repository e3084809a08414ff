// JSON for every room: nlohmann-json behind one name, parsed without exceptions.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "markbase/result.h"

namespace markbase::base {

using Json = nlohmann::ordered_json;

// `what` names the source in the error ("config.json of DIR"). Refuses nesting deeper than 256.
Result<Json> parse_json(std::string_view text, std::string_view what);

// JSON text with invalid UTF-8 replaced by U+FFFD, never throwing. indent < 0: one line.
std::string dump_json(const Json& json, int indent = -1);

}  // namespace markbase::base
