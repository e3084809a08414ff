#include "base/repeated_key.h"

#include <unordered_set>
#include <utility>
#include <vector>

#include "base/any_json.h"
#include "base/error.h"

namespace markbase::base {
namespace {

class Keys : public AnyJson {
 public:
  std::optional<std::string> take_repeated() { return std::move(repeated_); }

  bool start_object(size_t) override {
    open_.emplace_back();
    return true;
  }
  bool key(string_t& key) override {
    if (open_.back().insert(key).second) return true;
    repeated_ = key;
    return false;
  }
  bool end_object() override {
    open_.pop_back();
    return true;
  }

 private:
  std::vector<std::unordered_set<std::string>> open_;
  std::optional<std::string> repeated_;
};

}  // namespace

std::optional<std::string> repeated_key(std::string_view json) {
  Keys keys;
  (void)Json::sax_parse(json.begin(), json.end(), &keys);
  return keys.take_repeated();
}

Result<void> check_no_repeated_key(std::string_view json, std::string_view what) {
  const std::optional<std::string> key = repeated_key(json);
  if (!key) return {};
  return usage_error("{}{}{}: expected once in an object, got twice", what,
                     what.empty() ? "" : ": ", dump_json(Json(*key)));
}

}  // namespace markbase::base
