#include "formats/gguf/gguf_parser.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "formats/broken.h"
#include "formats/gguf/gguf_types.h"

namespace markbase::formats {
namespace {

using base::Json;

constexpr std::string_view kMagic = "GGUF";
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 64;
// The least bytes of one entry: a count that needs more than are left is refused before it is
// believed.
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
// Longer arrays (vocabularies, merges) are read from the mapping when asked for.
constexpr uint64_t kMaxJsonArray = 4096;

std::string number(uint64_t n) { return fmt::format("{}", n); }

std::string shown_magic(std::span<const std::byte> bytes) {
  std::string out;
  for (const std::byte b : bytes.first(std::min<size_t>(bytes.size(), 4))) {
    out += fmt::format("{}{:02x}", out.empty() ? "" : " ", static_cast<unsigned>(b));
  }
  return out;
}

}  // namespace

GgufParser::GgufParser(std::span<const std::byte> bytes, const std::string& path)
    : bytes_(bytes), reader_(bytes) {
  file_.path_ = path;
}

Result<GgufFile> GgufParser::run() {
  if (auto error = not_a_checkpoint(file_.path_, as_text(bytes_), "a GGUF file")) return *error;
  MB_TRY(read_header());
  MB_TRY(read_metadata());
  MB_TRY(read_alignment());
  MB_TRY(read_tensors());
  MB_TRY(place_tensors());
  return std::move(file_);
}

Error GgufParser::ended(std::string_view what, std::string_view expected) const {
  return broken(file_.path_, fmt::format("{} at byte {}", what, reader_.position()), expected,
                fmt::format("{} bytes until the end of the file", reader_.left()));
}

Result<void> GgufParser::read_header() {
  std::span<const std::byte> magic;
  if (!reader_.take(4, &magic)) return ended("magic", "\"GGUF\"");
  if (as_text(magic) != kMagic) {
    return broken(file_.path_, "magic at byte 0", "\"GGUF\" (47 47 55 46)", shown_magic(magic));
  }
  uint32_t version = 0;
  if (!reader_.read(&version)) return ended("version", "4 bytes");
  if (version >= 0x10000 && (version & 0xffff) == 0) {
    return broken(file_.path_, "version at byte 4", "a little-endian file",
                  fmt::format("a big-endian file (version bytes {:#010x})", version));
  }
  if (version != 2 && version != 3) {
    return broken(file_.path_, "version at byte 4", "GGUF version 2 or 3",
                  fmt::format("version {}", version));
  }
  file_.version_ = static_cast<int>(version);
  if (!reader_.read(&num_tensors_)) return ended("tensor count", "8 bytes");
  if (!reader_.read(&num_keys_)) return ended("key count", "8 bytes");
  if (num_keys_ > reader_.left() / kMinKeyBytes) {
    return broken(file_.path_, "key count",
                  fmt::format("at most {} in the {} bytes left", reader_.left() / kMinKeyBytes,
                              reader_.left()),
                  number(num_keys_));
  }
  if (num_tensors_ > reader_.left() / kMinTensorBytes) {
    return broken(file_.path_, "tensor count",
                  fmt::format("at most {} in the {} bytes left", reader_.left() / kMinTensorBytes,
                              reader_.left()),
                  number(num_tensors_));
  }
  return {};
}

Result<std::string_view> GgufParser::read_string(const std::string& what, uint64_t max_bytes) {
  uint64_t length = 0;
  if (!reader_.read(&length)) return ended(what, "a string length of 8 bytes");
  if (length > max_bytes) {
    return broken(file_.path_, fmt::format("{} at byte {}", what, reader_.position()),
                  fmt::format("a length of at most {} bytes", max_bytes), number(length));
  }
  std::span<const std::byte> bytes;
  if (!reader_.take(length, &bytes))
    return ended(what, fmt::format("a string of {} bytes", length));
  return as_text(bytes);
}

Result<void> GgufParser::read_metadata() {
  file_.metadata_ = Json::object();
  // Appended to directly: assigning by key would search all keys before it.
  auto& object = file_.metadata_.get_ref<Json::object_t&>();
  std::unordered_set<std::string_view> seen;
  for (uint64_t i = 0; i < num_keys_; ++i) {
    MB_ASSIGN(const std::string_view key, read_string(fmt::format("key {}", i), kMaxKeyBytes));
    if (key.empty())
      return broken(file_.path_, fmt::format("key {}", i), "a name", "an empty string");
    const std::string what = "key " + shown(key);
    if (!seen.insert(key).second) return broken(file_.path_, what, "each key once", "a second one");
    MB_ASSIGN(Json value, read_value(what, key));
    object.emplace_back(std::string(key), std::move(value));
  }
  return {};
}

Result<Json> GgufParser::read_value(const std::string& what, std::string_view key) {
  uint32_t type = 0;
  if (!reader_.read(&type)) return ended(what, "a value type of 4 bytes");
  if (type == static_cast<uint32_t>(GgufValueType::kArray)) return read_array(what, key);
  return read_scalar(what, type);
}

template <class T>
Result<Json> GgufParser::read_number(const std::string& what) {
  T value{};
  if (!reader_.read(&value)) return ended(what, fmt::format("a value of {} bytes", sizeof(T)));
  return Json(value);
}

Result<Json> GgufParser::read_scalar(const std::string& what, uint32_t type) {
  switch (static_cast<GgufValueType>(type)) {
    case GgufValueType::kU8:
      return read_number<uint8_t>(what);
    case GgufValueType::kI8:
      return read_number<int8_t>(what);
    case GgufValueType::kU16:
      return read_number<uint16_t>(what);
    case GgufValueType::kI16:
      return read_number<int16_t>(what);
    case GgufValueType::kU32:
      return read_number<uint32_t>(what);
    case GgufValueType::kI32:
      return read_number<int32_t>(what);
    case GgufValueType::kF32:
      return read_number<float>(what);
    case GgufValueType::kU64:
      return read_number<uint64_t>(what);
    case GgufValueType::kI64:
      return read_number<int64_t>(what);
    case GgufValueType::kF64:
      return read_number<double>(what);
    case GgufValueType::kBool: {
      uint8_t value = 0;
      if (!reader_.read(&value)) return ended(what, "a bool of 1 byte");
      if (value > 1) return broken(file_.path_, what, "a bool, 0 or 1", number(value));
      return Json(value == 1);
    }
    case GgufValueType::kString: {
      MB_ASSIGN(const std::string_view text, read_string(what, UINT64_MAX));
      return Json(std::string(text));
    }
    case GgufValueType::kArray:
      break;
  }
  return broken(file_.path_, what, fmt::format("a value type of 0 to {}", kNumGgufValueTypes - 1),
                number(type));
}

Result<void> GgufParser::skip_strings(const std::string& what, uint64_t count) {
  if (count > reader_.left() / 8) {
    return broken(
        file_.path_, what,
        fmt::format("at most {} strings in the {} bytes left", reader_.left() / 8, reader_.left()),
        number(count));
  }
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t length = 0;
    std::span<const std::byte> text;
    if (!reader_.read(&length) || !reader_.take(length, &text)) {
      return ended(fmt::format("{}, element {}", what, i), "a whole string");
    }
  }
  return {};
}

