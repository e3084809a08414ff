// A file that appears under its name only when it is complete.
#pragma once

#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "markbase/result.h"

namespace markbase::formats {

class FileWriter {
 public:
  // Writes to PATH.partial, which is removed again unless finish() succeeds. Errors: kFailed.
  static Result<FileWriter> create(const std::string& path);
  FileWriter(FileWriter&&) noexcept = default;
  FileWriter& operator=(FileWriter&&) = delete;
  ~FileWriter();

  Result<void> write(std::span<const std::byte> bytes);
  Result<void> write(std::string_view bytes);
  // Closes the file and gives it its name.
  Result<void> finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  FileWriter() = default;

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace markbase::formats
