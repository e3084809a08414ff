#include "formats/source_base.h"

#include "formats/broken.h"

namespace markbase::formats {

const TensorInfo* SourceBase::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void SourceBase::add_file(const std::string& path, std::span<const TensorInfo> file_tensors,
                          const base::MappedFile* mapping) {
  for (const TensorInfo& tensor : file_tensors) {
    tensors_.push_back(tensor);
    tensors_.back().file_idx = static_cast<int>(files_.size());
  }
  files_.push_back(path);
  mappings_.push_back(mapping);
}

Result<void> SourceBase::index_tensors() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto [found, inserted] = index_.emplace(tensors_[i].name, i);
    if (!inserted) {
      return broken(file_of(tensors_[i]), "tensor " + shown(tensors_[i].name), "each tensor once",
                    "a second one, also in " + file_of(tensors_[found->second]));
    }
  }
  return {};
}

const std::string& SourceBase::file_of(const TensorInfo& tensor) const {
  return files_[static_cast<size_t>(tensor.file_idx)];
}

namespace {

bool contains(const base::MappedFile* mapping, std::span<const std::byte> bytes) {
  if (mapping == nullptr || bytes.empty()) return false;
  const std::span<const std::byte> all = mapping->bytes();
  return bytes.data() >= all.data() && bytes.data() + bytes.size() <= all.data() + all.size();
}

}  // namespace

std::vector<base::FileIdentity> SourceBase::identities() const {
  std::vector<base::FileIdentity> out;
  for (const base::MappedFile* mapping : mappings_)
    out.push_back(mapping == nullptr ? base::FileIdentity() : mapping->identity());
  return out;
}

void SourceBase::release(std::span<const std::byte> bytes) const {
  for (const base::MappedFile* mapping : mappings_) {
    if (contains(mapping, bytes)) mapping->release(bytes);
  }
}

void SourceBase::prefetch(std::span<const std::byte> bytes) const {
  for (const base::MappedFile* mapping : mappings_) {
    if (contains(mapping, bytes)) mapping->prefetch(bytes);
  }
}

Result<void> SourceBase::check_intact() const {
  for (const base::MappedFile* mapping : mappings_) {
    if (mapping != nullptr) MB_TRY(mapping->check_intact());
  }
  return {};
}

Result<quant::WeightView> SourceBase::plain_weight(const TensorInfo& tensor) const {
  const std::string what = "tensor " + shown(tensor.name);
  if (!tensor.block_format) {
    return broken(file_of(tensor), what, "a weight of floats or quantised blocks",
                  tensor.type_name);
  }
  if (tensor.data.empty()) {
    return broken(file_of(tensor), what, "at least one element",
                  "shape " + shape_text(tensor.shape));
  }
  const RowsCols shape = flattened(tensor.shape);
  quant::WeightView view;
  view.format = *tensor.block_format;
  view.rows = shape.rows;
  view.cols = shape.cols;
  view.data = tensor.data;
  MB_TRY(quant::validate(view, fmt::format("{}: {}", file_of(tensor), what)));
  return view;
}

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

RowsCols flattened(std::span<const int64_t> shape) {
  if (shape.empty()) return {1, 1};
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return {rows, shape.back()};
}

}  // namespace markbase::formats
