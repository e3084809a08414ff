#include "base/buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace markbase::base {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

Result<AlignedBuffer> AlignedBuffer::allocate(size_t size_bytes, Pages pages) {
  AlignedBuffer buffer;
  if (size_bytes == 0) return buffer;
  void* memory =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return out_of_memory("could not allocate {} bytes: {}", size_bytes, std::strerror(errno));
  }
  if (size_bytes >= kHugePageBytes) {
    madvise(memory, size_bytes, pages == Pages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  }
  buffer.data_ = static_cast<std::byte*>(memory);
  buffer.size_bytes_ = size_bytes;
  buffer.mapped_bytes_ = size_bytes;
  return buffer;
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, mapped_bytes_);
}

std::byte* Arena::take(size_t size_bytes) {
  const size_t begin = (used_bytes_ + kAlignment - 1) / kAlignment * kAlignment;
  used_bytes_ = begin + size_bytes;
  if (memory_.data() == nullptr) return nullptr;
  MB_CHECK_MSG(used_bytes_ <= memory_.size(), "arena planned too small");
  return memory_.data() + begin;
}

}  // namespace markbase::base
