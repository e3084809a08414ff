#include "formats/broken.h"

namespace markbase::formats {
namespace {

constexpr size_t kMaxShownBytes = 80;
constexpr std::string_view kLfsStart = "version https://git-lfs";

}  // namespace

std::string shown(std::string_view name) {
  std::string out = "\"";
  for (const char c : name.substr(0, kMaxShownBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + (name.size() > kMaxShownBytes ? "...\"" : "\"");
}

std::optional<Error> not_a_checkpoint(std::string_view file, std::string_view bytes,
                                      std::string_view expected) {
  if (bytes.empty()) return broken(file, "file", expected, "an empty file (0 bytes)");
  if (bytes.starts_with(kLfsStart)) {
    return broken(file, "file", expected,
                  "a Git LFS pointer file (the weights were not downloaded: run `git lfs pull`)");
  }
  return std::nullopt;
}

}  // namespace markbase::formats
