// Reads little-endian values from bytes, never past their end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace markbase::formats {

static_assert(std::endian::native == std::endian::little,
              "the file formats are little-endian, and so are the machines we build for");

inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }

  // False, with nothing consumed, when fewer bytes are left.
  template <class T>
  requires std::is_arithmetic_v<T>
  bool read(T* value) {
    if (left() < sizeof(T)) return false;
    std::memcpy(value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }
  bool take(uint64_t num_bytes, std::span<const std::byte>* out) {
    if (left() < num_bytes) return false;
    *out = bytes_.subspan(static_cast<size_t>(position_), static_cast<size_t>(num_bytes));
    position_ += num_bytes;
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

}  // namespace markbase::formats
