#include "tokenizer/jinja/json_value.h"

#include "base/error.h"
#include "base/json.h"
#include "base/json_fault.h"

namespace markbase::tokenizer::jinja {
namespace {

using base::Json;

constexpr size_t kMaxDepth = 256;
constexpr size_t kMaxDigits = 4300;

// The events of the parser; returning false stops it, and error() says why.
class Builder {
 public:
  explicit Builder(Arena& arena) : arena_(arena) {}
  const std::string& error() const { return error_; }
  const Value& result() const { return result_; }

  bool null() { return add(Value::none()); }
  bool boolean(bool v) { return add(Value::of(v)); }
  bool number_integer(int64_t v) { return add(Value::of(v)); }
  bool number_unsigned(uint64_t v) {
    if (v > static_cast<uint64_t>(INT64_MAX)) return add(arena_.big_int(std::to_string(v)));
    return add(Value::of(static_cast<int64_t>(v)));
  }
  // Integers beyond 64 bits come here too, with their digits.
  bool number_float(double v, const std::string& text) {
    if (text.find_first_of(".eE") != text.npos) return add(Value::of(v));
    if (text.size() > kMaxDigits) return fail(fmt::format("an integer of {} digits", text.size()));
    return add(arena_.big_int(text));
  }
  bool string(std::string& v) { return add(arena_.string(v, Origin::kMessage)); }
  bool binary(Json::binary_t&) { return fail("a binary value"); }
  bool start_object(size_t) { return open(arena_.dict()); }
  bool key(std::string& v) {
    keys_.back() = arena_.string(v, Origin::kMessage);
    return true;
  }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(arena_.list({})); }
  bool end_array() { return close(); }
  bool parse_error(size_t position, const std::string&, const Json::exception& e) {
    return fail(fmt::format("not valid JSON at byte {}: {}", position, base::json_fault(e.what())));
  }

 private:
  bool fail(std::string why) {
    error_ = std::move(why);
    return false;
  }
  bool add(const Value& value) {
    if (open_.empty()) {
      result_ = value;
    } else if (open_.back().is(Type::kDict)) {
      open_.back().dict->set(keys_.back(), value);
    } else {
      open_.back().list->items.push_back(value);
    }
    return true;
  }
  bool open(const Value& container) {
    if (open_.size() >= kMaxDepth)
      return fail(fmt::format("JSON nested deeper than {} levels", kMaxDepth));
    add(container);
    open_.push_back(container);
    keys_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  Arena& arena_;
  Value result_;
  std::vector<Value> open_;
  std::vector<Value> keys_;
  std::string error_;
};

}  // namespace

Result<Value> value_from_json(std::string_view json, std::string_view what, Arena& arena) {
  Builder builder(arena);
  try {
    if (!Json::sax_parse(json.begin(), json.end(), &builder))
      return base::bad_input("{}: {}", what, builder.error());
  } catch (const std::exception& e) {
    return base::bad_input("{}: JSON could not be read: {}", what, e.what());
  }
  return builder.result();
}

}  // namespace markbase::tokenizer::jinja
