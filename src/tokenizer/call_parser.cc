#include "tokenizer/call_parser.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tokenizer/utf8.h"

namespace markbase::tokenizer {
namespace {

constexpr int kMaxDepth = 100;

bool is_white(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_white(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_white(text.back())) text.remove_suffix(1);
  return text;
}

std::string json_string(std::string_view text) { return base::dump_json(base::Json(text)); }

// As JSON spells numbers: no plus, no leading zero, digits on both sides of the point.
bool is_json_number(std::string_view text) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t begin = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    return i - begin;
  };
  if (i < text.size() && text[i] == '-') ++i;
  const bool zero = i < text.size() && text[i] == '0';
  const size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return false;
  if (i < text.size() && text[i] == '.') {
    ++i;
    if (digits() == 0) return false;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (digits() == 0) return false;
  }
  return i == text.size();
}

// Readers of JSON refuse a number that no double holds.
bool is_finite(std::string_view number) {
  return std::isfinite(std::strtod(std::string(number).c_str(), nullptr));
}

// The JSON of a literal of JSON or Python; empty for anything else.
std::string_view literal_json(std::string_view text) {
  if (text == "true" || text == "True") return "true";
  if (text == "false" || text == "False") return "false";
  if (text == "null" || text == "None") return "null";
  return {};
}

std::string bare_json(std::string_view text) {
  const std::string_view literal = literal_json(text);
  if (!literal.empty()) return std::string(literal);
  return is_json_number(text) && is_finite(text) ? std::string(text) : json_string(text);
}

// One value as JSON text, or a list of them. An object holds its keys (as JSON strings) and values
// in turns.
struct Value {
  char open = 0;  // '{', '[' or 0
  std::string text;
  std::vector<Value> items;
};

// Of equal keys the first place and the last value stay.
void drop_duplicates(std::vector<Value>* items) {
  std::vector<size_t> order(items->size() / 2);
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t pair) -> const std::string& { return (*items)[2 * pair].text; };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  std::vector<bool> dropped(order.size(), false);
  bool any = false;
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && key(order[end]) == key(order[begin])) dropped[order[end++]] = true;
    if (end - begin > 1) {
      std::swap((*items)[2 * order[begin] + 1], (*items)[2 * order[end - 1] + 1]);
      any = true;
    }
    begin = end;
  }
  if (!any) return;
  std::vector<Value> kept;
  for (size_t pair = 0; pair < dropped.size(); ++pair) {
    if (dropped[pair]) continue;
    kept.push_back(std::move((*items)[2 * pair]));
    kept.push_back(std::move((*items)[2 * pair + 1]));
  }
  *items = std::move(kept);
}

void write_json(const Value& value, std::string* out) {
  if (value.open == 0) {
    out->append(value.text);
    return;
  }
  out->push_back(value.open);
  for (size_t i = 0; i < value.items.size(); ++i) {
    if (i > 0) out->push_back(value.open == '{' && i % 2 == 1 ? ':' : ',');
    write_json(value.items[i], out);
  }
  out->push_back(value.open == '{' ? '}' : ']');
}

class CallReader {
 public:
  CallReader(std::string_view bytes, const MarkerSet& markers) : rest_(bytes), markers_(markers) {}

  CallResult read() {
    CallResult result;
    Value arguments;
    if (read_head(&result.call.name) && read_value(&arguments, 0)) {
      skip_white();
      if (!rest_.empty()) fail("text after the closing brace");
    }
    result.why = why_;
    if (broken_) {
      result.call = {};
      return result;
    }
    result.status = unclosed_ ? CallResult::Status::kUnclosed : CallResult::Status::kComplete;
    if (unclosed_) result.why = "closing brackets are missing";
    write_json(arguments, &result.call.arguments);
    return result;
  }

