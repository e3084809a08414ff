#include "base/json.h"

#include "base/error.h"
#include "base/json_fault.h"

namespace markbase::base {
namespace {

// A depth count before parsing keeps hostile nesting out of every recursive consumer.
constexpr int kMaxDepth = 256;

bool nesting_within_limit(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return false;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return true;
}

}  // namespace

std::string_view json_fault(std::string_view what) {
  if (!what.starts_with('[')) return what;
  const size_t bracket = what.find("] ");
  if (bracket == what.npos) return what;
  std::string_view rest = what.substr(bracket + 2);
  // The caller names the byte; line and column would be a second place.
  const size_t colon = rest.find(": ");
  if (rest.starts_with("parse error") && colon != rest.npos) rest.remove_prefix(colon + 2);
  return rest;
}

Result<Json> parse_json(std::string_view text, std::string_view what) {
  if (!nesting_within_limit(text)) {
    return bad_input("{}: JSON nested deeper than {} levels", what, kMaxDepth);
  }
  // The exceptions of the library end here: they carry the byte position that the message needs.
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& e) {
    return bad_input("{}: not valid JSON at byte {}: {}", what, e.byte, json_fault(e.what()));
  } catch (const std::exception& e) {
    return bad_input("{}: JSON could not be read: {}", what, json_fault(e.what()));
  }
}

std::string dump_json(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// As deep as parse_json lets a document be.
void clear_json(Json& json) noexcept {
  if (!json.is_structured()) return;
  for (Json& child : json) clear_json(child);
  json.clear();
}

}  // namespace markbase::base
