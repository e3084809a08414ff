#include "tokenizer/jinja/lexer.h"

#include <algorithm>

#include "base/error.h"
#include "tokenizer/jinja/text.h"
#include "tokenizer/utf8.h"

namespace markbase::tokenizer::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

int digit_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (!failed_ && position_ < source_.size()) read_data();
    if (failed_) return base::bad_input("{}: {}", place_of(source_, error_at_), error_);
    add(TokenType::kEnd, "", source_.size());
    return std::move(tokens_);
  }

 private:
  void fail(size_t at, std::string what) {
    if (failed_) return;
    failed_ = true;
    error_at_ = at;
    error_ = std::move(what);
  }
  void add(TokenType type, std::string_view text, size_t at) {
    tokens_.push_back({type, std::string(text), static_cast<uint32_t>(at)});
  }
  bool at(std::string_view text) const { return source_.substr(position_).starts_with(text); }
  bool take(std::string_view text) {
    if (!at(text)) return false;
    position_ += text.size();
    return true;
  }
  void skip_space() {
    while (position_ < source_.size()) {
      const Scalar scalar = decode_scalar(source_, position_);
      if (!scalar.valid || !is_space(scalar.value)) break;
      position_ += scalar.length;
    }
  }
  // After a tag: whether the next text begins a line.
  void note_line_start() { line_starting_ = source_[position_ - 1] == '\n'; }

  // Text up to the next tag, then the tag.
  void read_data() {
    const size_t begin = position_;
    size_t tag = begin;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == source_.npos || tag + 1 >= source_.size()) {
        add(TokenType::kData, source_.substr(begin), begin);
        position_ = source_.size();
        return;
      }
      const char next = source_[tag + 1];
      if (next == '%' || next == '{' || next == '#') break;
    }
    const char kind = source_[tag + 1];
    position_ = tag + 2;
    const char sign = position_ < source_.size() ? source_[position_] : '\0';
    if (sign == '-' || sign == '+') ++position_;
    add_data(begin, tag, sign, kind == '{');
    if (kind == '#') return read_comment();
    if (kind == '%' && read_raw(tag)) return;
    add(kind == '{' ? TokenType::kVariableBegin : TokenType::kBlockBegin, "", tag);
    read_tag(kind == '{', tag);
  }

  void add_data(size_t begin, size_t end, char sign, bool is_variable) {
    std::string_view text = source_.substr(begin, end - begin);
    if (sign == '-') {
      text = text.substr(0, trimmed_size(text));
    } else if (sign != '+' && !is_variable) {
      const size_t line = text.rfind('\n') + 1;
      if ((line > 0 || line_starting_) && trimmed_size(text.substr(line)) == 0)
        text = text.substr(0, line);
    }
    if (!text.empty()) add(TokenType::kData, text, begin);
  }

  static size_t trimmed_size(std::string_view text) {
    size_t end = text.size();
    while (end > 0) {
      size_t start = end - 1;
      while (start > 0 && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
      const Scalar scalar = decode_scalar(text, start);
      if (!scalar.valid || !is_space(scalar.value)) break;
      end = start;
    }
    return end;
  }

  // "%}" with its signs: what follows is trimmed by them.
  bool take_block_end() {
    if (take("+%}")) return true;
    if (take("-%}")) {
      skip_space();
      return true;
    }
    if (!take("%}")) return false;
    take("\n");
    return true;
  }

  void read_comment() {
    const size_t begin = position_;
    const size_t end = source_.find("#}", begin);
    if (end == source_.npos) return fail(begin - 2, "a comment is not closed, expected '#}'");
    const char sign = end > begin ? source_[end - 1] : '\0';
    position_ = end + 2;
    if (sign == '-') {
      skip_space();
    } else if (sign != '+') {
      take("\n");
    }
    note_line_start();
  }

  // {% raw %}: all up to {% endraw %} is text. False: another tag.
  bool read_raw(size_t tag) {
    const size_t after_sign = position_;
    skip_space();
    if (!take("raw")) {
      position_ = after_sign;
      return false;
    }
    skip_space();
    if (take("-%}")) {
      skip_space();
    } else if (!take("%}")) {
      position_ = after_sign;
      return false;
    }
    note_line_start();
    const size_t begin = position_;
    for (size_t end = source_.find("{%", begin); end != source_.npos;
         end = source_.find("{%", end + 1)) {
      position_ = end + 2;
      const char sign = position_ < source_.size() ? source_[position_] : '\0';
      if (sign == '-' || sign == '+') ++position_;
      skip_space();
      if (!take("endraw")) continue;
      skip_space();
      if (!take_block_end()) continue;
      add_data(begin, end, sign, false);
      note_line_start();
      return true;
    }
    fail(tag, "{% raw %} is not closed, expected {% endraw %}");
    return true;
  }

  // The inside of a tag, with its end.
  void read_tag(bool is_variable, size_t tag) {
    std::string open;  // the brackets that are to be closed
    while (!failed_) {
      if (position_ >= source_.size())
        return fail(tag, is_variable ? "'{{' is not closed" : "'{%' is not closed");
      const size_t begin = position_;
      if (open.empty() && (is_variable ? take_variable_end() : take_block_end())) {
        add(is_variable ? TokenType::kVariableEnd : TokenType::kBlockEnd, "", begin);
        note_line_start();
        return;
      }
      skip_space();
      if (position_ == begin) read_token(open);
    }
  }

  bool take_variable_end() {
    if (take("-}}")) {
      skip_space();
      return true;
    }
    return take("}}");
  }

  void read_token(std::string& open) {
    const char c = source_[position_];
    if (is_digit(c)) return read_number();
    if (c == '\'' || c == '"') return read_string(c);
    if (is_name_start(c)) {
      const size_t begin = position_;
      while (position_ < source_.size() && is_name_part(source_[position_])) ++position_;
      return add(TokenType::kName, source_.substr(begin, position_ - begin), begin);
    }
    read_operator(open);
  }

  void read_operator(std::string& open) {
    constexpr std::string_view kLong[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kShort = "+-/*%~[](){}<>=.:|,;";
    const size_t begin = position_;
    for (const std::string_view op : kLong) {
      if (take(op)) return add(TokenType::kOperator, op, begin);
    }
    const char c = source_[begin];
    if (kShort.find(c) == kShort.npos) {
      const Scalar scalar = decode_scalar(source_, begin);
      return fail(begin,
                  fmt::format("unexpected character '{}'", source_.substr(begin, scalar.length)));
    }
    ++position_;
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) return fail(begin, fmt::format("unexpected '{}'", c));
      if (open.back() != c)
        return fail(begin, fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      open.pop_back();
    }
    add(TokenType::kOperator, source_.substr(begin, 1), begin);
  }

  // Digits with single underscores between them; false when there are none.
  bool take_digits(std::string& out, int base) {
    const size_t size = out.size();
    while (position_ < source_.size()) {
      size_t digit = position_;
      if (source_[digit] == '_' && out.size() > size) ++digit;
      if (digit >= source_.size() || digit_value(source_[digit]) >= base) break;
      out.push_back(source_[digit]);
      position_ = digit + 1;
    }
    return out.size() > size;
  }

  void read_number() {
    const size_t begin = position_;
    const char kind =
        begin + 1 < source_.size() ? static_cast<char>(source_[begin + 1] | 0x20) : ' ';
    std::string text;
    if (source_[begin] == '0' && (kind == 'x' || kind == 'o' || kind == 'b')) {
      position_ += 2;
      text = {'0', kind};
      if (!take_digits(text, kind == 'x' ? 16 : kind == 'o' ? 8 : 2))
        return fail(begin, "a number without digits");
      return add(TokenType::kInteger, text, begin);
    }
    take_digits(text, 10);
    // After a dot ("x.1.5") digits are an index, never a fraction.
    if ((begin == 0 || source_[begin - 1] != '.') && take_fraction(text))
      return add(TokenType::kFloat, text, begin);
    if (text[0] == '0' && text.find_first_not_of('0') != text.npos)
      return fail(begin, fmt::format("'{}': a decimal number must not begin with 0", text));
    add(TokenType::kInteger, text, begin);
  }

  bool take_fraction(std::string& text) {
    const size_t start = position_;
    const size_t size = text.size();
    bool found = false;
    if (take(".")) {
      text.push_back('.');
      found = position_ < source_.size() && is_digit(source_[position_]) && take_digits(text, 10);
      if (!found) {
        position_ = start;
        text.resize(size);
        return false;
      }
    }
    const size_t mantissa = position_;
    const size_t mantissa_size = text.size();
    if (take("e") || take("E")) {
      text.push_back('e');
      if (take("-"))
        text.push_back('-');
      else
        take("+");
      if (position_ < source_.size() && is_digit(source_[position_]) && take_digits(text, 10))
        return true;
      position_ = mantissa;
      text.resize(mantissa_size);
    }
    return found;
  }

  void read_string(char quote) {
    const size_t begin = position_;
    std::string out;
    for (++position_; position_ < source_.size();) {
      const char c = source_[position_++];
      if (c == quote) return add(TokenType::kString, out, begin);
      if (c != '\\') {
        out.push_back(c);
      } else if (position_ < source_.size()) {
        read_escape(out);
      }
    }
    fail(begin, "a text is not closed");
  }

  void read_escape(std::string& out) {
    constexpr std::string_view kNames = "\\'\"abfnrtv";
    constexpr std::string_view kValues = "\\'\"\a\b\f\n\r\t\v";
    const char c = source_[position_++];
    if (const size_t i = kNames.find(c); i != kNames.npos) return out.push_back(kValues[i]);
    if (c == '\n') return;  // the line goes on
    if (c == 'x') return read_code(out, 2, 2, 16);
    if (c == 'u') return read_code(out, 4, 4, 16);
    if (c == 'U') return read_code(out, 8, 8, 16);
    if (c == 'N') return fail(position_ - 2, "\\N{...} is not supported in a text");
    if (c >= '0' && c <= '7') {
      --position_;
      return read_code(out, 1, 3, 8);
    }
    out.push_back('\\');
    out.push_back(c);
  }

  void read_code(std::string& out, int least, int most, int base) {
    const size_t begin = position_;
    char32_t value = 0;
    int digits = 0;
    for (; digits < most && position_ < source_.size(); ++digits, ++position_) {
      const int digit = digit_value(source_[position_]);
      if (digit >= base) break;
      value = value * static_cast<char32_t>(base) + static_cast<char32_t>(digit);
    }
    if (digits < least || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
      return fail(begin, "an escape that is no character");
    append_scalar(value, out);
  }

  std::string_view source_;
  size_t position_ = 0;
  bool line_starting_ = true;
  bool failed_ = false;
  size_t error_at_ = 0;
  std::string error_;
  std::vector<Token> tokens_;
};

}  // namespace

std::string normalize_source(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
    } else {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

std::string place_of(std::string_view source, size_t offset) {
  const std::string_view before = source.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t line_start = before.rfind('\n') + 1;
  return fmt::format("line {}, column {}", line, length(before.substr(line_start)) + 1);
}

Result<std::vector<Token>> tokenize(std::string_view normalized) {
  // Each byte may become a token and a node, of some hundred bytes; no template is near this.
  constexpr size_t kMaxSourceBytes = size_t{1} << 20;
  if (normalized.size() > kMaxSourceBytes) {
    return base::bad_input("a template of {} bytes, expected at most {}", normalized.size(),
                           kMaxSourceBytes);
  }
  if (!is_valid_utf8(normalized)) return base::bad_input("the template is not UTF-8");
  return Lexer(normalized).run();
}

}  // namespace markbase::tokenizer::jinja
