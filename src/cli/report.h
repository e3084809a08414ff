// JSON documents shown to people.
#pragma once

#include <string>

#include "base/json.h"

namespace markbase::cli {

// "key: value" lines, nested objects indented, arrays of objects as tables, of plain values on one
// line.
std::string report_text(const base::Json& json, int indent = 0);

}  // namespace markbase::cli
