// The filters of values and texts; those over sequences are in sequence_filters.cc.
#include "tokenizer/jinja/filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "tokenizer/jinja/text.h"

namespace markbase::tokenizer::jinja {
namespace {

int64_t size_of(const Value& text) { return static_cast<int64_t>(text.view().size()); }

Value text_case(Evaluator& eval, const Expr& at, const Arguments& args,
                Text (*convert)(const Text&)) {
  const auto bound = bind(eval, at, args, {"s"}, 1);
  const Value text = eval.text_of(at, bound[0]);
  if (eval.failed() || !eval.spend(at, size_of(text) / 2, weight(*text.text) * 3)) return {};
  return eval.arena().string(convert(*text.text));
}
Value filter_upper(Evaluator& eval, const Expr& at, Arguments& args) {
  return text_case(eval, at, args, [](const Text& t) { return to_case(t, Case::kUpper); });
}
Value filter_lower(Evaluator& eval, const Expr& at, Arguments& args) {
  return text_case(eval, at, args, [](const Text& t) { return to_case(t, Case::kLower); });
}
Value filter_title(Evaluator& eval, const Expr& at, Arguments& args) {
  return text_case(eval, at, args, title_filter);
}
Value filter_capitalize(Evaluator& eval, const Expr& at, Arguments& args) {
  return text_case(eval, at, args, capitalize);
}

Value filter_trim(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value", "chars"}, 1);
  const Value text = eval.text_of(at, bound[0]);
  if (eval.failed()) return {};
  std::optional<std::string_view> chars;
  if (!bound[1].is(Type::kMissing) && !bound[1].is(Type::kNone)) {
    if (!bound[1].is_string()) return eval.fail(at, "'trim' takes a text");
    chars = bound[1].view();
  }
  const int64_t width = chars ? static_cast<int64_t>(chars->size()) + 1 : 1;
  if (!eval.spend(at, size_of(text) * width / 8, weight(*text.text))) return {};
  return eval.arena().string(strip(*text.text, chars, Ends::kBoth));
}

Value filter_string(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"object"}, 1);
  return eval.failed() ? Value() : eval.text_of(at, bound[0]);
}

Value filter_replace(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"s", "old", "new", "count"}, 3);
  if (eval.failed()) return {};
  Method method{eval.text_of(at, bound[0]), "replace"};
  Arguments inner;
  inner.positional = {eval.text_of(at, bound[1]), eval.text_of(at, bound[2])};
  if (!bound[3].is(Type::kMissing) && !bound[3].is(Type::kNone))
    inner.positional.push_back(bound[3]);
  return eval.failed() ? Value() : call_method(eval, at, method, inner);
}

Value filter_default(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value", "default_value", "boolean"}, 1);
  if (eval.failed()) return {};
  const bool by_truth = !bound[2].is(Type::kMissing) && is_true(bound[2]);
  if (!bound[0].is_undefined() && !(by_truth && !is_true(bound[0]))) return bound[0];
  return bound[1].is(Type::kMissing) ? eval.string("") : bound[1];
}

Value filter_length(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"obj"}, 1);
  const Value& v = bound[0];
  switch (v.type) {
    case Type::kMissing:
      return {};
    case Type::kUndefined:
      return Value::of(int64_t{0});
    case Type::kString:
      eval.spend(at, size_of(v) / 64);
      return Value::of(length(v.view()));
    case Type::kList:
    case Type::kTuple:
    case Type::kView:
      return Value::of(static_cast<int64_t>(v.list->items.size()));
    case Type::kRange:
      return Value::of(v.range->size());
    case Type::kDict:
      return Value::of(static_cast<int64_t>(v.dict->items.size()));
    case Type::kLoop:
      return Value::of(static_cast<int64_t>(v.loop->size()));
    default:
      return eval.fail(at, fmt::format("a {} has no length", type_name(v)));
  }
}

