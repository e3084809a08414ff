#include "markbase/tokenizer.h"

#include <cstdlib>

#include "base/error.h"
#include "capi/door.h"
#include "capi/handles.h"

namespace markbase::capi {
namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace
}  // namespace markbase::capi

using namespace markbase;        // NOLINT: the C functions stand outside
using namespace markbase::capi;  // NOLINT

mb_status mb_tokenizer_load(const char* path, mb_tokenizer** tokenizer, mb_error** error) {
  return door("mb_tokenizer_load", error, [&]() -> Result<void> {
    MB_TRY(need(path, "path"));
    MB_TRY(need(tokenizer, "tokenizer"));
    MB_ASSIGN(Tokenizer loaded, Tokenizer::load(path));
    *tokenizer = new mb_tokenizer{std::move(loaded)};
    return {};
  });
}

void mb_tokenizer_free(mb_tokenizer* tokenizer) { delete tokenizer; }

mb_status mb_tokenizer_vocab_size(const mb_tokenizer* tokenizer, int64_t* vocab_size,
                                  mb_error** error) {
  return door("mb_tokenizer_vocab_size", error, [&]() -> Result<void> {
    MB_TRY(need(tokenizer, "tokenizer"));
    MB_TRY(need(vocab_size, "vocab_size"));
    *vocab_size = tokenizer->tokenizer.vocab_size();
    return {};
  });
}

mb_status mb_tokenizer_encode(const mb_tokenizer* tokenizer, mb_string text, int32_t add_bos,
                              int32_t parse_special, int32_t** ids, size_t* num_ids,
                              mb_error** error) {
  return door("mb_tokenizer_encode", error, [&]() -> Result<void> {
    MB_TRY(need(tokenizer, "tokenizer"));
    MB_TRY(need(ids, "ids"));
    MB_TRY(need(num_ids, "num_ids"));
    MB_ASSIGN(const std::string taken, text_of(text, "text"));
    MB_ASSIGN(const bool bos, flag(add_bos, "add_bos"));
    MB_ASSIGN(const bool special, flag(parse_special, "parse_special"));
    const std::vector<int32_t> list = tokenizer->tokenizer.encode(taken, bos, special);
    MB_ASSIGN(*ids, copy_of(list));
    *num_ids = list.size();
    return {};
  });
}

mb_status mb_tokenizer_decode(const mb_tokenizer* tokenizer, const int32_t* ids, size_t num_ids,
                              int32_t skip_special, char** text, size_t* num_bytes,
                              mb_error** error) {
  return door("mb_tokenizer_decode", error, [&]() -> Result<void> {
    MB_TRY(need(tokenizer, "tokenizer"));
    MB_TRY(need(text, "text"));
    MB_ASSIGN(const auto list, items_of(ids, num_ids, "ids"));
    MB_ASSIGN(const bool skip, flag(skip_special, "skip_special"));
    MB_ASSIGN(const std::string decoded, tokenizer->tokenizer.decode(list, skip));
    MB_ASSIGN(*text, copy_of(decoded));
    if (num_bytes != nullptr) *num_bytes = decoded.size();
    return {};
  });
}

mb_status mb_tokenizer_chat_prompt(const mb_tokenizer* tokenizer, mb_string json, char** text,
                                   size_t* num_bytes, int32_t** ids, size_t* num_ids,
                                   mb_error** error) {
  return door("mb_tokenizer_chat_prompt", error, [&]() -> Result<void> {
    MB_TRY(need(tokenizer, "tokenizer"));
    if (text == nullptr && ids == nullptr) {
      return base::usage_error("text, ids: expected a pointer in one of them, got NULL");
    }
    if (ids != nullptr) MB_TRY(need(num_ids, "num_ids"));
    MB_ASSIGN(const std::string taken, text_of(json, "json"));
    MB_ASSIGN(const Tokenizer::Prompt prompt,
              tokenizer->tokenizer.chat_prompt(std::string_view(taken)));
    if (!prompt.ignored.empty()) {
      return base::usage_error("{}: the model's chat format does not know it", prompt.ignored[0]);
    }
    std::unique_ptr<char, Free> text_copy;
    if (text != nullptr) {
      MB_ASSIGN(char* copy, copy_of(prompt.text));
      text_copy.reset(copy);
    }
    if (ids != nullptr) {
      MB_ASSIGN(*ids, copy_of(prompt.ids));
      *num_ids = prompt.ids.size();
    }
    if (text != nullptr) *text = text_copy.release();
    if (num_bytes != nullptr) *num_bytes = prompt.text.size();
    return {};
  });
}
