#include "tokenizer/chat_template.h"

#include <algorithm>

#include "base/error.h"
#include "tokenizer/gemma3_template.h"
#include "tokenizer/gemma4_template.h"
#include "tokenizer/jinja/python.h"
#include "tokenizer/jinja/text.h"

namespace markbase::tokenizer {
namespace {

using jinja::Origin;
using jinja::Type;
using jinja::Value;

bool has_control_tokens(const Tokenizer& tokenizer,
                        std::initializer_list<std::string_view> pieces) {
  return std::all_of(pieces.begin(), pieces.end(), [&](std::string_view piece) {
    const auto id = tokenizer.find(piece);
    return id && tokenizer.kind(*id) == TokenKind::kControl;
  });
}

std::vector<ChatSegment> segments_of(const jinja::Text& text) {
  std::vector<ChatSegment> segments;
  size_t begin = 0;
  for (const jinja::Run& run : text.runs) {
    segments.push_back({text.bytes.substr(begin, run.end - begin), run.origin == Origin::kTemplate
                                                                       ? SegmentOrigin::kTemplate
                                                                       : SegmentOrigin::kMessage});
    begin = run.end;
  }
  return segments;
}

bool mentions(const void* context, std::string_view word) {
  return static_cast<const jinja::Template*>(context)->mentions(word);
}

const Value* variable(const ChatRequest& request, std::string_view name) {
  for (const auto& [key, value] : request.variables) {
    if (key == name) return &value;
  }
  return nullptr;
}

}  // namespace

bool has_gemma3_format(const Tokenizer& tokenizer) {
  return has_control_tokens(tokenizer, {"<start_of_turn>", "<end_of_turn>"});
}

bool has_gemma4_format(const Tokenizer& tokenizer) {
  return has_control_tokens(tokenizer, {"<|turn>", "<turn|>", "<|channel>", "<channel|>"});
}

ChatTemplate::ChatTemplate(const Tokenizer& tokenizer, jinja::Template parsed)
    : tokenizer_(&tokenizer), template_(std::move(parsed)) {}

Result<std::optional<ChatTemplate>> ChatTemplate::create(const Tokenizer& tokenizer) {
  std::string_view source = tokenizer.chat_template();
  if (source.empty() && has_gemma4_format(tokenizer)) source = kGemma4Template;
  if (source.empty() && has_gemma3_format(tokenizer)) source = kGemma3Template;
  if (source.empty()) return std::optional<ChatTemplate>();
  auto parsed = jinja::Template::parse(source);
  if (!parsed.ok()) {
    return base::bad_input("the chat template of {}: {}", tokenizer.source(),
                           parsed.error().message);
  }
  return std::optional(ChatTemplate(tokenizer, *std::move(parsed)));
}

Result<void> ChatTemplate::check_variables(const ChatRequest& request, RenderedChat& out) const {
  for (const auto& [name, value] : request.variables) {
    if (template_.has_variable(name) || name == "add_generation_prompt") continue;
    const bool is_known =
        name == "tools" || name == "enable_thinking" || name == "preserve_thinking";
    if (is_known && !jinja::is_true(value)) continue;
    if (name == "preserve_thinking") {
      out.ignored.emplace_back(name);
      continue;
    }
    return base::usage_error("\"{}\": this model's chat template {}", name,
                             is_known ? "cannot honour it" : "has no such variable");
  }
  if (const Value* tools = variable(request, "tools")) {
    for (const Value& tool : tools->list->items) {
      if (!tool.is(Type::kDict))
        return base::usage_error("\"tools\": got a {}, expected objects", jinja::type_name(tool));
    }
  }
  return {};
}

std::vector<std::pair<std::string_view, std::string_view>> ChatTemplate::special_tokens() const {
  std::vector<std::pair<std::string_view, std::string_view>> tokens;
  const std::pair<std::string_view, int32_t> ids[] = {
      {"bos_token", tokenizer_->bos_id()},
      {"eos_token", tokenizer_->eos_id()},
      {"pad_token", tokenizer_->pad_id()},
      {"unk_token", tokenizer_->unk_id()},
      {"mask_token", tokenizer_->find("<mask>").value_or(-1)},
  };
  for (const auto& [name, id] : ids) {
    if (id >= 0) tokens.emplace_back(name, tokenizer_->piece(id));
  }
  return tokens;
}

Result<RenderedChat> ChatTemplate::render(ChatRequest request) const {
  RenderedChat out;
  MB_TRY(check_variables(request, out));
  MB_TRY(prepare_messages(request, mentions, &template_));
  out.num_media = request.num_media;
  std::string final_text;
  const bool continues = !request.continue_field.empty();
  if (continues && !mark_continuation(request, final_text)) {
    return base::usage_error("\"continue_final_message\": the last message has no text under '{}'",
                             request.continue_field);
  }
  jinja::Template::Variables variables = {{"messages", request.messages},
                                          {"tools", Value::none()},
                                          {"documents", Value::none()},
                                          {"add_generation_prompt", Value::of(false)}};
  for (const auto& [name, piece] : special_tokens())
    variables.emplace_back(name, request.arena->string(piece, Origin::kTemplate));
  variables.insert(variables.end(), request.variables.begin(), request.variables.end());
  auto text = template_.render(variables);
  if (!text.ok()) {
    return Error{text.error().code, fmt::format("the chat template, {}", text.error().message)};
  }
  if (continues) {
    const auto cut = cut_at_mark(*text);
    if (!cut || jinja::find_bytes(text->bytes, strip(final_text)) == text->bytes.npos) {
      return base::usage_error(
          "\"continue_final_message\": the template does not write the last message's '{}' as it "
          "is",
          request.continue_field);
    }
    *text = *cut;
  }
  out.segments = segments_of(*text);
  return out;
}

}  // namespace markbase::tokenizer
