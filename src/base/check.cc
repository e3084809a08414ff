#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace markbase::base {

void check_failed(const char* file, int line, const char* condition, const char* message) {
  std::fprintf(stderr, "markbase: internal error at %s:%d: %s does not hold. %s\n", file, line,
               condition, message);
  std::abort();
}

}  // namespace markbase::base
