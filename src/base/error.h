// Makes an Error with a formatted message: return usage_error("--threads {}: ...", n);
#pragma once

#include <fmt/format.h>

#include "markbase/result.h"

namespace markbase::base {

template <class... Args>
Error failed(fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::kFailed, fmt::format(format, std::forward<Args>(args)...)};
}
template <class... Args>
Error usage_error(fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::kUsage, fmt::format(format, std::forward<Args>(args)...)};
}
template <class... Args>
Error bad_input(fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::kBadInput, fmt::format(format, std::forward<Args>(args)...)};
}
template <class... Args>
Error out_of_memory(fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::kOutOfMemory, fmt::format(format, std::forward<Args>(args)...)};
}

template <class... Args>
Error overloaded(fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::kOverloaded, fmt::format(format, std::forward<Args>(args)...)};
}

}  // namespace markbase::base
