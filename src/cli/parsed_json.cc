#include "cli/parsed_json.h"

#include "base/error.h"
#include "base/json.h"

namespace markbase::cli {
namespace {

std::string text_json(const std::string& text) { return base::dump_json(base::Json(text)); }

}  // namespace

std::string call_json(const ToolCall& call) {
  return fmt::format(R"({{"name":{},"arguments":{}}})", text_json(call.name), call.arguments);
}

std::string calls_json(std::span<const ToolCall> calls, const ToolDeclarations* tools) {
  std::string out = "[";
  for (const ToolCall& call : calls) {
    if (out.size() > 1) out += ',';
    out += fmt::format(R"({{"name":{},"arguments":{})", text_json(call.name), call.arguments);
    if (tools != nullptr) {
      out += R"(,"faults":)" + base::dump_json(base::Json(tools->faults(call)));
    }
    out += '}';
  }
  return out + "]";
}

std::string broken_calls_json(std::span<const BrokenCall> calls) {
  base::Json list = base::Json::array();
  for (const BrokenCall& call : calls) {
    list.push_back({{"text", call.text}, {"why", call.why}, {"truncated", call.truncated}});
  }
  return base::dump_json(list);
}

std::string parsed_json(const ParsedOutput& output, const ToolDeclarations* tools) {
  const bool no_content = output.content.empty() && !output.tool_calls.empty();
  std::string out =
      fmt::format(R"({{"reasoning":{},"content":{},"tool_calls":{},"finish_reason":{})",
                  output.reasoning.empty() ? "null" : text_json(output.reasoning),
                  no_content ? "null" : text_json(output.content),
                  calls_json(output.tool_calls, tools), text_json(output.finish_reason));
  if (!output.labels.empty()) out += R"(,"labels":)" + base::dump_json(base::Json(output.labels));
  if (!output.broken_calls.empty()) {
    out += R"(,"broken_calls":)" + broken_calls_json(output.broken_calls);
  }
  if (!output.after_end.empty()) out += R"(,"after_end":)" + text_json(output.after_end);
  return out + "}";
}

}  // namespace markbase::cli
