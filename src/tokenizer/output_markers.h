// The control tokens that a model's output is structured by, found in ids and in text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "tokenizer/tokenizer.h"

namespace markbase::tokenizer {

// What a control token means in the output of a model.
enum class Marker : uint8_t {
  kChannelOpen,   // <|channel>
  kChannelClose,  // <channel|>
  kCallOpen,      // <|tool_call>
  kCallClose,     // <tool_call|>
  kQuote,         // <|"|>
  kEnd,           // ends the answer: <turn|>, <|tool_response>, <eos>, ...
  kHidden,        // not for the reader: <bos>, <pad>, the beginning of a turn, places of media
};

// The markers that a vocabulary has as control tokens; any other control token is shown as it is
// spelled. Immutable, and independent of the tokenizer once made.
class MarkerSet {
 public:
  explicit MarkerSet(const Tokenizer& tokenizer);

  struct Entry {
    std::string_view spelling;  // of static storage
    Marker marker = Marker::kHidden;
    int32_t id = -1;
  };
  // Null where the id is ordinary text.
  const Entry* by_id(int32_t id) const;
  const std::vector<Entry>& entries() const { return entries_; }
  // Whether the vocabulary has thoughts and calls.
  bool has_channels() const { return has_channels_; }

  // The marker that `text` begins with, or null; then `may_grow` tells whether all of `text` is the
  // beginning of one. No marker is the beginning of another.
  const Entry* match(std::string_view text, bool* may_grow) const;

 private:
  std::vector<Entry> entries_;
  bool has_channels_ = false;
};

// Finds spelled markers in text that comes in pieces, cut anywhere, even inside a character.
// Ill-formed UTF-8 becomes U+FFFD; the text handed on always ends between characters. Holds back at
// most the beginning of one marker.
class MarkerScanner {
 public:
  // `markers` must outlive the scanner.
  explicit MarkerScanner(const MarkerSet& markers) : markers_(&markers) {}

  using OnText = base::FunctionRef<void(std::string_view)>;
  using OnMarker = base::FunctionRef<void(const MarkerSet::Entry&)>;
  void push(std::string_view bytes, OnText on_text, OnMarker on_marker);
  // What was held back is text.
  void finish(OnText on_text);

 private:
  // Hands on all of held_ but a last beginning of a marker.
  void scan(OnText on_text, OnMarker on_marker);

  const MarkerSet* markers_;
  std::string bytes_;  // of a character that is not complete
  std::string held_;   // whole characters
};

}  // namespace markbase::tokenizer
