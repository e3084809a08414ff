#include "runtime/stop_strings.h"

#include <algorithm>
#include <utility>

namespace markbase::runtime {
namespace {

// Length of the longest end of `text` that begins `stop` without being all of it.
size_t partial_match(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.ends_with(stop.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

std::string StopScanner::push(std::string_view text) {
  if (stopped_) return {};
  held_ += text;
  size_t first = std::string::npos;
  size_t hold = 0;
  for (const std::string& stop : stops_) {
    first = std::min(first, held_.find(stop));
    hold = std::max(hold, partial_match(held_, stop));
  }
  stopped_ = first != std::string::npos;
  const size_t shown = stopped_ ? first : held_.size() - hold;
  std::string out = held_.substr(0, shown);
  held_.erase(0, shown);
  return out;
}

std::string StopScanner::finish() { return stopped_ ? std::string() : std::exchange(held_, {}); }

}  // namespace markbase::runtime
