#include "capi/door.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "base/error.h"

namespace markbase::capi {
namespace {

struct OwnedError : mb_error {
  explicit OwnedError(Error problem)
      : mb_error{static_cast<mb_status>(problem.code), nullptr}, text(std::move(problem.message)) {
    message = text.c_str();
  }
  std::string text;
};

constexpr mb_error kNoMemory = {MB_OUT_OF_MEMORY, "out of memory"};

template <class T>
Result<T*> copy_bytes(const T* from, size_t count, size_t capacity) {
  auto* to = static_cast<T*>(std::malloc(capacity * sizeof(T)));
  if (to == nullptr) return base::out_of_memory("{} bytes for a copy", capacity * sizeof(T));
  if (count > 0) std::memcpy(to, from, count * sizeof(T));
  return to;
}

}  // namespace

mb_status give_error(Error problem, mb_error** error) noexcept {
  const auto status = static_cast<mb_status>(problem.code);
  if (error == nullptr) return status;
  *error = new (std::nothrow) OwnedError(std::move(problem));
  if (*error != nullptr) return status;
  *error = const_cast<mb_error*>(&kNoMemory);  // told apart, and never written to
  return MB_OUT_OF_MEMORY;
}

Result<void> need(const void* argument, std::string_view name) {
  if (argument != nullptr) return {};
  return base::usage_error("{}: expected a pointer, got NULL", name);
}

Result<bool> flag(int32_t value, std::string_view name) {
  if (value == 0 || value == 1) return value == 1;
  return base::usage_error("{}: expected 0 or 1, got {}", name, value);
}

Result<std::string> text_of(mb_string text, std::string_view name) {
  if (text.num_bytes > 0) MB_TRY(need(text.data, name));
  return text.num_bytes > 0 ? std::string(text.data, text.num_bytes) : std::string();
}

Result<int32_t*> copy_of(std::span<const int32_t> values) {
  return copy_bytes(values.data(), values.size(), values.size() + 1);
}
Result<float*> copy_of(std::span<const float> values) {
  return copy_bytes(values.data(), values.size(), values.size() + 1);
}
Result<char*> copy_of(std::string_view text) {
  MB_ASSIGN(char* copy, copy_bytes(text.data(), text.size(), text.size() + 1));
  copy[text.size()] = '\0';
  return copy;
}

}  // namespace markbase::capi

using markbase::capi::kNoMemory;
using markbase::capi::OwnedError;

mb_status mb_error_status(const mb_error* error) {
  return error == nullptr ? MB_OK : error->status;
}

const char* mb_error_message(const mb_error* error) {
  return error == nullptr ? "" : error->message;
}

void mb_error_free(mb_error* error) {
  if (error != &kNoMemory) delete static_cast<OwnedError*>(error);
}

const char* mb_version(void) { return MARKBASE_VERSION; }

void mb_free(void* memory) { std::free(memory); }
