// How often the process asked for memory while the counter lived: operator new, malloc and its
// kin, and mmap, of all threads. Naming this class links the replacements of those functions in.
#pragma once

#include <cstdint>

namespace markbase::testing {

class AllocationCounter {
 public:
  AllocationCounter();
  int64_t count() const;
  // False where the counting functions cannot be replaced (under a sanitizer); count() is then 0.
  static bool available();

 private:
  int64_t begin_;
};

}  // namespace markbase::testing
