#include "cli/json_lines.h"

#include <algorithm>
#include <functional>

#include "base/error.h"
#include "base/nearest.h"
#include "base/repeated_key.h"
#include "cli/cli.h"
#include "cli/line_reader.h"

namespace markbase::cli {
namespace {

using OnObject = std::function<Result<std::string>(const base::Json&)>;

Result<void> answer_line(std::string_view line, size_t number,
                         std::span<const std::string_view> keys, const OnObject& handle) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return {};
  MB_ASSIGN(const base::Json object, base::parse_json(line, fmt::format("line {}", number)));
  Result<void> checked = check_object(object, keys);
  if (checked.ok()) checked = base::check_no_repeated_key(line);
  Result<std::string> answer = checked.ok() ? handle(object) : checked.error();
  if (!answer.ok()) return input_error(fmt::format("line {}", number), answer.error());
  return print(*answer + "\n");
}

}  // namespace

Result<void> for_each_json_line(const std::string& file, std::span<const std::string_view> keys,
                                const OnObject& handle) {
  MB_ASSIGN(LineReader reader, LineReader::open(file));
  for (;;) {
    MB_ASSIGN(const std::optional<LineReader::Line> line, reader.next());
    if (!line) return {};
    MB_TRY(answer_line(line->text, line->number, keys, handle));
  }
}

Result<void> check_object(const base::Json& json, std::span<const std::string_view> keys) {
  if (json.is_object()) return check_keys(json, keys);
  return base::usage_error("expected a JSON object with {}, got {}", fmt::join(keys, ", "),
                           json.type_name());
}

Result<void> check_keys(const base::Json& object, std::span<const std::string_view> keys) {
  for (const auto& [key, value] : object.items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    const std::string_view meant = base::nearest(key, keys);
    return base::usage_error("\"{}\": no such key, expected {}{}", key, fmt::join(keys, ", "),
                             meant.empty() ? std::string() : fmt::format(" (\"{}\"?)", meant));
  }
  return {};
}

}  // namespace markbase::cli
