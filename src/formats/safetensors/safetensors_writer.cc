#include "formats/safetensors/safetensors_writer.h"

#include "base/check.h"

namespace markbase::formats {

SafetensorsWriter::SafetensorsWriter(std::map<std::string, std::string> metadata)
    : json_(base::Json::object()) {
  if (!metadata.empty()) json_["__metadata__"] = std::move(metadata);
}

void SafetensorsWriter::add_tensor(std::string_view name, const std::vector<int64_t>& shape,
                                   tensor::DType dtype) {
  uint64_t num_bytes = tensor::dtype_bytes(dtype);
  for (const int64_t n : shape) num_bytes *= static_cast<uint64_t>(n);
  json_.get_ref<base::Json::object_t&>().emplace_back(
      std::string(name), base::Json{{"dtype", tensor::dtype_name(dtype)},
                                    {"shape", shape},
                                    {"data_offsets", {data_bytes_, data_bytes_ + num_bytes}}});
  data_bytes_ += num_bytes;
}

std::string SafetensorsWriter::header() const {
  std::string json = base::dump_json(json_);
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + json;
}

Result<void> SafetensorsWriter::open(const std::string& path) {
  MB_ASSIGN(FileWriter file, FileWriter::create(path));
  file_.emplace(std::move(file));
  return file_->write(header());
}

Result<void> SafetensorsWriter::write(std::span<const std::byte> bytes) {
  MB_CHECK(file_.has_value() && bytes.size() <= data_bytes_ - written_bytes_);
  written_bytes_ += bytes.size();
  return file_->write(bytes);
}

Result<void> SafetensorsWriter::finish() {
  MB_CHECK_MSG(file_.has_value() && written_bytes_ == data_bytes_, "a tensor lacks bytes");
  return file_->finish();
}

}  // namespace markbase::formats
