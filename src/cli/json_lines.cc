#include "cli/json_lines.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>

#include "base/error.h"
#include "base/nearest.h"
#include "cli/cli.h"

namespace markbase::cli {
namespace {

using OnObject = std::function<Result<std::string>(const base::Json&)>;

Result<void> answer_line(std::string_view line, size_t number, const OnObject& handle) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return {};
  MB_ASSIGN(const base::Json object, base::parse_json(line, fmt::format("line {}", number)));
  if (!object.is_object()) return base::usage_error("line {}: expected a JSON object", number);
  Result<std::string> answer = handle(object);
  if (!answer.ok()) {
    return Error{answer.error().code, fmt::format("line {}: {}", number, answer.error().message)};
  }
  return print(*answer + "\n");
}

Result<void> answer_lines(int fd, const std::string& name, const OnObject& handle) {
  std::string text;
  size_t number = 0;
  char buffer[65536];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR && !interrupted()) continue;
    if (n < 0 && errno == EINTR) return Error{ErrorCode::kCancelled, "interrupted"};
    if (n < 0) return base::bad_input("{}: cannot be read: {}", name, std::strerror(errno));
    if (n == 0) return answer_line(text, number + 1, handle);
    const size_t searched = text.size();
    if (static_cast<size_t>(n) > kMostInputBytes - text.size()) {
      return base::bad_input("{}: line {}: expected at most {} MiB, got more", name, number + 1,
                             kMostInputBytes >> 20);
    }
    text.append(buffer, static_cast<size_t>(n));
    size_t begin = 0;
    for (size_t end = text.find('\n', searched); end != std::string::npos;
         end = text.find('\n', begin)) {
      MB_TRY(answer_line(std::string_view(text).substr(begin, end - begin), ++number, handle));
      begin = end + 1;
    }
    text.erase(0, begin);
  }
}

}  // namespace

Result<void> for_each_json_line(const std::string& file, const OnObject& handle) {
  if (file.empty() || file == "-") return answer_lines(STDIN_FILENO, "stdin", handle);
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return base::bad_input("{}: cannot be opened: {}", file, std::strerror(errno));
  Result<void> result = answer_lines(fd, file, handle);
  ::close(fd);
  return result;
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
