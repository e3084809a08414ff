#include "support/failing_new.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

// Of this thread: how many allocations succeed before the one that fails; negative: none fails.
thread_local int64_t countdown = -1;

void* allocate(std::size_t size, std::size_t alignment) {
  if (countdown >= 0 && countdown-- == 0) throw std::bad_alloc();
  const std::size_t rounded = (size + alignment - 1) / alignment * alignment;
  void* memory = alignment <= alignof(std::max_align_t) ? std::malloc(size == 0 ? 1 : size)
                                                        : std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// The forms of the standard library that throw nothing or make arrays come here as well.
void* operator new(std::size_t size) { return allocate(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace markbase::testing {

FailingNew::FailingNew(int64_t nth) { countdown = nth; }
FailingNew::~FailingNew() { countdown = -1; }
bool FailingNew::failed() const { return countdown < 0; }

}  // namespace markbase::testing