Result<Json> GgufParser::read_array(const std::string& what, std::string_view key) {
  GgufFile::ArrayRef array;
  if (!reader_.read(&array.element_type)) return ended(what, "an element type of 4 bytes");
  if (!reader_.read(&array.count)) return ended(what, "an element count of 8 bytes");
  const bool strings = array.element_type == static_cast<uint32_t>(GgufValueType::kString);
  const uint64_t element_bytes = gguf_value_bytes(array.element_type);
  if (!strings && element_bytes == 0) {
    return broken(file_.path_, what, "an array of numbers, bools or strings",
                  fmt::format("elements of type {} ({})", array.element_type,
                              gguf_value_type_name(array.element_type)));
  }
  const ByteReader start = reader_;
  if (strings) {
    MB_TRY(skip_strings(what, array.count));
  } else if (array.count > reader_.left() / element_bytes) {
    return broken(file_.path_, what,
                  fmt::format("at most {} elements of {} bytes in the {} bytes left",
                              reader_.left() / element_bytes, element_bytes, reader_.left()),
                  number(array.count));
  } else {
    std::span<const std::byte> skipped;
    reader_.take(array.count * element_bytes, &skipped);
  }
  const ByteReader end = reader_;
  array.key = std::string(key);
  array.bytes = bytes_.subspan(static_cast<size_t>(start.position()),
                               static_cast<size_t>(end.position() - start.position()));
  Json value;
  if (array.count > kMaxJsonArray) {
    value = {{"array", gguf_value_type_name(array.element_type)}, {"count", array.count}};
  } else {
    value = Json::array();
    reader_ = start;
    for (uint64_t i = 0; i < array.count; ++i) {
      MB_ASSIGN(Json element, read_scalar(what, array.element_type));
      value.push_back(std::move(element));
    }
  }
  file_.arrays_.push_back(std::move(array));
  return value;
}

