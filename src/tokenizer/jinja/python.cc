#include "tokenizer/jinja/python.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tokenizer/jinja/text.h"
#include "tokenizer/jinja/unicode.h"
#include "tokenizer/utf8.h"

namespace markbase::tokenizer::jinja {
namespace {

bool is_list_like(const Value& value) { return value.is(Type::kList) || value.is(Type::kTuple); }

// Exact, also where the integer has no double.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) {
    const int64_t x = a.as_integer();
    const int64_t y = b.as_integer();
    return x < y ? -1 : x > y ? 1 : 0;
  }
  const auto as_double = [](const Value& v) {
    return v.is_integer() ? static_cast<long double>(v.as_integer())
                          : static_cast<long double>(v.real);
  };
  // long double holds every int64 and every double.
  const long double x = as_double(a);
  const long double y = as_double(b);
  return x < y ? -1 : x > y ? 1 : 0;
}

bool is_small_number(const Value& value) { return value.is_integer() || value.is(Type::kFloat); }

bool is_nan(const Value& value) { return value.is(Type::kFloat) && std::isnan(value.real); }

int compare_big(std::string_view a, std::string_view b) {
  const bool negative = a[0] == '-';
  if (negative != (b[0] == '-')) return negative ? -1 : 1;
  int order = a.size() != b.size() ? (a.size() < b.size() ? -1 : 1) : a.compare(b);
  if (negative) order = -order;
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

// Two long texts may differ in their last byte only.
bool spend_compare(const Value& a, const Value& b, Budget& budget) {
  const size_t size = std::min(a.view().size(), b.view().size());
  return budget.spend_steps(static_cast<int64_t>(size) / kBytesPerStep);
}

bool equal_lists(const std::vector<Value>& a, const std::vector<Value>& b, Budget& budget,
                 int depth) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!equals(a[i], b[i], budget, depth)) return false;
  }
  return true;
}

const Value* find_key(const Dict& dict, const Value& key, Budget& budget) {
  if (key.is_string()) {
    budget.spend_steps(static_cast<int64_t>(key.view().size()) / kBytesPerStep);
    return dict.find(key.view());
  }
  if (!budget.spend_steps(static_cast<int64_t>(dict.items.size()) / kLooksPerStep)) return nullptr;
  for (const auto& [name, value] : dict.items) {
    if (same_key(name, key)) return &value;
  }
  return nullptr;
}

bool equal_dicts(const Dict& a, const Dict& b, Budget& budget, int depth) {
  if (a.items.size() != b.items.size()) return false;
  for (const auto& [key, value] : a.items) {
    const Value* other = find_key(b, key, budget);
    if (other == nullptr || !equals(value, *other, budget, depth)) return false;
  }
  return true;
}

bool same_object(const Value& a, const Value& b) {
  switch (a.type) {
    case Type::kMacro:
      return a.macro == b.macro;
    case Type::kFunction:
      return a.function == b.function;
    case Type::kNamespace:
      return a.names == b.names;
    case Type::kLoop:
      return a.loop == b.loop;
    case Type::kView:
    case Type::kGenerator:
      return a.list == b.list;
    default:
      return false;
  }
}

void append_escape(std::string& out, char32_t c) {
  constexpr char kHex[] = "0123456789abcdef";
  const int digits = c > 0xFFFF ? 8 : c > 0xFF ? 4 : 2;
  out += c > 0xFFFF ? "\\U" : c > 0xFF ? "\\u" : "\\x";
  for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) out += kHex[(c >> shift) & 0xF];
}

// repr() of a text: the letters keep their origin, an escape has that of its letter.
void append_quoted(Text& out, const Text& text) {
  const std::string_view bytes = text.bytes;
  const bool has_single = bytes.find('\'') != bytes.npos;
  const char quote = has_single && bytes.find('"') == bytes.npos ? '"' : '\'';
  append(out, std::string_view(&quote, 1), Origin::kMessage);
  size_t at = 0;
  std::string part;
  for (const Run& run : text.runs) {
    part.clear();
    while (at < run.end) {
      const Scalar scalar = decode_scalar(bytes, at);
      const char32_t c = scalar.value;
      if (c == '\n' || c == '\r' || c == '\t') {
        part += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
      } else if (c == '\\' || c == static_cast<char32_t>(quote)) {
        part += '\\';
        part += static_cast<char>(c);
      } else if (!scalar.valid || is_printable(c)) {
        part.append(bytes.substr(at, scalar.length));
      } else {
        append_escape(part, c);
      }
      at += scalar.length;
    }
    append(out, part, run.origin);
  }
  append(out, std::string_view(&quote, 1), Origin::kMessage);
}

