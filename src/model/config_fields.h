// Checked access to the keys of a configuration: every value has a range, every error names key and
// file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "markbase/result.h"

namespace markbase::model {

// Largest sizes that a configuration may ask for. They are far beyond any Gemma and keep every
// product of two of them inside int64.
inline constexpr int64_t kMaxVocab = int64_t{1} << 24;
inline constexpr int64_t kMaxWidth = int64_t{1} << 20;
inline constexpr int64_t kMaxLayers = 1024;
inline constexpr int64_t kMaxHeads = 1024;
inline constexpr int64_t kMaxHeadDim = 8192;
inline constexpr int64_t kMaxExperts = 1024;
inline constexpr double kMaxTheta = 1e12;
inline constexpr double kMaxRopeFactor = 1e6;
// Positions are exact in float32 up to here.
inline constexpr int64_t kMaxPositions = int64_t{1} << 24;

class ConfigFields {
 public:
  // `json` must be an object and outlive this.
  ConfigFields(const base::Json& json, std::string_view where) : json_(json), where_(where) {}

  // nullptr when the key is missing or null.
  const base::Json* find(std::string_view key) const;
  // The key is there and null, which is not always what its absence means.
  bool is_null(std::string_view key) const;
  Result<int64_t> integer(std::string_view key, int64_t low, int64_t high,
                          std::optional<int64_t> fallback = std::nullopt) const;
  // In (low, high), finite.
  Result<double> real(std::string_view key, double low, double high,
                      std::optional<double> fallback = std::nullopt) const;
  Result<bool> boolean(std::string_view key, bool fallback) const;
  Result<std::string> text(std::string_view key,
                           std::optional<std::string> fallback = std::nullopt) const;
  // An integer, or element `idx` of an array of `count`.
  Result<int64_t> integer_at(std::string_view key, int64_t idx, int64_t count, int64_t low,
                             int64_t high, std::optional<int64_t> fallback = std::nullopt) const;

  Error wrong(std::string_view key, std::string_view expected) const;
  const std::string& where() const { return where_; }

 private:
  const base::Json& json_;
  std::string where_;
};

// A JSON value short enough for a message.
std::string shown(const base::Json& value);

}  // namespace markbase::model
