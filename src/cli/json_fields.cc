#include "cli/json_fields.h"

#include "base/error.h"

namespace markbase::cli {
namespace {

// Long values are cut: a message stays one line.
std::string shown(const base::Json& value) {
  constexpr size_t kMostBytes = 60;
  std::string text = base::dump_json(value);
  if (text.size() <= kMostBytes) return text;
  size_t end = kMostBytes;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

Error wrong(std::string_view key, std::string_view expected, const base::Json& got) {
  return base::usage_error("\"{}\": expected {}, got {}", key, expected, shown(got));
}

}  // namespace

const base::Json* JsonFields::find(std::string_view key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

Result<const base::Json*> JsonFields::list(std::string_view key) const {
  const base::Json* value = find(key);
  if (value != nullptr && !value->is_array()) return wrong(key, "a list", *value);
  return value;
}

Result<std::optional<std::string>> JsonFields::text(std::string_view key) const {
  const base::Json* value = find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return wrong(key, "a text", *value);
  return std::optional<std::string>(value->get<std::string>());
}

Result<std::optional<std::vector<std::string>>> JsonFields::texts(std::string_view key) const {
  using Texts = std::vector<std::string>;
  const base::Json* value = find(key);
  if (value == nullptr) return std::optional<Texts>();
  if (value->is_string()) return std::optional<Texts>(Texts{value->get<std::string>()});
  if (!value->is_array()) return wrong(key, "a text or a list of texts", *value);
  Texts texts;
  for (const base::Json& item : *value) {
    if (!item.is_string()) return wrong(key, "a text or a list of texts", *value);
    texts.push_back(item.get<std::string>());
  }
  return std::optional<Texts>(std::move(texts));
}

Result<std::optional<bool>> JsonFields::boolean(std::string_view key) const {
  const base::Json* value = find(key);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return wrong(key, "true or false", *value);
  return std::optional<bool>(value->get<bool>());
}

Result<std::optional<float>> JsonFields::number(std::string_view key) const {
  const base::Json* value = find(key);
  if (value == nullptr) return std::optional<float>();
  if (!value->is_number()) return wrong(key, "a number", *value);
  const auto number = value->get<double>();
  // What no float holds is as wrong as infinity would be.
  if (!(number >= -std::numeric_limits<float>::max() &&
        number <= std::numeric_limits<float>::max())) {
    return wrong(key, "a number that a float holds", *value);
  }
  return std::optional<float>(static_cast<float>(number));
}

Result<std::optional<int64_t>> JsonFields::integer(std::string_view key, int64_t min,
                                                   int64_t max) const {
  const base::Json* value = find(key);
  if (value == nullptr) return std::optional<int64_t>();
  // The parser calls what fits 64 bits without a sign unsigned.
  const bool too_large =
      value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (!value->is_number_integer() || too_large || value->get<int64_t>() < min ||
      value->get<int64_t>() > max) {
    return wrong(key, fmt::format("an integer from {} to {}", min, max), *value);
  }
  return std::optional<int64_t>(value->get<int64_t>());
}

Result<std::optional<uint64_t>> JsonFields::natural(std::string_view key) const {
  const base::Json* value = find(key);
  if (value == nullptr) return std::optional<uint64_t>();
  if (!value->is_number_unsigned()) return wrong(key, "an integer from 0 to 2^64 - 1", *value);
  return std::optional<uint64_t>(value->get<uint64_t>());
}

Result<std::vector<int32_t>> JsonFields::ids(std::string_view key, int64_t vocab_size) const {
  MB_ASSIGN(const base::Json* items, list(key));
  std::vector<int32_t> ids;
  if (items == nullptr) return ids;
  for (const base::Json& id : *items) {
    const bool fits =
        id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(vocab_size);
    if (!fits) return wrong(key, fmt::format("integers from 0 to {}", vocab_size - 1), id);
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace markbase::cli
