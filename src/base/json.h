// JSON for every room: nlohmann-json behind one name, parsed without exceptions.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "markbase/result.h"

namespace markbase::base {

using Json = nlohmann::ordered_json;

// `what` names the source in the error ("config.json of DIR"). Refuses nesting deeper than 256.
Result<Json> parse_json(std::string_view text, std::string_view what);

// JSON text with invalid UTF-8 replaced by U+FFFD, never throwing. indent < 0: one line.
std::string dump_json(const Json& json, int indent = -1);

// Empties a document from its leaves up, which allocates nothing. The destructor of the library
// does allocate, and where that fails it ends the process.
void clear_json(Json& json) noexcept;

// A document that is kept: it goes without an allocation.
class KeptJson : public Json {
 public:
  KeptJson() = default;
  KeptJson(Json&& json) : Json(std::move(json)) {}  // NOLINT: implicit by design
  KeptJson(KeptJson&&) noexcept = default;
  KeptJson& operator=(KeptJson&& other) noexcept {
    std::swap(static_cast<Json&>(*this), static_cast<Json&>(other));
    return *this;
  }
  ~KeptJson() { clear_json(*this); }
};

}  // namespace markbase::base
