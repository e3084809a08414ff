// The chat format of a model: its own template where the files have one, else a built-in one.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "markbase/result.h"
#include "tokenizer/chat_format.h"
#include "tokenizer/chat_request.h"
#include "tokenizer/jinja/template.h"
#include "tokenizer/tokenizer.h"

namespace markbase::tokenizer {

struct RenderedChat {
  std::vector<ChatSegment> segments;
  size_t num_media = 0;              // placeholders of pictures, sounds and videos in the text
  std::vector<std::string> ignored;  // options that this template does not know
};

// Whether the vocabulary has the turn markers of Gemma 3 or 4 as control tokens.
bool has_gemma3_format(const Tokenizer& tokenizer);
bool has_gemma4_format(const Tokenizer& tokenizer);

// Immutable; render() may run on any number of threads at once.
class ChatTemplate {
 public:
  // Nothing where the files have no template and the vocabulary no turn markers. Errors
  // (kBadInput): the template cannot be parsed. `tokenizer` must outlive the object.
  static Result<std::optional<ChatTemplate>> create(const Tokenizer& tokenizer);

  // Errors: kUsage where the format or its template refuses the messages, kBadInput where the
  // template breaks a limit.
  Result<RenderedChat> render(ChatRequest request) const;

 private:
  ChatTemplate(const Tokenizer& tokenizer, jinja::Template parsed);
  Result<void> check_variables(const ChatRequest& request, RenderedChat& out) const;
  std::vector<std::pair<std::string_view, std::string_view>> special_tokens() const;

  const Tokenizer* tokenizer_;
  jinja::Template template_;
};

}  // namespace markbase::tokenizer
