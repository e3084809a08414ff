#include "formats/file_writer.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace markbase::formats {
namespace {

std::string partial(const std::string& path) { return path + ".partial"; }

}  // namespace

Result<FileWriter> FileWriter::create(const std::string& path) {
  FileWriter writer;
  writer.path_ = path;
  writer.file_.reset(std::fopen(partial(path).c_str(), "wb"));
  if (writer.file_ == nullptr) {
    return base::failed("{}: cannot be created: {}", partial(path), std::strerror(errno));
  }
  return writer;
}

FileWriter::~FileWriter() {
  if (file_ != nullptr) std::remove(partial(path_).c_str());
}

Result<void> FileWriter::write(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
    return base::failed("{}: cannot be written: {}", partial(path_), std::strerror(errno));
  }
  return {};
}

Result<void> FileWriter::write(std::string_view bytes) {
  return write(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

Result<void> FileWriter::finish() {
  const bool closed = std::fclose(file_.release()) == 0;
  if (!closed || std::rename(partial(path_).c_str(), path_.c_str()) != 0) {
    const int cause = errno;
    std::remove(partial(path_).c_str());
    return base::failed("{}: cannot be finished: {}", path_, std::strerror(cause));
  }
  return {};
}

}  // namespace markbase::formats
