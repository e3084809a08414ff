// Values of a JSON object by key. null is as if the key were not there; another type is refused
// with the key, what was expected and what was got (kUsage).
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "markbase/result.h"

namespace markbase::cli {

class JsonFields {
 public:
  // `object` must be one, and outlive this.
  explicit JsonFields(const base::Json& object) : object_(object) {}

  bool has(std::string_view key) const { return find(key) != nullptr; }
  // Null where there is none.
  const base::Json* find(std::string_view key) const;
  Result<const base::Json*> list(std::string_view key) const;
  Result<std::optional<std::string>> text(std::string_view key) const;
  // A text, or a list of texts.
  Result<std::optional<std::vector<std::string>>> texts(std::string_view key) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<float>> number(std::string_view key) const;
  Result<std::optional<int64_t>> integer(std::string_view key, int64_t min, int64_t max) const;
  Result<std::optional<uint64_t>> natural(std::string_view key) const;
  // Token ids; none where there is no key.
  Result<std::vector<int32_t>> ids(std::string_view key, int64_t vocab_size) const;

 private:
  const base::Json& object_;
};

}  // namespace markbase::cli
