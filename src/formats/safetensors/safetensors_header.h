// The JSON of a safetensors header and of an index, read event by event: every key that comes twice
// is seen, and no tree is built from a header of hostile size.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "markbase/result.h"

namespace markbase::formats {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // from the first byte after the header
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        // in header order
  std::map<std::string, std::string> metadata;  // "__metadata__"
};

// Errors: not JSON (with the byte), a key twice, an unknown or missing field, a negative or
// fractional number. Offsets and shapes are not compared here.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, const std::string& path);

// tensor -> file of the "weight_map" of model.safetensors.index.json, in file order.
using WeightMap = std::vector<std::pair<std::string, std::string>>;
Result<WeightMap> parse_safetensors_index(std::string_view json, const std::string& path);

}  // namespace markbase::formats
