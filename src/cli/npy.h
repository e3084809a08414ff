// Writes float32 .npy files row by row: the header is reserved first and filled in at the end.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "markbase/result.h"

namespace markbase::cli {

// Errors: kBadInput where `path` cannot be read or does not begin as a .npy file does (a pipe is
// not looked into).
Result<void> check_npy(const std::string& path);

class NpyWriter {
 public:
  // Creates (or overwrites) the file under a temporary name; close() gives it its own name.
  static Result<NpyWriter> create(const std::string& path);
  Result<void> append(std::span<const float> values);
  // shape: outermost first, its product must be the number of values appended.
  Result<void> close(std::span<const int64_t> shape);
  uint64_t num_values() const { return num_values_; }

  NpyWriter(NpyWriter&&) noexcept;
  NpyWriter& operator=(NpyWriter&&) noexcept;
  ~NpyWriter();  // an unfinished file is removed

 private:
  NpyWriter() = default;
  std::string path_;
  std::string temporary_;
  std::FILE* file_ = nullptr;
  uint64_t num_values_ = 0;
};

}  // namespace markbase::cli
