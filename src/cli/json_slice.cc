#include "cli/json_slice.h"

#include <algorithm>

namespace markbase::cli {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

size_t skip_space(std::string_view text, size_t at) {
  return std::min(text.find_first_not_of(kSpace, at), text.size());
}

// From the opening quote to behind the closing one.
size_t skip_string(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// To the comma or bracket that ends a value.
size_t skip_value(std::string_view text, size_t at) {
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = skip_string(text, at);
      continue;
    }
    if (depth == 0 && (c == ',' || c == '}' || c == ']')) break;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    ++at;
  }
  return at;
}

}  // namespace

std::string_view json_member(std::string_view object, std::string_view key) {
  std::string_view found;
  size_t at = object.find('{');
  if (at == object.npos) return found;
  at = skip_space(object, at + 1);
  while (at < object.size() && object[at] == '"') {
    const size_t key_end = skip_string(object, at);
    const std::string_view name = object.substr(at + 1, key_end - at - 2);
    const size_t begin =
        skip_space(object, std::min(object.find(':', key_end), object.size() - 1) + 1);
    const size_t end = skip_value(object, begin);
    if (name == key) found = object.substr(begin, end - begin);
    at = skip_space(object, std::min(end + 1, object.size()));
  }
  return found.substr(0, found.find_last_not_of(kSpace) + 1);
}

std::vector<std::string_view> json_items(std::string_view list) {
  std::vector<std::string_view> items;
  size_t at = skip_space(list, 0);
  if (at == list.size() || list[at] != '[') return items;
  at = skip_space(list, at + 1);
  while (at < list.size() && list[at] != ']') {
    const size_t end = skip_value(list, at);
    items.push_back(list.substr(at, end - at));
    at = skip_space(list, end < list.size() && list[end] == ',' ? end + 1 : end);
  }
  return items;
}

}  // namespace markbase::cli
