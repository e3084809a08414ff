#include "formats/gguf/gguf_writer.h"

#include <bit>

#include "base/check.h"
#include "formats/gguf/gguf_types.h"

namespace markbase::formats {
namespace {

template <class T>
void append(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_string(std::string* out, std::string_view text) {
  append(out, static_cast<uint64_t>(text.size()));
  out->append(text);
}

}  // namespace

GgufWriter::GgufWriter(uint32_t version, uint64_t alignment)
    : version_(version), alignment_(alignment) {
  MB_CHECK(std::has_single_bit(alignment));
  if (alignment != 32) add("general.alignment", static_cast<uint32_t>(alignment));
}

void GgufWriter::put_bytes(const void* bytes, size_t num_bytes) {
  keys_.append(static_cast<const char*>(bytes), num_bytes);
}

void GgufWriter::put_string(std::string_view text) { append_string(&keys_, text); }

void GgufWriter::begin_key(std::string_view key, uint32_t type) {
  ++num_keys_;
  append_string(&keys_, key);
  append(&keys_, type);
}

void GgufWriter::begin_array(std::string_view key, uint32_t element_type, uint64_t count) {
  begin_key(key, static_cast<uint32_t>(GgufValueType::kArray));
  append(&keys_, element_type);
  append(&keys_, count);
}

uint64_t GgufWriter::padded(uint64_t num_bytes) const {
  return (num_bytes + alignment_ - 1) / alignment_ * alignment_;
}

void GgufWriter::add_tensor(std::string_view name, const std::vector<int64_t>& shape,
                            uint32_t ggml_type) {
  const GgmlType* type = find_ggml_type(ggml_type);
  MB_CHECK(type != nullptr && type->supported() && !shape.empty() && shape.size() <= 4);
  MB_CHECK(shape.back() % type->block_elements == 0);
  uint64_t num_elements = 1;
  for (const int64_t n : shape) num_elements *= static_cast<uint64_t>(n);
  const uint64_t num_bytes = num_elements / static_cast<uint64_t>(type->block_elements) *
                             static_cast<uint64_t>(type->block_bytes);
  tensors_.push_back({std::string(name), shape, ggml_type, num_bytes, data_bytes_});
  data_bytes_ += padded(num_bytes);
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  append(&out, version_);
  append(&out, static_cast<uint64_t>(tensors_.size()));
  append(&out, num_keys_);
  out += keys_;
  for (const Tensor& tensor : tensors_) {
    append_string(&out, tensor.name);
    append(&out, static_cast<uint32_t>(tensor.shape.size()));
    for (size_t i = tensor.shape.size(); i-- > 0;) append(&out, tensor.shape[i]);
    append(&out, tensor.type);
    append(&out, tensor.offset);
  }
  out.resize(static_cast<size_t>(padded(out.size())), '\0');
  return out;
}

Result<void> GgufWriter::open(const std::string& path) {
  MB_ASSIGN(FileWriter file, FileWriter::create(path));
  file_.emplace(std::move(file));
  return file_->write(header());
}

Result<void> GgufWriter::write(std::span<const std::byte> bytes) {
  MB_CHECK_MSG(file_.has_value() && tensor_idx_ < tensors_.size(), "no tensor is open");
  const Tensor& tensor = tensors_[tensor_idx_];
  MB_CHECK_MSG(bytes.size() <= tensor.num_bytes - written_bytes_, "more bytes than the tensor has");
  MB_TRY(file_->write(bytes));
  written_bytes_ += bytes.size();
  if (written_bytes_ < tensor.num_bytes) return {};
  ++tensor_idx_;
  written_bytes_ = 0;
  return file_->write(
      std::string(static_cast<size_t>(padded(tensor.num_bytes) - tensor.num_bytes), '\0'));
}

Result<void> GgufWriter::finish() {
  MB_CHECK_MSG(file_.has_value() && tensor_idx_ == tensors_.size(), "a tensor lacks bytes");
  return file_->finish();
}

}  // namespace markbase::formats
