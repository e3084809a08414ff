#include "tokenizer/output_markers.h"

#include <algorithm>
#include <utility>

#include "tokenizer/utf8.h"
#include "tokenizer/vocabulary.h"

namespace markbase::tokenizer {
namespace {

constexpr std::pair<std::string_view, Marker> kMarkers[] = {
    {"<|channel>", Marker::kChannelOpen},
    {"<channel|>", Marker::kChannelClose},
    {"<|tool_call>", Marker::kCallOpen},
    {"<tool_call|>", Marker::kCallClose},
    {"<|\"|>", Marker::kQuote},
    {"<eos>", Marker::kEnd},
    {"<turn|>", Marker::kEnd},
    // The model hands over to the tool: what it would say next is made up.
    {"<|tool_response>", Marker::kEnd},
    {"<end_of_turn>", Marker::kEnd},
    {"<pad>", Marker::kHidden},
    {"<bos>", Marker::kHidden},
    {"<|turn>", Marker::kHidden},
    {"<start_of_turn>", Marker::kHidden},
    {"<|image>", Marker::kHidden},
    {"<|image|>", Marker::kHidden},
    {"<image|>", Marker::kHidden},
    {"<|audio>", Marker::kHidden},
    {"<|audio|>", Marker::kHidden},
    {"<audio|>", Marker::kHidden},
    {"<|video|>", Marker::kHidden},
    {"<start_of_image>", Marker::kHidden},
    {"<end_of_image>", Marker::kHidden},
    {"<image_soft_token>", Marker::kHidden},
};

}  // namespace

MarkerSet::MarkerSet(const Tokenizer& tokenizer) {
  for (const auto& [spelling, marker] : kMarkers) {
    const auto id = tokenizer.find(spelling);
    if (!id || !is_special(tokenizer.kind(*id))) continue;
    entries_.push_back({spelling, marker, *id});
    has_channels_ |= marker == Marker::kChannelOpen || marker == Marker::kCallOpen;
  }
}

const MarkerSet::Entry* MarkerSet::by_id(int32_t id) const {
  for (const Entry& entry : entries_) {
    if (entry.id == id) return &entry;
  }
  return nullptr;
}

const MarkerSet::Entry* MarkerSet::match(std::string_view text, bool* may_grow) const {
  *may_grow = false;
  for (const Entry& entry : entries_) {
    if (text.starts_with(entry.spelling)) return &entry;
    *may_grow |= entry.spelling.starts_with(text);
  }
  return nullptr;
}

void MarkerScanner::push(std::string_view bytes, OnText on_text, OnMarker on_marker) {
  bytes_.append(bytes);
  bytes_.erase(0, append_lossy(bytes_, false, held_));
  scan(on_text, on_marker);
}

void MarkerScanner::finish(OnText on_text) {
  append_lossy(bytes_, true, held_);
  bytes_.clear();
  if (!held_.empty()) on_text(held_);
  held_.clear();
}

void MarkerScanner::scan(OnText on_text, OnMarker on_marker) {
  const std::string_view text = held_;
  size_t shown = 0;
  size_t at = text.find('<');
  while (at != text.npos) {
    bool may_grow = false;
    const MarkerSet::Entry* entry = markers_->match(text.substr(at), &may_grow);
    if (entry == nullptr && may_grow) break;
    if (entry != nullptr) {
      if (at > shown) on_text(text.substr(shown, at - shown));
      on_marker(*entry);
      shown = at + entry->spelling.size();
    }
    at = text.find('<', entry != nullptr ? shown : at + 1);
  }
  const size_t end = std::min(at, text.size());
  if (end > shown) on_text(text.substr(shown, end - shown));
  held_.erase(0, end);
}

}  // namespace markbase::tokenizer
