// Case mappings of texts.
#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "tokenizer/jinja/text.h"
#include "tokenizer/jinja/unicode.h"
#include "tokenizer/utf8.h"

namespace markbase::tokenizer::jinja {
namespace {

struct CaseRun {
  char32_t first, last;
  uint32_t step;
  int32_t delta;
};
struct CaseSeveral {
  char32_t point;
  std::array<char32_t, 3> to;  // 0: none
};
struct PointRange {
  char32_t first, last;
};

#include "tokenizer/jinja/unicode_tables.inc"

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kFinalSigma = 0x3C2;

template <class Table>
auto row_of(const Table& table, char32_t c) {
  return std::partition_point(std::begin(table), std::end(table),
                              [c](const auto& row) { return row.last < c; });
}

// Appends what `c` becomes by the tables; false when they leave it alone.
bool append_mapped(std::span<const CaseRun> runs, std::span<const CaseSeveral> several, char32_t c,
                   std::string& out) {
  const auto run = row_of(runs, c);
  if (run != runs.end() && run->first <= c && (c - run->first) % run->step == 0) {
    append_scalar(static_cast<char32_t>(static_cast<int32_t>(c) + run->delta), out);
    return true;
  }
  const auto row = std::partition_point(several.begin(), several.end(),
                                        [c](const CaseSeveral& s) { return s.point < c; });
  if (row == several.end() || row->point != c) return false;
  for (const char32_t to : row->to) {
    if (to != 0) append_scalar(to, out);
  }
  return true;
}

bool has_case(char32_t c) {
  std::string ignored;
  return append_mapped(kUpperRuns, kUpperSeveral, c, ignored) ||
         append_mapped(kLowerRuns, kLowerSeveral, c, ignored);
}

// Marks and punctuation inside a word that the rule of the final sigma passes over.
bool passes_over(char32_t c) {
  return c == '\'' || c == '.' || c == ':' || c == 0xAD || c == 0xB7 || c == 0x2019 ||
         (c >= 0x300 && c <= 0x36F);
}

// A capital sigma is a final one where a letter stands before it and none after.
bool is_final_sigma(std::string_view bytes, size_t at) {
  size_t i = at;
  bool letter_before = false;
  while (i > 0) {
    --i;
    while (i > 0 && (static_cast<uint8_t>(bytes[i]) & 0xC0) == 0x80) --i;
    const char32_t c = decode_scalar(bytes, i).value;
    if (passes_over(c)) continue;
    letter_before = has_case(c);
    break;
  }
  for (i = at + 2; letter_before && i < bytes.size();) {
    const Scalar scalar = decode_scalar(bytes, i);
    i += scalar.length;
    if (!passes_over(scalar.value)) return !has_case(scalar.value);
  }
  return letter_before;
}

void append_case(std::string_view bytes, size_t at, const Scalar& scalar, Case target,
                 std::string& out) {
  const char32_t c = scalar.value;
  if (c < 0x80) {
    const bool lower = target == Case::kLower;
    const bool changes = lower ? c >= 'A' && c <= 'Z' : c >= 'a' && c <= 'z';
    out.push_back(static_cast<char>(changes ? c ^ 0x20u : c));
    return;
  }
  bool mapped = false;
  if (target == Case::kLower) {
    if (c == kCapitalSigma && is_final_sigma(bytes, at)) return append_scalar(kFinalSigma, out);
    mapped = append_mapped(kLowerRuns, kLowerSeveral, c, out);
  } else {
    if (target == Case::kTitle) mapped = append_mapped(kTitleRuns, kTitleSeveral, c, out);
    if (!mapped) mapped = append_mapped(kUpperRuns, kUpperSeveral, c, out);
  }
  if (!mapped) append_scalar(c, out);
}

// `target_of` says for each character, in order, which case it gets.
template <class TargetOf>
Text convert(const Text& text, TargetOf target_of) {
  const std::string_view bytes = text.bytes;
  Text out;
  out.bytes.reserve(bytes.size());
  size_t at = 0;
  for (const Run& run : text.runs) {
    while (at < run.end) {
      const Scalar scalar = decode_scalar(bytes, at);
      if (scalar.valid) {
        append_case(bytes, at, scalar, target_of(scalar.value), out.bytes);
      } else {
        out.bytes.append(bytes.substr(at, scalar.length));  // a message may hold any bytes
      }
      at += scalar.length;
    }
    out.runs.push_back({out.bytes.size(), run.origin});
  }
  return out;
}

}  // namespace

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  const auto row = row_of(kNotPrintable, c);
  return row == std::end(kNotPrintable) || c < row->first;
}

Text to_case(const Text& text, Case target) {
  return convert(text, [target](char32_t) { return target; });
}

Text capitalize(const Text& text) {
  bool first = true;
  return convert(
      text, [&](char32_t) { return std::exchange(first, false) ? Case::kTitle : Case::kLower; });
}

Text title_method(const Text& text) {
  bool in_word = false;
  return convert(text, [&](char32_t c) {
    return std::exchange(in_word, has_case(c)) ? Case::kLower : Case::kTitle;
  });
}

Text title_filter(const Text& text) {
  bool in_word = false;
  return convert(text, [&](char32_t c) {
    const bool parts = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    return std::exchange(in_word, !parts) ? Case::kLower : Case::kUpper;
  });
}

}  // namespace markbase::tokenizer::jinja
