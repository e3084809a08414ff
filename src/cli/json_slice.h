// Parts of a JSON text as they were written, for what must keep the spelling of its numbers.
#pragma once

#include <string_view>
#include <vector>

namespace markbase::cli {

// The value of a member of an object, the last of several. `object` must be valid JSON. Empty where
// there is none, or where the key is written with escapes.
std::string_view json_member(std::string_view object, std::string_view key);
// The values of a list, which must be valid JSON. None where it is no list.
std::vector<std::string_view> json_items(std::string_view list);

}  // namespace markbase::cli
