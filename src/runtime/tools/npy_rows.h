// float32 tables in .npy files (version 1.0), row by row.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>

#include "markbase/result.h"

namespace markbase::runtime {

// Written under another name and put in place by finish(), so that a file that was there is kept
// until then.
class NpyRowWriter {
 public:
  NpyRowWriter() = default;
  ~NpyRowWriter();
  NpyRowWriter(const NpyRowWriter&) = delete;
  NpyRowWriter& operator=(const NpyRowWriter&) = delete;
  // Errors: kFailed where the file cannot be written.
  static Result<std::unique_ptr<NpyRowWriter>> create(const std::string& path, int64_t rows,
                                                      int64_t cols);
  Result<void> append(std::span<const float> row);
  Result<void> finish();

 private:
  std::ofstream file_;
  std::string path_;
  std::string temporary_;
};

class NpyRowReader {
 public:
  // Errors: kBadInput where the file is no float32 table of this shape.
  static Result<std::unique_ptr<NpyRowReader>> open(const std::string& path, int64_t rows,
                                                    int64_t cols);
  // The next row.
  Result<void> read(std::span<float> row);

 private:
  std::ifstream file_;
  std::string path_;
};

}  // namespace markbase::runtime
