// What the JSON library says of a text that it cannot parse, without its own name and place for it.
#pragma once

#include <string_view>

namespace markbase::base {

// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while ..." gives
// "syntax error while ...". A view into `what`; all of it where it is built otherwise.
std::string_view json_fault(std::string_view what);

}  // namespace markbase::base
