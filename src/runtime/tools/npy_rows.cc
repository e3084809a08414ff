#include "runtime/tools/npy_rows.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace markbase::runtime {
namespace {

constexpr char kMagic[] = "\x93NUMPY\x01\x00";
constexpr size_t kMagicBytes = 8;

}  // namespace

Result<std::unique_ptr<NpyRowWriter>> NpyRowWriter::create(const std::string& path, int64_t rows,
                                                           int64_t cols) {
  auto writer = std::make_unique<NpyRowWriter>();
  writer->path_ = path;
  // Under its name when it is whole; what is no plain file (/dev/null) is written in place.
  std::error_code ignored;
  const bool in_place =
      std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
  writer->temporary_ = in_place ? path : fmt::format("{}.part{}", path, ::getpid());
  writer->file_.open(writer->temporary_, std::ios::binary | std::ios::trunc);
  std::string header =
      fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, cols);
  // Padded with spaces so that the data begins at a multiple of 64.
  const size_t unpadded = kMagicBytes + 2 + header.size() + 1;
  header.append((64 - unpadded % 64) % 64, ' ');
  header += '\n';
  const auto length = static_cast<uint16_t>(header.size());
  const char length_bytes[2] = {static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  writer->file_.write(kMagic, kMagicBytes);
  writer->file_.write(length_bytes, 2);
  writer->file_.write(header.data(), static_cast<std::streamsize>(header.size()));
  if (!writer->file_) return base::failed("{}: could not be written", path);
  return writer;
}

Result<void> NpyRowWriter::append(std::span<const float> row) {
  file_.write(reinterpret_cast<const char*>(row.data()),
              static_cast<std::streamsize>(row.size_bytes()));
  if (!file_) return base::failed("{}: could not be written (is the disk full?)", path_);
  return {};
}

Result<void> NpyRowWriter::finish(std::string_view record) {
  file_.write(record.data(), static_cast<std::streamsize>(record.size()));
  file_.close();
  if (!file_) return base::failed("{}: could not be written (is the disk full?)", path_);
  if (temporary_ != path_ && std::rename(temporary_.c_str(), path_.c_str()) != 0)
    return base::failed("{}: could not be written: {}", path_, std::strerror(errno));
  temporary_.clear();
  return {};
}

NpyRowWriter::~NpyRowWriter() {
  if (!temporary_.empty() && temporary_ != path_) ::unlink(temporary_.c_str());
}

Result<std::unique_ptr<NpyRowReader>> NpyRowReader::open(const std::string& path, int64_t rows,
                                                         int64_t cols) {
  auto reader = std::make_unique<NpyRowReader>();
  reader->path_ = path;
  reader->file_.open(path, std::ios::binary);
  if (!reader->file_) return base::bad_input("{}: cannot be opened", path);
  unsigned char start[kMagicBytes + 2] = {};
  reader->file_.read(reinterpret_cast<char*>(start), sizeof(start));
  if (!reader->file_ ||
      std::string_view(reinterpret_cast<char*>(start), 6) != std::string_view(kMagic, 6) ||
      start[6] != 1) {
    return base::bad_input("{}: expected a .npy file of version 1.0, got something else", path);
  }
  std::string header(static_cast<size_t>(start[8] | (start[9] << 8)), '\0');
  reader->file_.read(header.data(), static_cast<std::streamsize>(header.size()));
  const std::string shape = fmt::format("({}, {})", rows, cols);
  if (!reader->file_ || header.find("'<f4'") == std::string::npos ||
      header.find("False") == std::string::npos || header.find(shape) == std::string::npos) {
    return base::bad_input("{}: expected float32 of shape {}, got {}", path, shape,
                           header.substr(0, header.find_last_not_of(" \n") + 1));
  }
  reader->row_bytes_ = static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols) * sizeof(float);
  return reader;
}

Result<std::string> NpyRowReader::record(uint64_t most_bytes) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path_, error)) return std::string();
  const std::streamoff at = file_.tellg();
  const uint64_t end = std::filesystem::file_size(path_, error);
  const uint64_t begin = static_cast<uint64_t>(at) + row_bytes_;
  if (at < 0 || error || end < begin) {
    return base::bad_input("{}: the file ends before its last row", path_);
  }
  if (end - begin > most_bytes) {
    return base::bad_input("{}: expected at most {} bytes after the rows, got {}", path_,
                           most_bytes, end - begin);
  }
  std::string text(end - begin, '\0');
  file_.seekg(static_cast<std::streamoff>(begin));
  file_.read(text.data(), static_cast<std::streamsize>(text.size()));
  const bool whole = static_cast<bool>(file_);
  file_.clear();
  file_.seekg(at);
  if (!whole || !file_) return base::bad_input("{}: could not be read", path_);
  return text;
}

Result<void> NpyRowReader::read(std::span<float> row) {
  file_.read(reinterpret_cast<char*>(row.data()), static_cast<std::streamsize>(row.size_bytes()));
  if (!file_) return base::bad_input("{}: the file ends before its last row", path_);
  return {};
}

}  // namespace markbase::runtime
