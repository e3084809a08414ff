#include "support/golden.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

namespace markbase::testing {
namespace {

void require(bool condition, const std::string& path, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s: %s\n", path.c_str(), what);
  std::abort();
}

template <class T>
const char* npy_type();
template <>
const char* npy_type<float>() {
  return "'<f4'";
}
template <>
const char* npy_type<double>() {
  return "'<f8'";
}
template <>
const char* npy_type<int32_t>() {
  return "'<i4'";
}
template <>
const char* npy_type<int64_t>() {
  return "'<i8'";
}

// "(3, 4)" after 'shape':.
std::vector<int64_t> parse_shape(const std::string& header, const std::string& path) {
  const size_t key = header.find("'shape'");
  require(key != std::string::npos, path, "no shape");
  const size_t open = header.find('(', key);
  const size_t close = header.find(')', key);
  require(open != std::string::npos && close != std::string::npos, path, "no shape");
  std::vector<int64_t> shape;
  const char* at = header.c_str() + open + 1;
  while (at < header.c_str() + close) {
    char* end = nullptr;
    const int64_t n = std::strtoll(at, &end, 10);
    if (end == at) break;
    shape.push_back(n);
    at = end;
    while (*at == ',' || *at == ' ') ++at;
  }
  return shape;
}

}  // namespace

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require(file.good(), path, "cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class T>
NpyArray<T> read_npy(const std::string& path) {
  const std::string bytes = read_file(path);
  require(bytes.size() >= 12 && bytes.compare(0, 6, "\x93NUMPY", 6) == 0, path, "not a .npy file");
  const size_t length_bytes = bytes[6] == 1 ? 2 : 4;
  size_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data() + 8, length_bytes);
  const size_t data_begin = 8 + length_bytes + header_bytes;
  require(data_begin <= bytes.size(), path, "header is cut short");
  const std::string header = bytes.substr(8 + length_bytes, header_bytes);
  require(header.find(npy_type<T>()) != std::string::npos, path, "another type than asked for");
  require(header.find("'fortran_order': False") != std::string::npos, path, "not in C order");
  NpyArray<T> array;
  array.shape = parse_shape(header, path);
  size_t n = 1;
  for (const int64_t dim : array.shape) n *= static_cast<size_t>(dim);
  require(bytes.size() - data_begin == n * sizeof(T), path, "size does not fit the shape");
  array.values.resize(n);
  if (n > 0) std::memcpy(array.values.data(), bytes.data() + data_begin, n * sizeof(T));
  return array;
}

template NpyArray<float> read_npy<float>(const std::string& path);
template NpyArray<double> read_npy<double>(const std::string& path);
template NpyArray<int32_t> read_npy<int32_t>(const std::string& path);
template NpyArray<int64_t> read_npy<int64_t>(const std::string& path);

}  // namespace markbase::testing