void append_plain(Text& out, std::string_view bytes) { append(out, bytes, Origin::kMessage); }

bool append_items(Text& out, const std::vector<Value>& items, std::string_view open,
                  std::string_view close, Budget& budget, int depth) {
  append_plain(out, open);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) append_plain(out, ", ");
    if (!append_value(out, items[i], true, budget, depth)) return false;
  }
  append_plain(out, close);
  return true;
}

bool append_dict(Text& out, const Dict& dict, Budget& budget, int depth) {
  append_plain(out, "{");
  bool first = true;
  for (const auto& [key, value] : dict.items) {
    if (!std::exchange(first, false)) append_plain(out, ", ");
    if (!append_value(out, key, true, budget, depth)) return false;
    append_plain(out, ": ");
    if (!append_value(out, value, true, budget, depth)) return false;
  }
  append_plain(out, "}");
  return true;
}

bool append_namespace(Text& out, const Namespace& names, Budget& budget, int depth) {
  append_plain(out, "<Namespace {");
  bool first = true;
  for (const auto& [key, value] : names.items) {
    if (!std::exchange(first, false)) append_plain(out, ", ");
    append_quoted(out, *key);
    append_plain(out, ": ");
    if (!append_value(out, value, true, budget, depth)) return false;
  }
  append_plain(out, "}>");
  return true;
}

std::string range_text(const Range& range) {
  std::string text = "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop);
  if (range.step != 1) text += ", " + std::to_string(range.step);
  return text + ")";
}

}  // namespace

std::string_view type_name(const Value& value) {
  switch (value.type) {
    case Type::kMissing:
    case Type::kUndefined:
      return "Undefined";
    case Type::kNone:
      return "NoneType";
    case Type::kBool:
      return "bool";
    case Type::kInt:
    case Type::kBigInt:
      return "int";
    case Type::kFloat:
      return "float";
    case Type::kString:
      return "str";
    case Type::kList:
      return "list";
    case Type::kTuple:
      return "tuple";
    case Type::kView:
      return value.list->view_name;
    case Type::kGenerator:
      return "generator";
    case Type::kRange:
      return "range";
    case Type::kDict:
      return "dict";
    case Type::kNamespace:
      return "Namespace";
    case Type::kMacro:
      return "Macro";
    case Type::kFunction:
      return "function";
    case Type::kMethod:
      return "method";
    case Type::kLoop:
      return "LoopContext";
  }
  return "object";
}

bool is_true(const Value& value) {
  switch (value.type) {
    case Type::kMissing:
    case Type::kUndefined:
    case Type::kNone:
      return false;
    case Type::kBool:
      return value.boolean;
    case Type::kInt:
      return value.integer != 0;
    case Type::kFloat:
      return value.real != 0;
    case Type::kString:
      return !value.text->bytes.empty();
    case Type::kList:
    case Type::kTuple:
    case Type::kView:
      return !value.list->items.empty();
    case Type::kRange:
      return value.range->size() > 0;
    case Type::kDict:
      return !value.dict->items.empty();
    default:
      return true;
  }
}

bool equals(const Value& a, const Value& b, Budget& budget, int depth) {
  if (depth > kMaxValueDepth || !budget.spend_steps(1)) {
    budget.spend_steps(INT64_MAX / 2);
    return false;
  }
  if (is_small_number(a) && is_small_number(b)) {
    return !is_nan(a) && !is_nan(b) && compare_numbers(a, b) == 0;
  }
  if (a.type != b.type) return false;
  switch (a.type) {
    case Type::kMissing:
    case Type::kUndefined:
    case Type::kNone:
      return true;
    case Type::kString:
    case Type::kBigInt:
      return a.view().size() == b.view().size() && spend_compare(a, b, budget) &&
             a.view() == b.view();
    case Type::kList:
    case Type::kTuple:
      return a.list == b.list || equal_lists(a.list->items, b.list->items, budget, depth + 1);
    case Type::kDict:
      return a.dict == b.dict || equal_dicts(*a.dict, *b.dict, budget, depth + 1);
    case Type::kRange: {
      const Range& x = *a.range;
      const Range& y = *b.range;
      const int64_t size = x.size();
      return size == y.size() && (size == 0 || x.start == y.start) &&
             (size < 2 || x.step == y.step);
    }
    default:
      return same_object(a, b);
  }
}

