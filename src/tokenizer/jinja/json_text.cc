// The filter tojson.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/utf8.h"

namespace markbase::tokenizer::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Evaluator& eval, const Expr& at, const JsonStyle& style)
      : eval_(eval), at_(at), style_(style) {}

  void write(const Value& value, int depth) {
    if (depth > kMaxValueDepth) {
      eval_.fail(at_, "tojson: nested too deep");
      return;
    }
    if (!eval_.spend(at_, 1, 8)) return;
    switch (value.type) {
      case Type::kNone:
        return plain("null");
      case Type::kBool:
        return plain(value.boolean ? "true" : "false");
      case Type::kInt:
        return plain(std::to_string(value.integer));
      case Type::kBigInt:
        return plain(value.view());
      case Type::kFloat:
        return plain(number(value.real));
      case Type::kString:
        return string(*value.text);
      case Type::kList:
      case Type::kTuple:
        return list(value.list->items, depth);
      case Type::kDict:
        return dict(*value.dict, depth);
      default:
        eval_.fail(at_, fmt::format("tojson: a {} has no JSON", type_name(value)));
    }
  }
  Text take() { return std::move(out_); }

 private:
  void plain(std::string_view bytes) { append(out_, bytes, Origin::kMessage); }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_text(value);
  }

  void string(const Text& text) {
    if (!eval_.spend(at_, static_cast<int64_t>(text.bytes.size()) / 8, weight(text))) return;
    plain("\"");
    size_t at = 0;
    std::string part;
    for (const Run& run : text.runs) {
      part.clear();
      while (at < run.end) {
        const Scalar scalar = decode_scalar(text.bytes, at);
        letter(scalar.valid ? scalar.value : char32_t{0x3F},
               std::string_view(text.bytes).substr(at, scalar.length), part);
        at += scalar.length;
      }
      append(out_, part, run.origin);
    }
    plain("\"");
  }

  void letter(char32_t c, std::string_view bytes, std::string& out) const {
    constexpr std::string_view kNamed = "\"\\\n\r\t\b\f";
    constexpr std::string_view kNames = "\"\\nrtbf";
    if (c < 0x80 && kNamed.find(static_cast<char>(c)) != kNamed.npos) {
      out += '\\';
      out += kNames[kNamed.find(static_cast<char>(c))];
    } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7E && c < 0x10000)) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else if (style_.ensure_ascii && c >= 0x10000) {
      const uint32_t rest = c - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    } else {
      out.append(bytes);
    }
  }

  void new_line(int depth) {
    if (style_.indent < 0) return;
    const int width = style_.indent * depth;
    if (!eval_.spend(at_, 0, width)) return;
    plain("\n");
    plain(std::string(static_cast<size_t>(width), ' '));
  }

  void list(const std::vector<Value>& items, int depth) {
    if (items.empty()) return plain("[]");
    if (!eval_.spend(at_, 0, static_cast<int64_t>(items.size()) * weight(style_.item_separator)))
      return;
    plain("[");
    for (size_t i = 0; i < items.size() && !eval_.failed(); ++i) {
      if (i > 0) append(out_, style_.item_separator);
      new_line(depth + 1);
      write(items[i], depth + 1);
    }
    new_line(depth);
    plain("]");
  }

  void dict(const Dict& dict, int depth) {
    if (dict.items.empty()) return plain("{}");
    const int64_t separators = weight(style_.item_separator) + weight(style_.key_separator);
    if (!eval_.spend(at_, 0, static_cast<int64_t>(dict.items.size()) * separators)) return;
    std::vector<std::pair<Value, Value>> items = dict.items;
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
        return eval_.order(at_, a.first, b.first) < 0;
      });
    }
    plain("{");
    for (size_t i = 0; i < items.size() && !eval_.failed(); ++i) {
      if (i > 0) append(out_, style_.item_separator);
      new_line(depth + 1);
      key(items[i].first);
      append(out_, style_.key_separator);
      write(items[i].second, depth + 1);
    }
    new_line(depth);
    plain("}");
  }

  void key(const Value& key) {
    if (key.is_string()) return string(*key.text);
    plain("\"");
    write(key, 0);  // a number or a word: hashable
    plain("\"");
  }

  Evaluator& eval_;
  const Expr& at_;
  const JsonStyle& style_;
  Text out_;
};

}  // namespace

Value to_json(Evaluator& eval, const Expr& at, const Value& value, const JsonStyle& style) {
  JsonWriter writer(eval, at, style);
  writer.write(value, 0);
  return eval.failed() ? Value() : eval.arena().string(writer.take());
}

}  // namespace markbase::tokenizer::jinja
