// Finds stop strings in text that comes in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace markbase::runtime {

// Holds text back while it could still become a stop string.
class StopScanner {
 public:
  // `stops`: none of them empty.
  explicit StopScanner(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Text that may be shown now. Once a stop string is complete, what stood before it, and
  // stopped().
  std::string push(std::string_view text);
  // The rest, when the answer ends otherwise.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace markbase::runtime
