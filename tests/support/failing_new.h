// Memory that runs out on demand. Naming this class links replacements of operator new.
#pragma once

#include <cstdint>

namespace markbase::testing {

// While it lives, the allocation number `nth` (from 0) by operator new on this thread throws
// std::bad_alloc; those before and after it succeed.
class FailingNew {
 public:
  explicit FailingNew(int64_t nth);
  ~FailingNew();
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;
  // Whether it came to that.
  bool failed() const;
};

}  // namespace markbase::testing