Result<void> GgufParser::read_alignment() {
  const auto found = file_.metadata_.find("general.alignment");
  if (found == file_.metadata_.end()) return {};
  const std::string expected = "a power of two";
  const std::string what = "key \"general.alignment\"";
  if (!found->is_number_integer()) return broken(file_.path_, what, expected, found->type_name());
  const bool negative = !found->is_number_unsigned() && found->get<int64_t>() < 0;
  if (negative || !std::has_single_bit(found->get<uint64_t>())) {
    return broken(file_.path_, what, expected, found->dump());
  }
  alignment_ = found->get<uint64_t>();
  return {};
}

Result<void> GgufParser::read_tensors() {
  file_.tensors_.reserve(static_cast<size_t>(num_tensors_));
  regions_.reserve(static_cast<size_t>(num_tensors_));
  for (uint64_t i = 0; i < num_tensors_; ++i) MB_TRY(read_tensor());
  return {};
}

Result<void> GgufParser::read_tensor() {
  const std::string entry = fmt::format("tensor {}", file_.tensors_.size());
  MB_ASSIGN(const std::string_view name, read_string(entry + " (name)", kMaxTensorNameBytes));
  if (name.empty()) return broken(file_.path_, entry, "a name", "an empty string");
  const std::string what = "tensor " + shown(name);
  if (!names_.insert(name).second) {
    return broken(file_.path_, what, "each tensor once", "a second one");
  }
  TensorInfo tensor;
  tensor.name = std::string(name);
  MB_TRY(read_shape(what, &tensor));
  MB_TRY(read_type(what, &tensor));
  file_.tensors_.push_back(std::move(tensor));
  return {};
}

Result<void> GgufParser::read_shape(const std::string& what, TensorInfo* tensor) {
  uint32_t num_dims = 0;
  if (!reader_.read(&num_dims)) return ended(what, "a dimension count of 4 bytes");
  if (num_dims < 1 || num_dims > 4) {
    return broken(file_.path_, what, "1 to 4 dimensions", number(num_dims));
  }
  int64_t num_elements = 1;
  for (uint32_t d = 0; d < num_dims; ++d) {
    uint64_t ne = 0;
    if (!reader_.read(&ne)) return ended(what, "a dimension of 8 bytes");
    if (ne < 1 || ne > static_cast<uint64_t>(INT64_MAX)) {
      return broken(file_.path_, fmt::format("{}, dimension {}", what, d), "1 to 2^63 - 1",
                    number(ne));
    }
    if (__builtin_mul_overflow(num_elements, static_cast<int64_t>(ne), &num_elements)) {
      return broken(file_.path_, what, "fewer than 2^63 elements", "a product beyond it");
    }
    tensor->shape.insert(tensor->shape.begin(), static_cast<int64_t>(ne));
  }
  return {};
}

