// Messages to the prompt text of a model's chat format, and that text to ids.
//
// A format yields segments that remember who wrote them. Control tokens are only made from what the
// template wrote, never from the text of a message.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "markbase/result.h"
#include "tokenizer/tokenizer.h"

namespace markbase::tokenizer {

// One part of a message that is given as a list.
struct ContentPart {
  bool is_image = false;
  std::string text;  // of a text part
};

struct ChatMessage {
  std::string role;
  std::string content;
  // In place of `content` where the message came as a list.
  std::optional<std::vector<ContentPart>> parts = std::nullopt;
};

// A JSON list of {"role", "content"}, content a text or a list of {"type": "text", "text"} and
// {"type": "image"}; parts of other types are left out. Errors (kUsage) name the message.
Result<std::vector<ChatMessage>> messages_from_json(const base::Json& json);

enum class SegmentOrigin : uint8_t { kTemplate, kMessage };

struct ChatSegment {
  std::string text;
  SegmentOrigin origin = SegmentOrigin::kTemplate;
};

struct ChatOptions {
  bool add_generation_prompt = true;  // end with the opening of the model's turn
};

// True when the vocabulary has the turn markers of Gemma 3 as control tokens.
bool has_gemma3_format(const Tokenizer& tokenizer);

// <bos>, then <start_of_turn>ROLE\nCONTENT<end_of_turn>\n for each message, then
// <start_of_turn>model\n. Content is trimmed of Unicode white space; a leading system message is
// put in front of the first user text, untrimmed, with an empty line between. "assistant" is
// written "model". Errors (kUsage): no message; roles that do not alternate, beginning with user.
Result<std::vector<ChatSegment>> render_gemma3(std::span<const ChatMessage> messages,
                                               const ChatOptions& options);

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
