#include "cli/repeated_key.h"

#include <unordered_set>
#include <utility>
#include <vector>

#include "base/json.h"

namespace markbase::cli {
namespace {

class Keys : public nlohmann::json_sax<base::Json> {
 public:
  std::optional<std::string> take_repeated() { return std::move(repeated_); }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
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
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  std::vector<std::unordered_set<std::string>> open_;
  std::optional<std::string> repeated_;
};

}  // namespace

std::optional<std::string> repeated_key(std::string_view json) {
  Keys keys;
  (void)base::Json::sax_parse(json.begin(), json.end(), &keys);
  return keys.take_repeated();
}

}  // namespace markbase::cli
