// Keeps exceptions inside: the public functions run their bodies through guarded().
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "markbase/result.h"

namespace markbase::base {

// What a caught exception says, as "where: what". Call it in a handler. Where there is no memory
// left, not even for the message, the message is one that needs none.
inline Error caught_error(std::string_view where) noexcept {
  ErrorCode code = ErrorCode::kFailed;
  std::string_view what = "unexpected exception of an unknown type";
  try {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      code = ErrorCode::kOutOfMemory;
      what = "out of memory";
      return {code, std::string(where).append(": ").append(what)};
    } catch (const std::exception& error) {
      return {code, std::string(where).append(": unexpected exception: ").append(error.what())};
    } catch (...) {
      return {code, std::string(where).append(": ").append(what)};
    }
  } catch (...) {
    // Fits into a std::string without an allocation.
    return {ErrorCode::kOutOfMemory, "out of memory"};
  }
}

// Gives what `body` returns, a Result. What it throws becomes an Error with `where` in its message:
// std::bad_alloc kOutOfMemory, everything else kFailed.
template <class Body>
[[nodiscard]] std::invoke_result_t<Body> guarded(std::string_view where, Body&& body) noexcept {
  static_assert(std::is_convertible_v<Error, std::invoke_result_t<Body>>,
                "a body that may throw returns a Result");
  try {
    return std::forward<Body>(body)();
  } catch (...) {
    return caught_error(where);
  }
}

}  // namespace markbase::base
