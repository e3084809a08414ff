// A directory that goes away with its owner.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace markbase::testing {

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // A path inside.
  std::string file(std::string_view name) const { return (path_ / name).string(); }
  // Writes a file inside and returns its path.
  std::string write(std::string_view name, std::string_view bytes) const;

 private:
  std::filesystem::path path_;
};

}  // namespace markbase::testing