bool same_key(const Value& a, const Value& b) {
  // Paid for by who looks through the keys.
  Budget budget(INT64_MAX, 0);
  return equals(a, b, budget);
}

bool is_hashable(const Value& value) {
  switch (value.type) {
    case Type::kNone:
    case Type::kBool:
    case Type::kInt:
    case Type::kBigInt:
    case Type::kFloat:
    case Type::kString:
      return true;
    default:
      return false;
  }
}

std::optional<int> compare(const Value& a, const Value& b, Budget& budget, int depth) {
  if (depth > kMaxValueDepth || !budget.spend_steps(1)) return std::nullopt;
  if (is_small_number(a) && is_small_number(b)) {
    // Python answers False to every order of a NaN; no list of ours holds one that was not made.
    if (is_nan(a) || is_nan(b)) return std::nullopt;
    return compare_numbers(a, b);
  }
  if (a.is(Type::kBigInt) && b.is(Type::kBigInt)) return compare_big(a.view(), b.view());
  if (a.is(Type::kBigInt) && b.is_integer()) return a.view()[0] == '-' ? -1 : 1;
  if (b.is(Type::kBigInt) && a.is_integer()) return b.view()[0] == '-' ? 1 : -1;
  if (a.is_string() && b.is_string()) {
    if (!spend_compare(a, b, budget)) return std::nullopt;
    const int order = a.view().compare(b.view());  // code points and UTF-8 sort alike
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.type != b.type || !is_list_like(a)) return std::nullopt;
  const std::vector<Value>& x = a.list->items;
  const std::vector<Value>& y = b.list->items;
  for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
    if (equals(x[i], y[i], budget, depth + 1)) continue;
    return compare(x[i], y[i], budget, depth + 1);
  }
  return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(end.ptr - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const size_t sign = text[e + 1] == '+' ? 1 : 0;
  std::from_chars(text.data() + e + 1 + sign, text.data() + text.size(), exponent);
  // From 1e16 on, and below 1e-4, Python writes an exponent.
  constexpr int kFirstLong = 16;
  constexpr int kLastSmall = -5;
  if (exponent > kLastSmall && exponent < kFirstLong) {
    char plain[64];
    const auto done = std::to_chars(plain, plain + sizeof(plain), value, std::chars_format::fixed);
    std::string out(plain, done.ptr);
    if (out.find('.') == out.npos) out += ".0";
    return out;
  }
  return std::string(text);
}

bool append_value(Text& out, const Value& value, bool quoted, Budget& budget, int depth) {
  if (depth > kMaxValueDepth || !budget.spend_steps(1)) return false;
  const size_t before = out.bytes.size();
  bool good = true;
  switch (value.type) {
    case Type::kMissing:
    case Type::kUndefined:
      if (quoted) append_plain(out, "Undefined");
      break;
    case Type::kNone:
      append_plain(out, "None");
      break;
    case Type::kBool:
      append_plain(out, value.boolean ? "True" : "False");
      break;
    case Type::kInt:
      append_plain(out, std::to_string(value.integer));
      break;
    case Type::kBigInt:
      append_plain(out, value.view());
      break;
    case Type::kFloat:
      append_plain(out, float_text(value.real));
      break;
    case Type::kString:
      // Quoting goes letter by letter and may grow the text fourfold.
      if (!budget.spend_bytes(weight(*value.text) * (quoted ? 8 : 1))) return false;
      if (quoted) {
        append_quoted(out, *value.text);
      } else {
        append(out, *value.text);
      }
      return true;
    case Type::kList:
      good = append_items(out, value.list->items, "[", "]", budget, depth + 1);
      break;
    case Type::kTuple:
      good = append_items(out, value.list->items, "(", value.list->items.size() == 1 ? ",)" : ")",
                          budget, depth + 1);
      break;
    case Type::kView:
      append_plain(out, value.list->view_name);
      good = append_items(out, value.list->items, "([", "])", budget, depth + 1);
      break;
    case Type::kRange:
      append_plain(out, range_text(*value.range));
      break;
    case Type::kDict:
      good = append_dict(out, *value.dict, budget, depth + 1);
      break;
    case Type::kNamespace:
      good = append_namespace(out, *value.names, budget, depth + 1);
      break;
    default:
      return false;
  }
  // Inner values have paid for themselves; paying twice at each level would cost deep ones more
  // than they are.
  if (depth == 0 && !quoted) {
    return good && budget.spend_bytes(static_cast<int64_t>(out.bytes.size() - before));
  }
  return good && budget.spend_bytes(2);
}

}  // namespace markbase::tokenizer::jinja
