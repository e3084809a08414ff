// Every function of the C API is a door: nothing is thrown through it, and what went wrong is told
// by a status and an mb_error.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/guard.h"
#include "markbase/markbase.h"
#include "markbase/result.h"

// Defined here, opaque outside: `message` belongs to the error.
struct mb_error {  // NOLINT(readability-identifier-naming)
  mb_status status;
  const char* message;
};

namespace markbase::capi {

// Puts a new error into *error, where that is not NULL; gives its status. Where there is no memory
// for one, it is an error that needs none.
mb_status give_error(Error problem, mb_error** error) noexcept;

// Runs `body`, which returns a Result<void>, for the function `name`.
template <class Body>
mb_status door(std::string_view name, mb_error** error, Body&& body) noexcept {
  if (error != nullptr) *error = nullptr;
  Result<void> result = base::guarded(name, std::forward<Body>(body));
  return result.ok() ? MB_OK : give_error(std::move(result).error(), error);
}

// Arguments. All errors are kUsage and name the argument.
Result<void> need(const void* argument, std::string_view name);
Result<bool> flag(int32_t value, std::string_view name);
Result<std::string> text_of(mb_string text, std::string_view name);
// `items` may be NULL where there are none.
template <class T>
Result<std::span<const T>> items_of(const T* items, size_t num_items, std::string_view name) {
  if (num_items > 0) MB_TRY(need(items, name));
  return std::span<const T>(items, items == nullptr ? 0 : num_items);
}

// The bytes of a text that lives on and has a NUL behind it.
inline mb_string c_text(const std::string& text) { return {text.c_str(), text.size()}; }

// Copies for mb_free(). Errors: kOutOfMemory.
Result<int32_t*> copy_of(std::span<const int32_t> values);
Result<float*> copy_of(std::span<const float> values);
Result<char*> copy_of(std::string_view text);  // with a NUL behind it

}  // namespace markbase::capi
