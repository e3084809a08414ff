#include "tokenizer/chat_format.h"

#include <algorithm>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace markbase::tokenizer {
namespace {

bool is_space(const Scalar& scalar) {
  if (!scalar.valid) return false;
  const char32_t c = scalar.value;
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

class SegmentWriter {
 public:
  void add(std::string_view text, SegmentOrigin origin) {
    if (text.empty()) return;
    if (segments_.empty() || segments_.back().origin != origin) segments_.push_back({{}, origin});
    segments_.back().text.append(text);
  }
  void add_template(std::string_view text) { add(text, SegmentOrigin::kTemplate); }
  void add_message(std::string_view text) { add(text, SegmentOrigin::kMessage); }
  std::vector<ChatSegment> take() { return std::move(segments_); }

 private:
  std::vector<ChatSegment> segments_;
};

void add_role(const std::string& role, SegmentWriter& out) {
  if (role == "assistant") {
    out.add_template("model");
  } else if (role == "user" || role == "model" || role == "system") {
    out.add_template(role);
  } else {
    out.add_message(role);  // the caller's word, which must not forge a marker either
  }
}

void add_content(const ChatMessage& message, SegmentWriter& out) {
  if (!message.parts) return out.add_message(strip(message.content));
  for (const ContentPart& part : *message.parts) {
    if (part.is_image) {
      out.add_template("<start_of_image>");
    } else {
      out.add_message(strip(part.text));
    }
  }
}

Result<std::string> system_text(const ChatMessage& message) {
  if (!message.parts) return message.content;
  if (message.parts->empty() || message.parts->front().is_image) {
    return base::usage_error("messages: message 0 (system) is a list without a text in front");
  }
  return message.parts->front().text;
}

// Nothing for a kind of part that the format has no place for: the template passes over it.
Result<std::optional<ContentPart>> part_from_json(const base::Json& json, size_t message) {
  const auto is_text = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_string();
  };
  if (!is_text("type") || (json["type"] == "text" && !is_text("text"))) {
    return base::usage_error(
        "messages: message {} has a part {}, expected a type, and a text for type text", message,
        base::dump_json(json));
  }
  if (json["type"] == "image") return std::optional(ContentPart{true, {}});
  if (json["type"] == "text")
    return std::optional(ContentPart{false, json["text"].get<std::string>()});
  return std::optional<ContentPart>();
}

}  // namespace

Result<std::vector<ChatMessage>> messages_from_json(const base::Json& json) {
  if (!json.is_array()) {
    return base::usage_error("messages: got {}, expected a list", json.type_name());
  }
  std::vector<ChatMessage> messages;
  for (size_t i = 0; i < json.size(); ++i) {
    const base::Json& entry = json[i];
    if (!entry.is_object() || !entry.contains("role") || !entry["role"].is_string()) {
      return base::usage_error("messages: message {} has no 'role' that is a text", i);
    }
    ChatMessage message{entry["role"].get<std::string>(), {}};
    const base::Json content = entry.value("content", base::Json());
    if (content.is_string()) {
      message.content = content.get<std::string>();
    } else if (content.is_array()) {
      message.parts.emplace();
      for (const base::Json& item : content) {
        MB_ASSIGN(auto part, part_from_json(item, i));
        if (part) message.parts->push_back(std::move(*part));
      }
    } else {
      return base::usage_error("messages: message {} has content {}, expected a text or a list", i,
                               content.type_name());
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

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

bool has_gemma3_format(const Tokenizer& tokenizer) {
  for (const std::string_view marker : {"<start_of_turn>", "<end_of_turn>"}) {
    const auto id = tokenizer.find(marker);
    if (!id || tokenizer.kind(*id) != TokenKind::kControl) return false;
  }
  return true;
}

Result<std::vector<ChatSegment>> render_gemma3(std::span<const ChatMessage> messages,
                                               const ChatOptions& options) {
  if (messages.empty())
    return base::usage_error("messages: the list is empty, expected at least one message");
  SegmentWriter out;
  out.add_template("<bos>");
  const ChatMessage* system = messages[0].role == "system" ? &messages[0] : nullptr;
  std::string prefix;
  if (system) {
    MB_ASSIGN(prefix, system_text(*system));
  }
  const auto turns = messages.subspan(system ? 1 : 0);
  for (size_t i = 0; i < turns.size(); ++i) {
    const ChatMessage& turn = turns[i];
    if ((turn.role == "user") != (i % 2 == 0)) {
      return base::usage_error(
          "messages: message {} has role '{}', expected {}: roles must alternate user/assistant, "
          "beginning with user",
          i + (system ? 1 : 0), turn.role, i % 2 == 0 ? "user" : "assistant");
    }
    out.add_template("<start_of_turn>");
    add_role(turn.role, out);
    out.add_template("\n");
    if (i == 0 && system) {
      out.add_message(prefix);
      out.add_template("\n\n");
    }
    add_content(turn, out);
    out.add_template("<end_of_turn>\n");
  }
  if (options.add_generation_prompt) out.add_template("<start_of_turn>model\n");
  return out.take();
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
