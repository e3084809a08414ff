#include "tokenizer/chat_format.h"

#include <algorithm>

#include "tokenizer/jinja/text.h"
#include "tokenizer/utf8.h"

namespace markbase::tokenizer {
namespace {

bool is_space(const Scalar& scalar) { return scalar.valid && jinja::is_space(scalar.value); }

}  // namespace

std::string_view strip(std::string_view text) {
  while (!text.empty()) {
    const Scalar scalar = decode_scalar(text, 0);
    if (!is_space(scalar)) break;
    text.remove_prefix(scalar.length);
  }
  while (!text.empty()) {
    size_t start = text.size() - 1;
    const size_t limit = text.size() > 4 ? text.size() - 4 : 0;
    while (start > limit && (static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
    const Scalar scalar = decode_scalar(text, start);
    if (!is_space(scalar) || start + scalar.length != text.size()) break;
    text.remove_suffix(scalar.length);
  }
  return text;
}

std::string rendered_text(std::span<const ChatSegment> segments) {
  std::string text;
  for (const ChatSegment& segment : segments) text.append(segment.text);
  return text;
}

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer,
                                 std::span<const ChatSegment> segments) {
  std::vector<TextSegment> parts;
  parts.reserve(segments.size());
  for (const ChatSegment& segment : segments) {
    parts.push_back({segment.text, segment.origin == SegmentOrigin::kTemplate});
  }
  std::vector<int32_t> ids = tokenizer.encode_segments(parts, false);
  const int32_t bos = tokenizer.bos_id();
  if (bos < 0) return ids;
  const auto first = std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id != bos; });
  ids.erase(ids.begin(), first);
  ids.insert(ids.begin(), bos);
  return ids;
}

}  // namespace markbase::tokenizer
