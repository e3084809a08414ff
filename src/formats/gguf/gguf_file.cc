#include "formats/gguf/gguf_file.h"

#include "formats/broken.h"
#include "formats/byte_reader.h"
#include "formats/gguf/gguf_parser.h"
#include "formats/gguf/gguf_types.h"

namespace markbase::formats {
namespace {

// Elements of a checked array as T, whatever width the file gave them.
template <class Stored, class T>
std::vector<T> converted(std::span<const std::byte> bytes) {
  std::vector<T> out;
  out.reserve(bytes.size() / sizeof(Stored));
  ByteReader reader(bytes);
  Stored value{};
  while (reader.read(&value)) out.push_back(static_cast<T>(value));
  return out;
}

}  // namespace

Result<GgufFile> GgufFile::open(const std::string& path) {
  MB_ASSIGN(base::MappedFile mapping, base::MappedFile::open(path));
  Result<GgufFile> file = parse(mapping.bytes(), path);
  // Bytes that vanished while they were parsed explain any other error.
  MB_TRY(mapping.check_intact());
  if (file.ok()) file->mapping_ = std::move(mapping);
  return file;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, const std::string& path) {
  return GgufParser(bytes, path).run();
}

const GgufFile::ArrayRef* GgufFile::find_array(std::string_view key) const {
  for (const ArrayRef& array : arrays_) {
    if (array.key == key) return &array;
  }
  return nullptr;
}

namespace {

std::string what_is_there(const base::Json& metadata, std::string_view key,
                          std::string_view element) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return "no such key";
  if (!element.empty()) return fmt::format("an array of {}", element);
  return fmt::format("a single {}", found->type_name());
}

}  // namespace

Result<std::vector<std::string_view>> GgufFile::string_array(std::string_view key) const {
  const ArrayRef* array = find_array(key);
  if (array == nullptr || array->element_type != static_cast<uint32_t>(GgufValueType::kString)) {
    return broken(
        path_, "key " + shown(key), "an array of strings",
        what_is_there(metadata_, key, array ? gguf_value_type_name(array->element_type) : ""));
  }
  std::vector<std::string_view> out;
  out.reserve(static_cast<size_t>(array->count));
  ByteReader reader(array->bytes);
  for (uint64_t i = 0; i < array->count; ++i) {
    uint64_t length = 0;
    std::span<const std::byte> text;
    // Checked when the file was opened; it can only fail now if the file was truncated since.
    if (!reader.read(&length) || !reader.take(length, &text)) {
      return broken(path_, "key " + shown(key), "the strings met at opening", "other bytes");
    }
    out.push_back(as_text(text));
  }
  return out;
}

Result<std::vector<float>> GgufFile::float_array(std::string_view key) const {
  const ArrayRef* array = find_array(key);
  if (array != nullptr) {
    const auto type = static_cast<GgufValueType>(array->element_type);
    if (type == GgufValueType::kF32) return converted<float, float>(array->bytes);
    if (type == GgufValueType::kF64) return converted<double, float>(array->bytes);
  }
  return broken(
      path_, "key " + shown(key), "an array of f32 or f64",
      what_is_there(metadata_, key, array ? gguf_value_type_name(array->element_type) : ""));
}

Result<std::vector<int64_t>> GgufFile::integer_array(std::string_view key) const {
  const ArrayRef* array = find_array(key);
  const std::string expected = "an array of integers below 2^63";
  std::string_view element;
  if (array != nullptr) {
    element = gguf_value_type_name(array->element_type);
    switch (static_cast<GgufValueType>(array->element_type)) {
      case GgufValueType::kU8:
      case GgufValueType::kBool:
        return converted<uint8_t, int64_t>(array->bytes);
      case GgufValueType::kI8:
        return converted<int8_t, int64_t>(array->bytes);
      case GgufValueType::kU16:
        return converted<uint16_t, int64_t>(array->bytes);
      case GgufValueType::kI16:
        return converted<int16_t, int64_t>(array->bytes);
      case GgufValueType::kU32:
        return converted<uint32_t, int64_t>(array->bytes);
      case GgufValueType::kI32:
        return converted<int32_t, int64_t>(array->bytes);
      case GgufValueType::kI64:
        return converted<int64_t, int64_t>(array->bytes);
      case GgufValueType::kU64: {
        for (const uint64_t value : converted<uint64_t, uint64_t>(array->bytes)) {
          if (value > static_cast<uint64_t>(INT64_MAX)) {
            return broken(path_, "key " + shown(key), expected, fmt::format("{}", value));
          }
        }
        return converted<uint64_t, int64_t>(array->bytes);
      }
      default:
        break;
    }
  }
  return broken(path_, "key " + shown(key), expected, what_is_there(metadata_, key, element));
}

}  // namespace markbase::formats
