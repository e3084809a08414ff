#include "tokenizer/jinja/text.h"

#include <algorithm>
#include <cstring>

#include "tokenizer/utf8.h"

namespace markbase::tokenizer::jinja {
namespace {

bool is_one_of(char32_t c, std::string_view chars) {
  for (size_t i = 0; i < chars.size();) {
    const Scalar scalar = decode_scalar(chars, i);
    if (scalar.value == c) return true;
    i += scalar.length;
  }
  return false;
}

// The start of the character that ends before byte `end`.
size_t previous_start(std::string_view bytes, size_t end) {
  size_t start = end - 1;
  while (start > 0 && (static_cast<uint8_t>(bytes[start]) & 0xC0) == 0x80) --start;
  return start;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

struct Cut {
  size_t begin = 0;
  size_t end = 0;
};

// The pieces between cuts, which are in order.
std::vector<Text> pieces_between(const Text& text, const std::vector<Cut>& cuts) {
  std::vector<Text> pieces;
  pieces.reserve(cuts.size() + 1);
  size_t begin = 0;
  for (const Cut& cut : cuts) {
    pieces.push_back(sub_text(text, begin, cut.begin));
    begin = cut.end;
  }
  pieces.push_back(sub_text(text, begin, text.bytes.size()));
  return pieces;
}

std::vector<Cut> cuts_from_right(std::string_view bytes, std::string_view separator,
                                 int64_t max_splits) {
  std::vector<Cut> cuts;
  size_t end = bytes.size();
  while (static_cast<int64_t>(cuts.size()) < max_splits && end >= separator.size()) {
    const size_t at = bytes.rfind(separator, end - separator.size());
    if (at == std::string_view::npos) break;
    cuts.push_back({at, at + separator.size()});
    end = at;
  }
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

std::vector<Cut> cuts_from_left(std::string_view bytes, std::string_view separator,
                                int64_t max_splits) {
  const Finder finder(separator);
  std::vector<Cut> cuts;
  size_t from = 0;
  while (max_splits < 0 || static_cast<int64_t>(cuts.size()) < max_splits) {
    const size_t at = finder.next(bytes, from);
    if (at == std::string_view::npos) break;
    from = at + separator.size();
    cuts.push_back({at, from});
  }
  return cuts;
}

std::vector<Cut> words_of(std::string_view bytes) {
  std::vector<Cut> words;
  bool in_word = false;
  for (size_t i = 0; i < bytes.size();) {
    const Scalar scalar = decode_scalar(bytes, i);
    const bool space = is_space(scalar.value);
    if (!space && !in_word) words.push_back({i, 0});
    i += scalar.length;
    if (!space) words.back().end = i;
    in_word = !space;
  }
  return words;
}

}  // namespace

void append(Text& out, std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  out.bytes.append(bytes);
  if (!out.runs.empty() && out.runs.back().origin == origin) {
    out.runs.back().end = out.bytes.size();
  } else {
    out.runs.push_back({out.bytes.size(), origin});
  }
}

void append(Text& out, const Text& text) { append(out, text, 0, text.bytes.size()); }

void append(Text& out, const Text& text, size_t begin, size_t end) {
  if (begin >= end) return;
  const std::string_view bytes = text.bytes;
  auto run = std::upper_bound(text.runs.begin(), text.runs.end(), begin,
                              [](size_t at, const Run& r) { return at < r.end; });
  while (begin < end) {
    const size_t stop = std::min(end, run->end);
    append(out, bytes.substr(begin, stop - begin), run->origin);
    begin = stop;
    ++run;
  }
}

Text sub_text(const Text& text, size_t begin, size_t end) {
  Text out;
  append(out, text, begin, end);
  return out;
}

Origin origin_at(const Text& text, size_t at) {
  const auto run = std::upper_bound(text.runs.begin(), text.runs.end(), at,
                                    [](size_t a, const Run& r) { return a < r.end; });
  return run == text.runs.end() ? Origin::kMessage : run->origin;
}

int64_t length(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

size_t offset_of(std::string_view bytes, int64_t index) {
  size_t at = 0;
  while (index > 0 && at < bytes.size()) {
    ++at;
    while (at < bytes.size() && (static_cast<uint8_t>(bytes[at]) & 0xC0) == 0x80) ++at;
    --index;
  }
  return at;
}

Finder::Finder(std::string_view needle) : needle_(needle), fallback_(needle.size(), 0) {
  uint32_t same = 0;
  for (size_t i = 1; i < needle.size(); ++i) {
    while (same > 0 && needle[same] != needle[i]) same = fallback_[same - 1];
    if (needle[same] == needle[i]) ++same;
    fallback_[i] = same;
  }
}

size_t Finder::next(std::string_view text, size_t from) const {
  if (from > text.size() || text.size() - from < needle_.size()) return std::string_view::npos;
  if (needle_.empty()) return from;
  size_t same = 0;
  for (size_t i = from; i < text.size(); ++i) {
    while (same > 0 && needle_[same] != text[i]) same = fallback_[same - 1];
    if (same == 0) {
      i = text.find(needle_[0], i);
      if (i == std::string_view::npos) break;
    }
    if (++same == needle_.size()) return i + 1 - same;
  }
  return std::string_view::npos;
}

size_t find_bytes(std::string_view text, std::string_view needle) {
  if (needle.size() > text.size()) return std::string_view::npos;
  return Finder(needle).next(text, 0);
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

Text strip(const Text& text, std::optional<std::string_view> chars, Ends ends) {
  const std::string_view bytes = text.bytes;
  const auto goes = [&](char32_t c) { return chars ? is_one_of(c, *chars) : is_space(c); };
  size_t begin = 0;
  size_t end = bytes.size();
  while (ends != Ends::kRight && begin < end) {
    const Scalar scalar = decode_scalar(bytes, begin);
    if (!goes(scalar.value)) break;
    begin += scalar.length;
  }
  while (ends != Ends::kLeft && begin < end) {
    const size_t start = previous_start(bytes, end);
    if (!goes(decode_scalar(bytes, start).value)) break;
    end = start;
  }
  return sub_text(text, begin, end);
}

std::vector<Text> split(const Text& text, std::string_view separator, int64_t max_splits,
                        bool from_right) {
  // Without a limit both ends may give different cuts only where separators overlap themselves.
  const int64_t limit = max_splits < 0 ? INT64_MAX : max_splits;
  return pieces_between(text, from_right ? cuts_from_right(text.bytes, separator, limit)
                                         : cuts_from_left(text.bytes, separator, max_splits));
}

std::vector<Text> split_at_space(const Text& text, int64_t max_splits, bool from_right) {
  std::vector<Cut> words = words_of(text.bytes);
  // What the limit leaves together keeps its space: inside, and at the far end of the text.
  const size_t most = static_cast<size_t>(std::max<int64_t>(max_splits, 0)) + 1;
  if (max_splits >= 0 && words.size() >= most) {
    if (from_right) {
      words.erase(words.begin(), words.end() - static_cast<std::ptrdiff_t>(most));
      words.front().begin = 0;
    } else {
      words.resize(most);
      words.back().end = text.bytes.size();
    }
  }
  std::vector<Text> out;
  out.reserve(words.size());
  for (const Cut& word : words) out.push_back(sub_text(text, word.begin, word.end));
  return out;
}

std::vector<Text> split_lines(const Text& text, bool keep_ends) {
  const std::string_view bytes = text.bytes;
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t i = 0; i < bytes.size();) {
    const Scalar scalar = decode_scalar(bytes, i);
    const size_t line_end = i;
    i += scalar.length;
    if (!is_line_break(scalar.value)) continue;
    if (scalar.value == '\r' && i < bytes.size() && bytes[i] == '\n') ++i;
    lines.push_back(sub_text(text, begin, keep_ends ? i : line_end));
    begin = i;
  }
  if (begin < bytes.size()) lines.push_back(sub_text(text, begin, bytes.size()));
  return lines;
}

Text replace(const Text& text, std::string_view old, const Text& with, int64_t count) {
  const std::string_view bytes = text.bytes;
  const Finder finder(old);
  Text out;
  size_t begin = 0;
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    size_t at = begin;
    if (!old.empty()) {
      at = finder.next(bytes, begin);
      if (at == std::string_view::npos) break;
    } else if (done > 0) {
      if (begin >= bytes.size()) break;
      at = begin + decode_scalar(bytes, begin).length;
    }
    append(out, text, begin, at);
    append(out, with);
    begin = at + old.size();
  }
  append(out, text, begin, bytes.size());
  return out;
}

}  // namespace markbase::tokenizer::jinja
