// Structs of the C API that may grow: each begins with its size as the caller knows it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "capi/door.h"

namespace markbase::capi {

// The size of a struct when it was first published, on machines with 64-bit pointers: no caller can
// have a smaller one. Fixed for as long as the library's soname is; fields are added behind it, not
// in its padding.
template <class T>
inline constexpr size_t kFirstBytes = 0;
template <>
inline constexpr size_t kFirstBytes<mb_engine_options> = 120;
template <>
inline constexpr size_t kFirstBytes<mb_model_info> = 136;
template <>
inline constexpr size_t kFirstBytes<mb_tool_call> = 56;
template <>
inline constexpr size_t kFirstBytes<mb_message> = 88;
template <>
inline constexpr size_t kFirstBytes<mb_request> = 160;
template <>
inline constexpr size_t kFirstBytes<mb_token_logprobs> = 32;
template <>
inline constexpr size_t kFirstBytes<mb_completion> = 128;
template <>
inline constexpr size_t kFirstBytes<mb_timings> = 80;
template <>
inline constexpr size_t kFirstBytes<mb_broken_call> = 48;
template <>
inline constexpr size_t kFirstBytes<mb_embed_request> = 48;
template <>
inline constexpr size_t kFirstBytes<mb_engine_stats> = 104;

// Beyond it a size is no size but memory that nobody has set.
inline constexpr size_t kMostBytes = 4096;

template <class T>
Result<void> check_size(size_t size, std::string_view name) {
  static_assert(std::is_trivially_copyable_v<T> && kFirstBytes<T> != 0 && sizeof(T) <= kMostBytes &&
                sizeof(T) >= kFirstBytes<T>);
  if (size >= kFirstBytes<T> && size <= kMostBytes) return {};
  return base::usage_error("{}: size: expected {} bytes (sizeof the struct), got {}", name,
                           sizeof(T), size);
}

// The struct at `from` as this library knows it: fields that the caller does not have keep the
// values of `defaults`. Errors (kUsage): NULL, a size that cannot be, something set that this
// library does not know.
template <class T>
Result<T> read_struct(const T* from, T defaults, std::string_view name) {
  MB_TRY(need(from, name));
  const size_t size = from->size;
  MB_TRY(check_size<T>(size, name));
  const auto* bytes = reinterpret_cast<const std::byte*>(from);
  const size_t known = std::min(size, sizeof(T));
  if (std::any_of(bytes + known, bytes + size, [](std::byte b) { return b != std::byte{0}; })) {
    return base::usage_error(
        "{}: a field is set that this library does not know: expected {} bytes, got {}", name,
        sizeof(T), size);
  }
  std::memcpy(&defaults, from, known);
  return defaults;
}

// Fills as much of *to as its size says; what the library does not know becomes 0. `size` stays.
template <class T>
Result<void> write_struct(T value, T* to, std::string_view name) {
  MB_TRY(need(to, name));
  const size_t size = to->size;
  MB_TRY(check_size<T>(size, name));
  value.size = size;
  const size_t known = std::min(size, sizeof(T));
  std::memcpy(to, &value, known);
  std::memset(reinterpret_cast<std::byte*>(to) + known, 0, size - known);
  return {};
}

// For the functions that set defaults: the caller passes sizeof.
template <class T>
Result<void> init_struct(const T& defaults, T* to, size_t size, std::string_view name) {
  MB_TRY(need(to, name));
  MB_TRY(check_size<T>(size, name));
  to->size = size;
  return write_struct(defaults, to, name);
}

// Element `idx` of an array whose elements are as large as the caller knows them.
template <class T>
const T* element(const T* first, size_t idx) {
  return reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(first) + idx * first->size);
}

}  // namespace markbase::capi
