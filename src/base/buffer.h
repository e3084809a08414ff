// Owners of anonymous memory: AlignedBuffer (64-byte aligned, zeroed) and Arena (bump allocation).
#pragma once

#include <cstddef>
#include <span>

#include "markbase/result.h"

namespace markbase::base {

// Page-aligned anonymous memory from the kernel, zero-filled, moved and never copied. Pages cost
// nothing until touched and go back to the system on destruction.
class AlignedBuffer {
 public:
  // kHuge asks the kernel for pages of 2 MiB: quicker to stream through, but a whole one is taken
  // when its first byte is touched. For memory that is used in full.
  enum class Pages { kNormal, kHuge };

  AlignedBuffer() = default;
  // Errors: kOutOfMemory with the size asked for.
  static Result<AlignedBuffer> allocate(size_t size_bytes, Pages pages = Pages::kNormal);
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;
  ~AlignedBuffer();

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  std::span<std::byte> bytes() const { return {data_, size_bytes_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
  size_t mapped_bytes_ = 0;
};

// Carves 64-byte aligned pieces from one buffer. With no buffer it only counts, so one function can
// both plan and carve.
class Arena {
 public:
  Arena() = default;  // counting only
  explicit Arena(std::span<std::byte> memory) : memory_(memory) {}

  // nullptr while counting. MB_CHECKs that the memory suffices.
  std::byte* take(size_t size_bytes);
  template <class T>
  T* take_array(size_t count) {
    return reinterpret_cast<T*>(take(count * sizeof(T)));
  }
  size_t used_bytes() const { return used_bytes_; }

 private:
  std::span<std::byte> memory_;
  size_t used_bytes_ = 0;
};

}  // namespace markbase::base
