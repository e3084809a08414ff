#include "support/temp_dir.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <system_error>

#include "base/check.h"

namespace markbase::testing {

TempDir::TempDir() {
  std::string name = ::testing::TempDir() + "markbase-XXXXXX";
  MB_CHECK_MSG(mkdtemp(name.data()) != nullptr, "no temporary directory");
  path_ = name;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TempDir::write(std::string_view name, std::string_view bytes) const {
  const std::string path = file(name);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  MB_CHECK_MSG(out.good(), "cannot write a test file");
  return path;
}

}  // namespace markbase::testing
