// Golden data: where it is, and the NumPy files in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace markbase::testing {

// A path under tests/golden, compiled into every test binary.
#ifdef MARKBASE_GOLDEN_DIR
inline std::string golden_path(std::string_view name) {
  return std::string(MARKBASE_GOLDEN_DIR) + "/" + std::string(name);
}
#endif

// The whole file. Aborts with its name where it cannot be read, as all here do: a test without its
// golden has nothing to say.
std::string read_file(const std::string& path);

// An array of a .npy file, C order. T is float ('<f4'), double ('<f8'), int32_t ('<i4') or int64_t
// ('<i8'); any other type in the file aborts.
template <class T>
struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<T> values;
};
template <class T>
NpyArray<T> read_npy(const std::string& path);

}  // namespace markbase::testing