 private:
  bool fail(const char* why) {
    if (!broken_) why_ = why;
    broken_ = true;
    return false;
  }
  void skip_white() {
    while (!rest_.empty() && is_white(rest_.front())) rest_.remove_prefix(1);
  }
  bool next_is(char c) const { return !rest_.empty() && rest_.front() == c; }
  bool take(char c) {
    if (!next_is(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool is_quote(std::string_view at) const {
    return at.size() >= CallText::kMarkerBytes && at[0] == CallText::kMarkerByte &&
           markers_.entries()[static_cast<uint8_t>(at[1])].marker == Marker::kQuote;
  }

  bool read_head(std::string* name) {
    constexpr std::string_view kHead = "call:";
    skip_white();
    if (!rest_.starts_with(kHead)) return fail("expected 'call:'");
    rest_.remove_prefix(kHead.size());
    skip_white();
    const auto in_name = [](char c) {
      return is_digit(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
             c == '-' || c == '.' || c == ':' || c == '/' ||
             (static_cast<uint8_t>(c) >= 0x80 && c != CallText::kMarkerByte);
    };
    size_t length = 0;
    while (length < rest_.size() && in_name(rest_[length])) ++length;
    *name = rest_.substr(0, length);
    rest_.remove_prefix(length);
    skip_white();
    if (name->empty()) return fail("expected the name of a function");
    return next_is('{') || fail("expected '{' after the name of the function");
  }

  // At a value, white space skipped. A closing bracket that the text does not come to is noted.
  bool read_value(Value* value, int depth) {
    if (depth >= kMaxDepth) return fail("brackets are nested too deep");
    if (take('{')) return read_object(value, depth);
    if (take('[')) return read_array(value, depth);
    if (is_quote(rest_)) {
      std::string text;
      if (!read_quoted(&text)) return false;
      value->text = json_string(text);
      return true;
    }
    if (next_is('"')) {
      std::string text;
      if (!read_json_string(&text)) return false;
      value->text = json_string(text);
      return true;
    }
    return read_bare(value);
  }

  bool read_object(Value* value, int depth) {
    value->open = '{';
    for (;;) {
      skip_white();
      if (take(',')) continue;
      if (ends('}')) break;
      Value key;
      if (!read_key(&key.text)) return false;
      value->items.push_back(std::move(key));
      skip_white();
      if (rest_.empty()) return fail("a key without a value");
      if (!read_item(value, depth, '}')) return false;
    }
    drop_duplicates(&value->items);
    return true;
  }

  bool read_array(Value* value, int depth) {
    value->open = '[';
    for (;;) {
      skip_white();
      if (ends(']')) return true;
      if (!read_item(value, depth, ']')) return false;
    }
  }

  // A value and the comma after it.
  bool read_item(Value* value, int depth, char close) {
    Value item;
    if (!read_value(&item, depth + 1)) return false;
    value->items.push_back(std::move(item));
    skip_white();
    if (rest_.empty() || next_is(close) || take(',')) return true;
    return fail("expected ',' or a closing bracket after a value");
  }

  // Takes a closing bracket; the end of the text stands for all that are missing.
  bool ends(char close) {
    unclosed_ |= rest_.empty();
    return rest_.empty() || take(close);
  }

  bool read_key(std::string* json) {
    std::string key;
    if (is_quote(rest_)) {
      if (!read_quoted(&key)) return false;
    } else if (next_is('"')) {
      if (!read_json_string(&key)) return false;
    } else {
      const size_t length = bare_key_length();
      if (length == rest_.npos) return fail("expected a key with ':' after it");
      key = trimmed(rest_.substr(0, length));
      rest_.remove_prefix(length);
    }
    skip_white();
    if (!take(':')) return fail("expected ':' after a key");
    *json = json_string(key);
    return true;
  }

  size_t bare_key_length() const {
    size_t first = rest_.npos;
    for (size_t i = 0; i < rest_.size(); ++i) {
      const char c = rest_[i];
      if (is_punctuation(c) || c == CallText::kMarkerByte) break;
      // Only a name goes on past a colon: "when: at 12:30" has the key "when".
      if (first != rest_.npos && is_white(c)) break;
      if (c != ':') continue;
      if (first == rest_.npos) first = i;
      if (begins_value(rest_.substr(i + 1))) return i;
    }
    return first;
  }

  static bool is_punctuation(char c) {
    return c == ',' || c == '{' || c == '}' || c == '[' || c == ']';
  }

  bool begins_value(std::string_view text) const {
    while (!text.empty() && is_white(text.front())) text.remove_prefix(1);
    if (text.empty()) return false;
    if (is_quote(text) || text[0] == '{' || text[0] == '[' || text[0] == '"') return true;
    size_t length = 0;
    while (length < text.size() && !is_white(text[length]) && !is_punctuation(text[length]) &&
           text[length] != ':') {
      ++length;
    }
    const std::string_view word = text.substr(0, length);
    const bool whole = length == text.size() || text[length] != ':';
    return whole && (is_json_number(word) || !literal_json(word).empty());
  }

  bool read_quoted(std::string* text) {
    rest_.remove_prefix(CallText::kMarkerBytes);
    size_t end = rest_.find(CallText::kMarkerByte);
    while (end != rest_.npos && !is_quote(rest_.substr(end))) {
      end = rest_.find(CallText::kMarkerByte, end + CallText::kMarkerBytes);
    }
    if (end == rest_.npos) return fail("a string without its end");
    *text = CallText::spelled(rest_.substr(0, end), markers_);
    rest_.remove_prefix(end + CallText::kMarkerBytes);
    return true;
  }

  bool read_json_string(std::string* text) {
    size_t i = 1;
    while (i < rest_.size() && rest_[i] != '"') {
      if (rest_[i] == CallText::kMarkerByte) return fail("a control token inside a JSON string");
      if (rest_[i] == '\\') {
        i += read_escape(rest_.substr(i), text);
      } else {
        text->push_back(rest_[i++]);
      }
    }
    if (i >= rest_.size()) return fail("a JSON string without its end");
    rest_.remove_prefix(i + 1);
    return true;
  }

  // The bytes that an escape takes. A backslash that begins none stands for itself.
  static size_t read_escape(std::string_view at, std::string* text) {
    constexpr std::string_view kNames = "\"\\/bfnrt";
    constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
    const size_t name = at.size() > 1 ? kNames.find(at[1]) : kNames.npos;
    if (name != kNames.npos) {
      text->push_back(kMeanings[name]);
      return 2;
    }
    const auto first = code_unit(at);
    if (!first) {
      text->push_back('\\');
      return 1;
    }
    const bool high = *first >= 0xD800 && *first < 0xDC00;
    const auto second = high ? code_unit(at.substr(6)) : std::nullopt;
    if (second && *second >= 0xDC00 && *second < 0xE000) {
      append_scalar(0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00), *text);
      return 12;
    }
    const bool lone = *first >= 0xD800 && *first < 0xE000;
    append_scalar(lone ? 0xFFFD : *first, *text);
    return 6;
  }

  // Of \uXXXX.
  static std::optional<char32_t> code_unit(std::string_view at) {
    if (at.size() < 6 || at[0] != '\\' || at[1] != 'u') return std::nullopt;
    char32_t value = 0;
    for (const char c : at.substr(2, 4)) {
      const char lower = static_cast<char>(c | 0x20);
      if (!is_digit(c) && (lower < 'a' || lower > 'f')) return std::nullopt;
      value = value * 16 + static_cast<char32_t>(is_digit(c) ? c - '0' : lower - 'a' + 10);
    }
    return value;
  }

  bool read_bare(Value* value) {
    size_t i = 0;
    for (int depth = 0; i < rest_.size(); ++i) {
      const char c = rest_[i];
      if (c == CallText::kMarkerByte) return fail("a control token inside a bare value");
      if (depth == 0 && (c == ',' || c == '}' || c == ']')) break;
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
    }
    value->text = bare_json(trimmed(rest_.substr(0, i)));
    rest_.remove_prefix(i);
    return true;
  }

  std::string_view rest_;
  const MarkerSet& markers_;
  bool broken_ = false;
  bool unclosed_ = false;
  std::string why_;
};

}  // namespace

void CallText::add_marker(const MarkerSet::Entry& entry, const MarkerSet& markers) {
  bytes_.push_back(kMarkerByte);
  bytes_.push_back(static_cast<char>(&entry - markers.entries().data()));
}

std::string CallText::spelled(std::string_view bytes, const MarkerSet& markers) {
  std::string out;
  for (size_t at = bytes.find(kMarkerByte); at != bytes.npos; at = bytes.find(kMarkerByte)) {
    out.append(bytes.substr(0, at));
    out.append(markers.entries()[static_cast<uint8_t>(bytes[at + 1])].spelling);
    bytes.remove_prefix(at + kMarkerBytes);
  }
  return out.append(bytes);
}

CallResult parse_call(const CallText& text, const MarkerSet& markers) {
  return CallReader(text.bytes(), markers).read();
}

}  // namespace markbase::tokenizer