// What Python's int() and float() make of a text; nothing where they raise.
std::string cleaned(std::string_view text) {
  const Text stripped =
      strip(Text{std::string(text), {{text.size(), Origin::kMessage}}}, {}, Ends::kBoth);
  std::string out;
  for (size_t i = 0; i < stripped.bytes.size(); ++i) {
    const char c = stripped.bytes[i];
    const auto is_digit = [&](size_t at) {
      return at < stripped.bytes.size() &&
             std::isxdigit(static_cast<unsigned char>(stripped.bytes[at])) != 0;
    };
    // An underscore between digits is passed over, any other one is an error that stays.
    if (c == '_' && i > 0 && is_digit(i - 1) && is_digit(i + 1)) continue;
    out.push_back(c);
  }
  return out;
}
std::optional<double> parse_float(std::string_view text) {
  const std::string clean = cleaned(text);
  if (clean.empty() || clean.find_first_of("xXpP") != clean.npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(clean.c_str(), &end);
  if (end != clean.c_str() + clean.size() ||
      std::isspace(static_cast<unsigned char>(clean[0])) != 0 || clean.find('(') != clean.npos) {
    return std::nullopt;
  }
  return value;
}
std::optional<int64_t> parse_integer(std::string_view text, int base) {
  std::string clean = cleaned(text);
  std::string_view digits = clean;
  bool negative = false;
  if (!digits.empty() && (digits[0] == '+' || digits[0] == '-')) {
    negative = digits[0] == '-';
    digits.remove_prefix(1);
  }
  const char letter = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
  if (letter != '\0' && digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == letter)
    digits.remove_prefix(2);
  uint64_t value = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (end.ec != std::errc() || end.ptr != digits.data() + digits.size() || digits.empty())
    return std::nullopt;
  if (value > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return negative ? -static_cast<int64_t>(value) : static_cast<int64_t>(value);
}
// Steps for writing and reading hundreds of digits.
constexpr int64_t kDigitSteps = 128;

Value integer_of(Evaluator& eval, const Expr& at, double value, const Value& otherwise) {
  if (std::isnan(value) || std::isinf(value)) return otherwise;
  if (std::fabs(value) < 9.2e18) return Value::of(static_cast<int64_t>(value));
  if (!eval.spend(at, kDigitSteps)) return {};
  // A double this large is an integer, and printf knows all of its digits.
  char digits[320];
  const int size = std::snprintf(digits, sizeof(digits), "%.0f", value);
  return eval.arena().big_int({digits, static_cast<size_t>(size)});
}
Value filter_int(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value", "default", "base"}, 1);
  if (eval.failed()) return {};
  const Value otherwise = bound[1].is(Type::kMissing) ? Value::of(int64_t{0}) : bound[1];
  const Value& v = bound[0];
  if (v.is(Type::kBigInt)) return v;
  if (v.is_integer()) return Value::of(v.as_integer());
  if (v.is(Type::kFloat)) return integer_of(eval, at, v.real, otherwise);
  if (!v.is_string()) return otherwise;
  const int64_t base = bound[2].is_integer() ? bound[2].as_integer() : 10;
  if (base < 2 || base > 36) return eval.fail(at, "'int': expected a base of 2 to 36");
  if (!eval.spend(at, size_of(v) / 8, size_of(v))) return {};
  if (const auto integer = parse_integer(v.view(), static_cast<int>(base)))
    return Value::of(*integer);
  const auto real = parse_float(v.view());
  return real ? integer_of(eval, at, *real, otherwise) : otherwise;
}

Value filter_float(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value", "default"}, 1);
  if (eval.failed()) return {};
  const Value otherwise = bound[1].is(Type::kMissing) ? Value::of(0.0) : bound[1];
  const Value& v = bound[0];
  if (v.is_integer()) return Value::of(static_cast<double>(v.as_integer()));
  if (v.is(Type::kFloat)) return v;
  if (v.is(Type::kBigInt) || v.is_string()) {
    if (!eval.spend(at, size_of(v) / 8, size_of(v))) return {};
    const auto real = parse_float(v.view());
    return real ? Value::of(*real) : otherwise;
  }
  return otherwise;
}

Value filter_abs(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"x"}, 1);
  if (eval.failed()) return {};
  const Value& v = bound[0];
  if (v.is(Type::kFloat)) return Value::of(std::fabs(v.real));
  if (v.is(Type::kBigInt) && v.view()[0] == '-') return eval.arena().big_int(v.view().substr(1));
  if (v.is(Type::kBigInt)) return v;
  if (!v.is_integer())
    return eval.fail(at, fmt::format("'abs' takes a number, got a {}", type_name(v)));
  if (v.as_integer() == INT64_MIN) return eval.fail(at, "a number beyond 64 bits");
  return Value::of(std::abs(v.as_integer()));
}

// Python's round() works on the exact decimal digits of the double, as printf does.
double round_to(double value, int precision) {
  char buffer[400];
  std::snprintf(buffer, sizeof(buffer), "%.*f", precision, value);
  return std::strtod(buffer, nullptr);
}

