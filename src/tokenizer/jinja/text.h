// What Python's str does, on texts that know who wrote them. Positions are code points.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/value.h"

namespace markbase::tokenizer::jinja {

// Grows a text; what is appended keeps its origin.
void append(Text& out, std::string_view bytes, Origin origin);
void append(Text& out, const Text& text);
// Bytes [begin, end) of `text`, on character borders.
void append(Text& out, const Text& text, size_t begin, size_t end);
Text sub_text(const Text& text, size_t begin, size_t end);

// The run that byte `at` belongs to.
Origin origin_at(const Text& text, size_t at);

// The number of code points.
int64_t length(std::string_view bytes);
// The byte offset of code point `index`, which must be at most length().
size_t offset_of(std::string_view bytes, int64_t index);

// Looks for one needle in any number of places: linear in both lengths whatever they hold, because
// a template may bring the pair that makes a plain search quadratic (Knuth, Morris, Pratt). The
// needle must outlive it.
class Finder {
 public:
  explicit Finder(std::string_view needle);
  // The first at or after byte `from`, npos if there is none. An empty needle is at `from`.
  size_t next(std::string_view text, size_t from) const;

 private:
  std::string_view needle_;
  // For each prefix of the needle: its longest proper suffix that the needle begins with.
  std::vector<uint32_t> fallback_;
};
// The first `needle` in `text`, npos if there is none; at once where it is too long to be there.
size_t find_bytes(std::string_view text, std::string_view needle);

// Python's str.isspace() of one character.
bool is_space(char32_t c);

// Which ends strip() works at.
enum class Ends : uint8_t { kBoth, kLeft, kRight };
// Without characters of `chars` at the ends; without `chars`, without white space.
Text strip(const Text& text, std::optional<std::string_view> chars, Ends ends);

// str.split, rsplit, splitlines. max_splits < 0: no limit. The separator is not empty.
std::vector<Text> split(const Text& text, std::string_view separator, int64_t max_splits,
                        bool from_right);
std::vector<Text> split_at_space(const Text& text, int64_t max_splits, bool from_right);
std::vector<Text> split_lines(const Text& text, bool keep_ends);

// str.replace; count < 0: all. An empty `old` stands before every character and at the end.
Text replace(const Text& text, std::string_view old, const Text& with, int64_t count);

// Full case mappings. A letter keeps its origin, however many become of it.
enum class Case : uint8_t { kUpper, kLower, kTitle };
Text to_case(const Text& text, Case target);
// str.capitalize and str.title; the filter `title` begins words after white space and -({[< only.
Text capitalize(const Text& text);
Text title_method(const Text& text);
Text title_filter(const Text& text);

}  // namespace markbase::tokenizer::jinja
