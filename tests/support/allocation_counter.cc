#include "support/allocation_counter.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

// The sanitizers bring replacements of their own; other C libraries have no __libc_malloc.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define MB_COUNTS_ALLOCATIONS 0
#else
#define MB_COUNTS_ALLOCATIONS 1
#endif

namespace {
constinit std::atomic<int64_t> num_allocations{0};
}  // namespace

#if MB_COUNTS_ALLOCATIONS
// operator new of the standard library goes through malloc or aligned_alloc.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  ++num_allocations;
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  ++num_allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  ++num_allocations;
  return __libc_realloc(old, size);
}
void* memalign(size_t alignment, size_t size) {
  ++num_allocations;
  return __libc_memalign(alignment, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  ++num_allocations;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** out, size_t alignment, size_t size) {
  ++num_allocations;
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? ENOMEM : 0;
}
void* mmap(void* address, size_t size, int protection, int flags, int fd, off_t offset) noexcept {
  ++num_allocations;
  const long result = syscall(SYS_mmap, address, size, protection, flags, fd, offset);
  return result == -1 ? MAP_FAILED : reinterpret_cast<void*>(result);
}
}  // extern "C"
#endif

namespace markbase::testing {

AllocationCounter::AllocationCounter() : begin_(num_allocations.load()) {}
int64_t AllocationCounter::count() const { return num_allocations.load() - begin_; }
bool AllocationCounter::available() { return MB_COUNTS_ALLOCATIONS != 0; }

}  // namespace markbase::testing
