// markbase::Tokenizer over the tokenizer room.
#include "base/error.h"
#include "base/guard.h"
#include "markbase/tokenizer.h"
#include "runtime/chat_prompt.h"
#include "runtime/model_files.h"
#include "runtime/request_prompt.h"
#include "runtime/tokenizer_access.h"

namespace markbase {

struct Tokenizer::Impl {
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  return base::guarded("Tokenizer::load", [&]() -> Result<Tokenizer> {
    MB_ASSIGN(const runtime::ModelPath model_path, runtime::open_model_path(path));
    auto impl = std::make_unique<Impl>();
    MB_ASSIGN(impl->tokenizer, runtime::load_tokenizer(model_path));
    return Tokenizer(std::move(impl));
  });
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_bos,
                                       bool parse_special) const {
  return impl_->tokenizer->encode(text, {.add_bos = add_bos, .parse_special = parse_special});
}

Result<std::string> Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  return base::guarded("Tokenizer::decode", [&]() -> Result<std::string> {
    for (const int32_t id : ids) {
      if (id >= 0 && id < impl_->tokenizer->vocab_size()) continue;
      return base::usage_error("id {}: expected 0 to {}", id, impl_->tokenizer->vocab_size() - 1);
    }
    return impl_->tokenizer->decode(ids, skip_special);
  });
}

Result<Tokenizer::Prompt> Tokenizer::chat_prompt(std::span<const Message> messages,
                                                 bool add_generation_prompt) const {
  return base::guarded("Tokenizer::chat_prompt", [&]() -> Result<Prompt> {
    Request request;
    request.messages.assign(messages.begin(), messages.end());
    MB_ASSIGN(auto prompt,
              runtime::request_prompt(*impl_->tokenizer, request, add_generation_prompt));
    return Prompt{std::move(prompt.text), std::move(prompt.ids), std::move(prompt.ignored)};
  });
}

Result<Tokenizer::Prompt> Tokenizer::chat_prompt(std::string_view request) const {
  return base::guarded("Tokenizer::chat_prompt", [&]() -> Result<Prompt> {
    MB_ASSIGN(auto prompt, runtime::chat_prompt(*impl_->tokenizer, request, true));
    return Prompt{std::move(prompt.text), std::move(prompt.ids), std::move(prompt.ignored)};
  });
}

int64_t Tokenizer::vocab_size() const { return impl_->tokenizer->vocab_size(); }

const tokenizer::Tokenizer& TokenizerAccess::inner(const Tokenizer& tokenizer) {
  return *tokenizer.impl_->tokenizer;
}

}  // namespace markbase
