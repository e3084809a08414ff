// The rendered text of a conversation, and that text to ids.
//
// A chat template yields segments that remember who wrote them. Control tokens are only made from
// what the template wrote, never from the text of a message.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace markbase::tokenizer {

struct ChatMessage {
  std::string role;
  std::string content;
};

enum class SegmentOrigin : uint8_t { kTemplate, kMessage };

struct ChatSegment {
  std::string text;
  SegmentOrigin origin = SegmentOrigin::kTemplate;
};

// The segments as one text.
std::string rendered_text(std::span<const ChatSegment> segments);

// The ids of the rendered text, with exactly one BOS in front whether or not the template wrote it
// (none if the vocabulary has none). Equal to the ids of the text as a whole, special tokens
// parsed, unless a message spells a control token.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const ChatSegment> segments);

// Without white space at both ends, as Python's str.strip() has it (U+0085, U+00A0 and U+3000 are
// white space; U+200B and U+FEFF are not).
std::string_view strip(std::string_view text);

}  // namespace markbase::tokenizer
