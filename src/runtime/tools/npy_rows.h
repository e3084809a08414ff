// float32 tables in .npy files (version 1.0), row by row.
#pragma once

#include <cstdint>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <string_view>

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
  // `record`: a note after the rows, where readers of .npy files do not look; may be empty.
  Result<void> finish(std::string_view record = {});

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
  // What finish() wrote after the rows; empty where nothing stands there or the file is a pipe.
  // Rows are read on from where they were. Errors: kBadInput for a file that ends before its last
  // row, or with more than `most_bytes` after it.
  Result<std::string> record(uint64_t most_bytes);

 private:
  std::ifstream file_;
  std::string path_;
  uint64_t row_bytes_ = 0;  // of all rows
};

}  // namespace markbase::runtime