Value filter_round(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"value", "precision", "method"}, 1);
  if (eval.failed()) return {};
  const Value& v = bound[0];
  const int64_t precision = bound[1].is_integer() ? bound[1].as_integer() : 0;
  const std::string_view method = bound[2].is_string() ? bound[2].view() : "common";
  if (!v.is_number())
    return eval.fail(at, fmt::format("'round' takes a number, got a {}", type_name(v)));
  if (precision < 0 || precision > 20)
    return eval.fail(at, "'round': expected a precision of 0 to 20");
  if (method == "common") {
    if (v.is(Type::kBigInt)) return v;
    if (v.is_integer()) return Value::of(v.as_integer());
    if (!std::isfinite(v.real)) return v;
    if (!eval.spend(at, kDigitSteps)) return {};
    return Value::of(round_to(v.real, static_cast<int>(precision)));
  }
  if (method != "ceil" && method != "floor")
    return eval.fail(at, "'round': expected common, ceil or floor");
  const double factor = std::pow(10.0, static_cast<double>(precision));
  const double number = v.is_integer()        ? static_cast<double>(v.as_integer())
                        : v.is(Type::kBigInt) ? std::strtod(v.text->bytes.c_str(), nullptr)
                                              : v.real;
  const double scaled = number * factor;
  return Value::of((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / factor);
}

Value filter_indent(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound = bind(eval, at, args, {"s", "width", "first", "blank"}, 1);
  if (eval.failed()) return {};
  if (!bound[0].is_string())
    return eval.fail(at, fmt::format("'indent' takes a text, got a {}", type_name(bound[0])));
  Text indentation;
  if (bound[1].is_string()) {
    indentation = *bound[1].text;
  } else {
    const int64_t width = bound[1].is_integer() ? bound[1].as_integer() : 4;
    if (width > 1000) return eval.fail(at, "'indent': expected a width of at most 1000");
    append(indentation, std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '),
           Origin::kTemplate);
  }
  const bool first = !bound[2].is(Type::kMissing) && is_true(bound[2]);
  const bool blank = !bound[3].is(Type::kMissing) && is_true(bound[3]);
  if (!eval.spend(at, size_of(bound[0]) / 8, weight(*bound[0].text))) return {};
  Text with_break = *bound[0].text;
  append(with_break, "\n", Origin::kTemplate);
  const std::vector<Text> lines = split_lines(with_break, false);
  const auto count = static_cast<int64_t>(lines.size());
  constexpr int64_t kLineBytes = 112;  // a text of its own
  const int64_t added = count * (weight(indentation) + kLineBytes);
  if (!eval.spend(at, count, added + weight(*bound[0].text) * 2)) return {};
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) append(out, "\n", Origin::kTemplate);
    if (i == 0 ? first : blank || !lines[i].bytes.empty()) append(out, indentation);
    append(out, lines[i]);
  }
  return eval.arena().string(std::move(out));
}

Text separator_of(const Value& value, std::string_view usual) {
  if (value.is_string()) return *value.text;
  return Text{std::string(usual), {{usual.size(), Origin::kMessage}}};
}

Value filter_tojson(Evaluator& eval, const Expr& at, Arguments& args) {
  const auto bound =
      bind(eval, at, args, {"x", "ensure_ascii", "indent", "separators", "sort_keys"}, 1);
  if (eval.failed()) return {};
  JsonStyle style;
  style.ensure_ascii = !bound[1].is(Type::kMissing) && is_true(bound[1]);
  style.sort_keys = !bound[4].is(Type::kMissing) && is_true(bound[4]);
  if (bound[2].is_integer()) {
    const int64_t indent = bound[2].as_integer();
    if (indent > 100) return eval.fail(at, "'tojson': expected an indent of at most 100");
    style.indent = static_cast<int>(std::max<int64_t>(indent, 0));
  } else if (!bound[2].is(Type::kMissing) && !bound[2].is(Type::kNone)) {
    return eval.fail(at, "'tojson': expected an integer indent");
  }
  Value item;
  Value key;
  if (bound[3].is(Type::kTuple) || bound[3].is(Type::kList)) {
    if (bound[3].list->items.size() != 2) return eval.fail(at, "'tojson': expected two separators");
    item = bound[3].list->items[0];
    key = bound[3].list->items[1];
  }
  style.item_separator = separator_of(item, style.indent >= 0 ? "," : ", ");
  style.key_separator = separator_of(key, ": ");
  return to_json(eval, at, bound[0], style);
}

constexpr FilterEntry kFilters[] = {
    {"upper", filter_upper},           {"lower", filter_lower},     {"title", filter_title},
    {"capitalize", filter_capitalize}, {"trim", filter_trim},       {"string", filter_string},
    {"replace", filter_replace},       {"default", filter_default}, {"d", filter_default},
    {"length", filter_length},         {"count", filter_length},    {"int", filter_int},
    {"float", filter_float},           {"abs", filter_abs},         {"round", filter_round},
    {"indent", filter_indent},         {"tojson", filter_tojson},
};

}  // namespace

Callable find_filter(std::string_view name) {
  for (const FilterEntry& entry : kFilters) {
    if (entry.name == name) return entry.callable;
  }
  return find_sequence_filter(name);
}

}  // namespace markbase::tokenizer::jinja
