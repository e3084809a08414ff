#include "base/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace markbase::base {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string_view nearest(std::string_view name, std::span<const std::string_view> names) {
  constexpr size_t kLongest = 256;  // of what a hostile name may cost
  const std::string_view shown = name.substr(0, kLongest);
  std::string_view best;
  size_t best_distance = shown.size() / 2 + 1;
  for (const std::string_view candidate : names) {
    const size_t distance = edit_distance(shown, candidate);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

}  // namespace markbase::base
