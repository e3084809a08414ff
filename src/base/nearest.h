// What a misspelled name may have meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace markbase::base {

// Letters to insert, delete or replace to get from one to the other.
size_t edit_distance(std::string_view a, std::string_view b);

// The name that is nearest, the first of several; empty where none shares half of its letters.
std::string_view nearest(std::string_view name, std::span<const std::string_view> names);

}  // namespace markbase::base
