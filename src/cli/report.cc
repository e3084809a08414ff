#include "cli/report.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include <fmt/format.h>

namespace markbase::cli {
namespace {

// "246963200 (235.5 MiB)"
std::string bytes_text(uint64_t bytes) {
  constexpr double kUnit = 1024;
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  if (static_cast<double>(bytes) < kUnit) return fmt::format("{}", bytes);
  double amount = static_cast<double>(bytes) / kUnit;
  size_t unit = 0;
  for (; amount >= kUnit && unit + 1 < std::size(kUnits); ++unit) amount /= kUnit;
  return fmt::format("{} ({:.1f} {})", bytes, amount, kUnits[unit]);
}

std::string scalar_text(const base::Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  if (value.is_null()) return "-";
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_object() && value.contains("median") && value.contains("min") &&
      value.contains("max")) {
    return fmt::format("{} ({} to {})", scalar_text(value["median"]), scalar_text(value["min"]),
                       scalar_text(value["max"]));
  }
  return base::dump_json(value);
}

// Sizes are told in a unit beside.
std::string value_text(std::string_view key, const base::Json& value) {
  const bool is_size = key.find("bytes") != key.npos && value.is_number_unsigned();
  return is_size ? bytes_text(value.get<uint64_t>()) : scalar_text(value);
}

bool all_objects(const base::Json& array) {
  return !array.empty() &&
         std::all_of(array.begin(), array.end(), [](const base::Json& v) { return v.is_object(); });
}

// Columns are the keys of the first row; what does not fit a column stands as JSON.
std::string table_text(const base::Json& rows, int indent) {
  std::vector<std::string> keys;
  for (const base::Json& row : rows) {
    for (const auto& [key, value] : row.items()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  std::vector<std::vector<std::string>> cells{keys};
  for (const base::Json& row : rows) {
    std::vector<std::string> line;
    for (const std::string& key : keys)
      line.push_back(row.contains(key) ? value_text(key, row[key]) : "");
    cells.push_back(std::move(line));
  }
  std::vector<size_t> widths(keys.size(), 0);
  for (const auto& line : cells) {
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : cells) {
    std::string row(static_cast<size_t>(indent), ' ');
    for (size_t i = 0; i < line.size(); ++i) row += fmt::format("{:<{}}", line[i], widths[i] + 2);
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

}  // namespace

std::string report_text(const base::Json& json, int indent) {
  constexpr int kStep = 2;
  const std::string pad(static_cast<size_t>(indent), ' ');
  std::string text;
  if (json.is_array())
    return all_objects(json) ? table_text(json, indent) : pad + scalar_text(json) + "\n";
  for (const auto& [key, value] : json.items()) {
    if (value.is_object() && !value.empty()) {
      text += fmt::format("{}{}:\n{}", pad, key, report_text(value, indent + kStep));
    } else if (value.is_array() && all_objects(value)) {
      text += fmt::format("{}{}:\n{}", pad, key, table_text(value, indent + kStep));
    } else {
      text += fmt::format("{}{}: {}\n", pad, key, value_text(key, value));
    }
  }
  return text;
}

}  // namespace markbase::cli
