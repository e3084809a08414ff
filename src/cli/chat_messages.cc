#include "cli/chat_messages.h"

#include <algorithm>

#include "base/error.h"
#include "cli/json_fields.h"
#include "cli/json_lines.h"

namespace markbase::cli {
namespace {

constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool"};

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

Result<ToolCall> call_of(const base::Json& json) {
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
        arguments->is_string() ? arguments->get<std::string>() : base::dump_json(*arguments);
  }
  return result;
}

Result<Message> message_of(const base::Json& json) {
  if (!json.is_object()) return base::usage_error("expected an object, got {}", json.type_name());
  static constexpr std::string_view kKeys[] = {"role", "content", "reasoning_content", "tool_calls",
                                               "tool_call_id"};
  MB_TRY(check_keys(json, kKeys));
  const JsonFields fields(json);
  Message message;
  MB_ASSIGN(const std::optional<std::string> role, fields.text("role"));
  if (!role || std::ranges::find(kRoles, *role) == std::end(kRoles)) {
    return base::usage_error("\"role\": expected {}, got {}", fmt::join(kRoles, ", "),
                             role ? "\"" + *role + "\"" : "nothing");
  }
  message.role = *role;
  MB_ASSIGN(const base::Json* calls, fields.list("tool_calls"));
  if (calls != nullptr) {
    if (message.role != "assistant") {
      return base::usage_error("\"tool_calls\": expected in a message of the assistant");
    }
    for (const base::Json& item : *calls) {
      MB_ASSIGN(ToolCall call, call_of(item));
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

Result<std::vector<Message>> parse_messages(const base::Json& list) {
  std::vector<Message> messages;
  for (const base::Json& item : list) {
    Result<Message> message = message_of(item);
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
