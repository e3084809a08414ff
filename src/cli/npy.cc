#include "cli/npy.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace markbase::cli {
namespace {

constexpr size_t kHeaderBytes = 128;  // .npy 1.0: magic, version, length, dict, a multiple of 64

std::string header_text(std::span<const int64_t> shape) {
  std::string dims;
  for (const int64_t n : shape) dims += fmt::format("{}, ", n);
  if (shape.size() > 1) dims.resize(dims.size() - 2);
  std::string dict =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}), }}", dims);
  constexpr size_t kPreambleBytes = 10;
  dict.resize(kHeaderBytes - kPreambleBytes - 1, ' ');
  std::string header("\x93NUMPY\x01\x00", 8);
  const size_t dict_bytes = kHeaderBytes - kPreambleBytes;
  header.push_back(static_cast<char>(dict_bytes & 0xff));
  header.push_back(static_cast<char>(dict_bytes >> 8));
  return header + dict + "\n";
}

// Something that is not a plain file (/dev/null) is written in place.
bool can_rename_over(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode);
}

}  // namespace

Result<void> check_npy(const std::string& path) {
  struct stat status = {};
  // A pipe gives its beginning once.
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) return {};
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr)
    return base::bad_input("{}: cannot be opened: {}", path, std::strerror(errno));
  char magic[6] = {};
  const bool is_npy = std::fread(magic, 1, sizeof(magic), file) == sizeof(magic) &&
                      std::memcmp(magic, "\x93NUMPY", sizeof(magic)) == 0;
  std::fclose(file);
  if (is_npy) return {};
  return base::bad_input("{}: expected a .npy file, got something else", path);
}

Result<NpyWriter> NpyWriter::create(const std::string& path) {
  NpyWriter writer;
  writer.path_ = path;
  writer.temporary_ = can_rename_over(path) ? fmt::format("{}.part{}", path, getpid()) : path;
  writer.file_ = std::fopen(writer.temporary_.c_str(), "wb");
  if (writer.file_ == nullptr)
    return base::failed("{}: cannot be written: {}", path, std::strerror(errno));
  if (std::fseek(writer.file_, 0, SEEK_SET) != 0) {
    return base::failed(
        "{}: expected a file, got a pipe: the shape is written first and known last", path);
  }
  const std::string blank(kHeaderBytes, ' ');
  if (std::fwrite(blank.data(), 1, blank.size(), writer.file_) != blank.size()) {
    return base::failed("{}: {}", path, std::strerror(errno));
  }
  return writer;
}

Result<void> NpyWriter::append(std::span<const float> values) {
  if (std::fwrite(values.data(), sizeof(float), values.size(), file_) != values.size()) {
    return base::failed("{}: {}", path_, std::strerror(errno));
  }
  num_values_ += values.size();
  return {};
}

Result<void> NpyWriter::close(std::span<const int64_t> shape) {
  const std::string header = header_text(shape);
  const bool written = std::fflush(file_) == 0 && std::fseek(file_, 0, SEEK_SET) == 0 &&
                       std::fwrite(header.data(), 1, header.size(), file_) == header.size();
  const int error = errno;
  const int closed = std::fclose(std::exchange(file_, nullptr));
  if (!written) errno = error;
  if (!written || closed != 0) return base::failed("{}: {}", path_, std::strerror(errno));
  if (temporary_ != path_ && std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    return base::failed("{}: {}", path_, std::strerror(errno));
  }
  temporary_.clear();
  return {};
}

NpyWriter::NpyWriter(NpyWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      file_(std::exchange(other.file_, nullptr)),
      num_values_(other.num_values_) {}

NpyWriter& NpyWriter::operator=(NpyWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  std::swap(file_, other.file_);
  std::swap(num_values_, other.num_values_);
  return *this;
}

NpyWriter::~NpyWriter() {
  if (file_ != nullptr) std::fclose(file_);
  if (!temporary_.empty() && temporary_ != path_) ::unlink(temporary_.c_str());
}

}  // namespace markbase::cli
