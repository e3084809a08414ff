#include "cli/chat_messages.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "cli/json_fields.h"
#include "cli/json_lines.h"
#include "cli/json_slice.h"

namespace markbase::cli {
namespace {

Result<std::string> content_of(const base::Json* content, bool may_be_absent) {
  if (content == nullptr && may_be_absent) return std::string();
  if (content != nullptr && content->is_string()) return content->get<std::string>();
  if (content == nullptr || !content->is_array()) {
    return base::usage_error("\"content\": expected a text or a list of parts, got {}",
                             content == nullptr ? "nothing" : content->type_name());
  }
  // Templates differ in what they put between parts.
  if (content->size() != 1) {
    return base::usage_error("\"content\": expected one part, got {}", content->size());
  }
  const base::Json& part = content->front();
  if (!part.is_object()) {
    return base::usage_error("\"content\": expected a part that is an object, got {}",
                             part.type_name());
  }
  const JsonFields fields(part);
  MB_ASSIGN(const std::optional<std::string> type, fields.text("type"));
  if (type != "text") {
    return base::usage_error(
        "\"content\": expected a part of type text, got {}: this build takes no pictures, sound or "
        "video yet",
        type.value_or("one without a type"));
  }
  static constexpr std::string_view kKeys[] = {"type", "text"};
  MB_TRY(check_keys(part, kKeys));
  MB_ASSIGN(const std::optional<std::string> text, fields.text("text"));
  if (!text) return base::usage_error("\"content\": expected a \"text\" in a part, got none");
  return *text;
}

// Integers beyond 64 bits have become floats.
bool has_lost_digits(const base::Json& json) {
  constexpr double kLeast = 0x1p63;
  if (json.is_number_float()) return std::abs(json.get<double>()) >= kLeast;
  return json.is_structured() && std::any_of(json.begin(), json.end(), has_lost_digits);
}

std::string arguments_text(const base::Json& arguments, std::string_view written) {
  if (arguments.is_string()) return arguments.get<std::string>();
  if (written.empty() || !has_lost_digits(arguments)) return base::dump_json(arguments);
  return std::string(written);
}

Result<ToolCall> call_of(const base::Json& json, std::string_view written) {
  if (!json.is_object()) {
    return base::usage_error("\"tool_calls\": expected objects, got {}", json.type_name());
  }
  static constexpr std::string_view kKeys[] = {"id", "type", "function"};
  MB_TRY(check_keys(json, kKeys));
  const JsonFields call(json);
  MB_ASSIGN(const std::optional<std::string> id, call.text("id"));
  MB_ASSIGN(const std::optional<std::string> type, call.text("type"));
  if (type.value_or("function") != "function") {
    return base::usage_error("\"type\": expected \"function\", got \"{}\"", *type);
  }
  const base::Json* function = call.find("function");
  if (function == nullptr || !function->is_object()) {
    return base::usage_error("\"function\": expected an object in a call of a tool");
  }
  static constexpr std::string_view kFunctionKeys[] = {"name", "arguments"};
  MB_TRY(check_keys(*function, kFunctionKeys));
  MB_ASSIGN(const std::optional<std::string> name, JsonFields(*function).text("name"));
  if (!name) return base::usage_error("\"function\": expected a \"name\", got none");
  ToolCall result{*name, "{}", id.value_or("")};
  if (const base::Json* arguments = JsonFields(*function).find("arguments")) {
    result.arguments =
        arguments_text(*arguments, json_member(json_member(written, "function"), "arguments"));
  }
  return result;
}

// Of a list of slices; "" where there is none.
std::string_view at(const std::vector<std::string_view>& slices, size_t index) {
  return index < slices.size() ? slices[index] : std::string_view();
}

Result<Message> message_of(const base::Json& json, std::string_view written) {
  if (!json.is_object()) return base::usage_error("expected an object, got {}", json.type_name());
  static constexpr std::string_view kKeys[] = {"role", "content", "reasoning_content", "tool_calls",
                                               "tool_call_id"};
  MB_TRY(check_keys(json, kKeys));
  const JsonFields fields(json);
  Message message;
  MB_ASSIGN(const std::optional<std::string> role, fields.text("role"));
  if (!role) return base::usage_error("\"role\": expected a text, got nothing");
  message.role = *role;
  MB_ASSIGN(const base::Json* calls, fields.list("tool_calls"));
  if (calls != nullptr) {
    if (message.role != "assistant") {
      return base::usage_error("\"tool_calls\": expected in a message of the assistant");
    }
    const auto slices = json_items(json_member(written, "tool_calls"));
    for (const base::Json& item : *calls) {
      MB_ASSIGN(ToolCall call, call_of(item, at(slices, message.tool_calls.size())));
      message.tool_calls.push_back(std::move(call));
    }
  }
  MB_ASSIGN(message.content, content_of(fields.find("content"), !message.tool_calls.empty()));
  MB_ASSIGN(const std::optional<std::string> reasoning, fields.text("reasoning_content"));
  message.reasoning = reasoning.value_or("");
  MB_ASSIGN(const std::optional<std::string> answered, fields.text("tool_call_id"));
  message.tool_call_id = answered.value_or("");
  return message;
}

}  // namespace

Result<std::vector<Message>> parse_messages(const base::Json& list, std::string_view written) {
  const std::vector<std::string_view> slices = json_items(written);
  std::vector<Message> messages;
  for (const base::Json& item : list) {
    Result<Message> message = message_of(item, at(slices, messages.size()));
    if (!message.ok()) {
      return base::usage_error("\"messages\": message {}: {}", messages.size(),
                               message.error().message);
    }
    messages.push_back(std::move(*message));
  }
  if (messages.empty()) return base::usage_error("\"messages\": expected at least one, got none");
  return messages;
}

}  // namespace markbase::cli
