// Reads what stands between <|tool_call> and <tool_call|>.
//
//   call   := "call:" name "{" [pair ("," pair)*] "}"
//   pair   := key ":" value        key := bare text | Q text Q | JSON string
//   value  := Q text Q | object | array | number | true | false | null | bare text | JSON string
//   object := "{" [pair ("," pair)*] "}"       array := "[" [value ("," value)*] "]"
//
// Q is the token <|"|>; the text between two is raw. White space around punctuation is skipped.
// Also taken: True, False and None; a comma too many at the end; an absent value, as an empty
// string. Bare text that is no number or literal, NaN included, is a string up to the next "," "}"
// or "]" outside nested brackets. A bare key ends at the first ":" that a value with a beginning of
// its own follows (Q, a bracket, a JSON string, a number, a literal), else at its first ":".
#pragma once

#include <string>
#include <string_view>

#include "markbase/options.h"
#include "tokenizer/output_markers.h"

namespace markbase::tokenizer {

// The text of a call with its control tokens told apart from text that spells them: a byte that
// occurs in no UTF-8, then the marker's number.
class CallText {
 public:
  void add_text(std::string_view text) { bytes_.append(text); }
  // `entry` of `markers`.
  void add_marker(const MarkerSet::Entry& entry, const MarkerSet& markers);
  void clear() { bytes_.clear(); }
  size_t size() const { return bytes_.size(); }
  std::string_view bytes() const { return bytes_; }
  // As it is written with markers spelled.
  std::string spelled(const MarkerSet& markers) const { return spelled(bytes_, markers); }
  static std::string spelled(std::string_view bytes, const MarkerSet& markers);

  // A marker is this byte and its place in the set.
  static constexpr char kMarkerByte = '\xFF';
  static constexpr size_t kMarkerBytes = 2;

 private:
  std::string bytes_;
};

struct CallResult {
  enum class Status {
    kComplete,
    kUnclosed,  // as it would be with the missing closing brackets at the end
    kBroken,
  };
  Status status = Status::kBroken;
  ToolCall call;    // not of a broken one
  std::string why;  // it is not complete
};

// Linear in the text but for the order of duplicate keys (n log n), of which the last value counts.
// Brackets nested deeper than 100 are refused.
CallResult parse_call(const CallText& text, const MarkerSet& markers);

}  // namespace markbase::tokenizer
