#include <unistd.h>

#include <limits>

#include "base/error.h"
#include "cli/cli.h"

namespace markbase::cli {
namespace {

Result<void> refuse_media(const PromptOptions& prompt) {
  if (!prompt.image.empty())
    return base::usage_error("--image: this build has no picture input yet");
  if (!prompt.audio.empty()) return base::usage_error("--audio: this build has no sound input yet");
  if (!prompt.video.empty()) return base::usage_error("--video: this build has no video input yet");
  return {};
}

Result<std::string> prompt_text(const PromptOptions& prompt) {
  return prompt.text ? *prompt.text : read_stdin();
}

Result<void> check_ids(const PromptOptions& prompt) {
  if (prompt.ids.empty()) return {};
  if (!prompt.system.empty())
    return base::usage_error("--system: ids are taken as they are, without a template");
  if (prompt.special) return base::usage_error("--special: goes with a text, got --ids");
  MB_TRY(parse_ids(prompt.ids, std::numeric_limits<int32_t>::max()));
  return {};
}

}  // namespace

Result<PromptOptions> checked_prompt(PromptOptions prompt) {
  MB_TRY(refuse_media(prompt));
  const int sources =
      (prompt.text ? 1 : 0) + (prompt.file.empty() ? 0 : 1) + (prompt.ids.empty() ? 0 : 1);
  if (sources > 1) return base::usage_error("give one of -p, -f and --ids, not several");
  if (prompt.think && (prompt.raw || !prompt.ids.empty())) {
    return base::usage_error("--think: goes with a chat, not with --raw or --ids");
  }
  if (prompt.raw && !prompt.system.empty()) {
    return base::usage_error("--system: --raw has no system message");
  }
  MB_TRY(check_ids(prompt));
  if (sources == 0 && isatty(STDIN_FILENO) == 1)
    return base::usage_error("no prompt: give -p TEXT, -f FILE, --ids, or text on stdin");
  if (!prompt.file.empty() && prompt.file != "-") {
    MB_ASSIGN(prompt.text, read_file(prompt.file));
  }
  return prompt;
}

Result<Request> prompt_request(const PromptOptions& prompt, const Engine& engine) {
  if (prompt.think && !engine.info().has_thinking) {
    return base::usage_error("--think: this model has no thinking mode");
  }
  Request request;
  if (!prompt.ids.empty()) {
    MB_ASSIGN(request.ids, parse_ids(prompt.ids, engine.info().vocab_size));
    return request;
  }
  MB_ASSIGN(std::string text, prompt_text(prompt));
  const bool use_template = engine.info().has_chat_template && !prompt.raw;
  if (prompt.special && use_template) {
    return base::usage_error("--special: goes with --raw; in a chat, text is plain text");
  }
  if (!use_template) {
    if (!prompt.system.empty()) {
      return base::usage_error("--system: this model has no chat template");
    }
    if (prompt.think) return base::usage_error("--think: this model has no chat template");
    request.text = std::move(text);
    request.text_is_set = true;
    request.parse_special = prompt.special;
    return request;
  }
  request.enable_thinking = prompt.think;
  if (!prompt.system.empty()) request.messages.push_back({"system", prompt.system});
  request.messages.push_back({"user", std::move(text)});
  return request;
}

}  // namespace markbase::cli
