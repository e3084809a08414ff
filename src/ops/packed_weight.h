// A weight inside a backend: opaque, owned by the backend's own layout.
#pragma once

#include <cstddef>
#include <cstdint>

namespace markbase::ops {

// [rows, cols] = [outputs, inputs]. Made by Backend::pack or Backend::map_table, valid while the
// backend lives.
class PackedWeight {
 public:
  virtual ~PackedWeight() = default;
  PackedWeight(const PackedWeight&) = delete;
  PackedWeight& operator=(const PackedWeight&) = delete;

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  // Bytes that one product with this weight reads: what decode speed is measured against.
  size_t size_bytes() const { return size_bytes_; }
  // A table made by map_table: only embedding() takes it.
  virtual bool is_lookup_only() const { return false; }

 protected:
  PackedWeight(int64_t rows, int64_t cols, size_t size_bytes)
      : rows_(rows), cols_(cols), size_bytes_(size_bytes) {}

 private:
  int64_t rows_;
  int64_t cols_;
  size_t size_bytes_;
};

}  // namespace markbase::ops