Result<void> GgufParser::read_type(const std::string& what, TensorInfo* tensor) {
  uint32_t id = 0;
  if (!reader_.read(&id)) return ended(what, "a type of 4 bytes");
  const GgmlType* type = find_ggml_type(id);
  if (type == nullptr || !type->supported()) {
    return broken(
        file_.path_, what,
        "a supported type (F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K "
        "IQ4_NL IQ4_XS MXFP4 I8 I16 I32 I64 F64)",
        fmt::format("{} (ggml type {})", type == nullptr ? "an unknown type" : type->name, id));
  }
  tensor->type_name = std::string(type->name);
  tensor->block_format = type->format;
  tensor->dtype = type->dtype;
  const int64_t row = tensor->shape.back();
  if (row % type->block_elements != 0) {
    return broken(
        file_.path_, what,
        fmt::format("rows of a multiple of {} elements ({})", type->block_elements, type->name),
        fmt::format("{}", row));
  }
  const int64_t num_blocks =
      std::accumulate(tensor->shape.begin(), tensor->shape.end(), int64_t{1}, std::multiplies<>()) /
      type->block_elements;
  int64_t num_bytes = 0;
  if (__builtin_mul_overflow(num_blocks, type->block_bytes, &num_bytes)) {
    return broken(file_.path_, what, "fewer than 2^63 bytes", "a product beyond it");
  }
  uint64_t offset = 0;
  if (!reader_.read(&offset)) return ended(what, "an offset of 8 bytes");
  if (offset % alignment_ != 0) {
    return broken(file_.path_, what, fmt::format("an offset that is a multiple of {}", alignment_),
                  number(offset));
  }
  regions_.push_back({offset, static_cast<uint64_t>(num_bytes)});
  return {};
}

Result<void> GgufParser::place_tensors() {
  if (file_.tensors_.empty()) return {};
  const uint64_t padding = (alignment_ - reader_.position() % alignment_) % alignment_;
  if (padding > reader_.left()) {
    return ended("data",
                 fmt::format("{} bytes of padding to a multiple of {}", padding, alignment_));
  }
  const std::span<const std::byte> data =
      bytes_.subspan(static_cast<size_t>(reader_.position() + padding));
  for (size_t i = 0; i < regions_.size(); ++i) {
    const Region& region = regions_[i];
    if (region.offset > data.size() || region.num_bytes > data.size() - region.offset) {
      return broken(file_.path_, "tensor " + shown(file_.tensors_[i].name),
                    fmt::format("{} bytes at data offset {}", region.num_bytes, region.offset),
                    fmt::format("{} bytes of data in the file", data.size()));
    }
    file_.tensors_[i].data =
        data.subspan(static_cast<size_t>(region.offset), static_cast<size_t>(region.num_bytes));
  }
  return check_overlap();
}

Result<void> GgufParser::check_overlap() const {
  std::vector<size_t> order(regions_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return regions_[a].offset < regions_[b].offset; });
  for (size_t i = 1; i < order.size(); ++i) {
    const Region& before = regions_[order[i - 1]];
    const Region& region = regions_[order[i]];
    if (region.offset < before.offset + before.num_bytes) {
      return broken(
          file_.path_, "tensor " + shown(file_.tensors_[order[i]].name),
          fmt::format("an offset of at least {}, where tensor {} ends",
                      before.offset + before.num_bytes, shown(file_.tensors_[order[i - 1]].name)),
          number(region.offset));
    }
  }
  return {};
}

}  // namespace markbase::formats
