// Result<T>: a value or an Error. Every function that meets input we do not control returns one.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace markbase {

// What went wrong, by who has to act. The command line uses the numbers as exit codes.
enum class ErrorCode : int {
  kFailed = 1,       // the machine: disk, device, a closed pipe
  kUsage = 2,        // an option or parameter out of range, or one that this model cannot honour
  kBadInput = 3,     // a model or input file that is broken or unsupported
  kOutOfMemory = 4,  // it does not fit in the memory there is
  kOverloaded = 5,   // the queue is full: ask again later
  kCancelled = 130,  // interrupted by the user
};

// The message says what, where, what was expected and what was got, in one line.
struct Error {
  ErrorCode code = ErrorCode::kFailed;
  std::string message;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit by design
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  // Precondition: ok(). Aborts otherwise.
  T& value() & { return std::get<0>(require()); }
  const T& value() const& { return std::get<0>(const_cast<Result*>(this)->require()); }
  T&& value() && { return std::get<0>(std::move(require())); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  // Precondition: !ok().
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error>& require() {
    if (!ok()) std::abort();
    return state_;
  }
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit by design

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

}  // namespace markbase

#define MB_CONCAT_INNER(a, b) a##b
#define MB_CONCAT(a, b) MB_CONCAT_INNER(a, b)
// Returns the error of a Result<void> (or any Result whose value is not needed) to the caller.
#define MB_TRY(expression)                                            \
  do {                                                                \
    auto mb_try_result = (expression);                                \
    if (!mb_try_result.ok()) return std::move(mb_try_result).error(); \
  } while (false)
// MB_ASSIGN(auto x, f()): x takes the value, or the error is returned to the caller.
#define MB_ASSIGN(declaration, expression) \
  MB_ASSIGN_IMPL(MB_CONCAT(mb_assign_, __LINE__), declaration, expression)
#define MB_ASSIGN_IMPL(temporary, declaration, expression)  \
  auto temporary = (expression);                            \
  if (!temporary.ok()) return std::move(temporary).error(); \
  declaration = std::move(temporary).value()
