#include "model/config_fields.h"

#include <cmath>

#include "base/error.h"

namespace markbase::model {
namespace {

std::optional<int64_t> as_integer(const base::Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

std::string range_text(int64_t low, int64_t high) {
  return low == high ? fmt::format("{}", low) : fmt::format("an integer from {} to {}", low, high);
}

}  // namespace

std::string shown(const base::Json& value) {
  constexpr size_t kLongest = 60;
  std::string text = base::dump_json(value);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

const base::Json* ConfigFields::find(std::string_view key) const {
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigFields::is_null(std::string_view key) const {
  const auto found = json_.find(key);
  return found != json_.end() && found->is_null();
}

Error ConfigFields::wrong(std::string_view key, std::string_view expected) const {
  const base::Json* value = find(key);
  return base::bad_input("{}: {}: expected {}, got {}", where_, key, expected,
                         value == nullptr ? "nothing" : shown(*value));
}

Result<int64_t> ConfigFields::integer(std::string_view key, int64_t low, int64_t high,
                                      std::optional<int64_t> fallback) const {
  const base::Json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  const std::optional<int64_t> number = value ? as_integer(*value) : std::nullopt;
  if (!number || *number < low || *number > high) return wrong(key, range_text(low, high));
  return *number;
}

Result<double> ConfigFields::real(std::string_view key, double low, double high,
                                  std::optional<double> fallback) const {
  const base::Json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  const double number = value && value->is_number() ? value->get<double>() : NAN;
  if (!(number > low && number < high)) {
    return wrong(key, fmt::format("a number between {} and {}", low, high));
  }
  return number;
}

Result<bool> ConfigFields::boolean(std::string_view key, bool fallback) const {
  const base::Json* value = find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) return wrong(key, "true or false");
  return value->get<bool>();
}

Result<std::string> ConfigFields::text(std::string_view key,
                                       std::optional<std::string> fallback) const {
  const base::Json* value = find(key);
  if (value == nullptr && fallback) return *fallback;
  if (value == nullptr || !value->is_string()) return wrong(key, "a string");
  return value->get<std::string>();
}

Result<int64_t> ConfigFields::integer_at(std::string_view key, int64_t idx, int64_t count,
                                         int64_t low, int64_t high,
                                         std::optional<int64_t> fallback) const {
  const base::Json* value = find(key);
  if (value == nullptr || !value->is_array()) return integer(key, low, high, fallback);
  if (static_cast<int64_t>(value->size()) != count) {
    return wrong(key, fmt::format("one value or {} values, one a layer", count));
  }
  const std::optional<int64_t> number = as_integer((*value)[static_cast<size_t>(idx)]);
  if (!number || *number < low || *number > high) {
    return wrong(key, range_text(low, high) + fmt::format(" at index {}", idx));
  }
  return *number;
}

}  // namespace markbase::model
