// MB_CHECK: invariants of our own. No input may be able to trigger one; input errors are Results.
#pragma once

namespace markbase::base {
// Prints where and why to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const char* message);
}  // namespace markbase::base

#define MB_CHECK_MSG(condition, message)                                       \
  do {                                                                         \
    if (!(condition)) [[unlikely]]                                             \
      ::markbase::base::check_failed(__FILE__, __LINE__, #condition, message); \
  } while (false)
#define MB_CHECK(condition) MB_CHECK_MSG(condition, "")
#ifdef NDEBUG
#define MB_DCHECK(condition) \
  do {                       \
  } while (false)
#else
#define MB_DCHECK(condition) MB_CHECK(condition)
#endif
