// Any bytes as tokenizer.json: refused or usable, never more.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = markbase::tokenizer::from_tokenizer_json(text, "", "", "input");
  if (!tokenizer.ok()) {
    MB_CHECK(!tokenizer.error().message.empty());
    return 0;
  }
  // The input itself is as good a text as any.
  const std::string_view sample = text.substr(0, 4096);
  for (const bool special : {false, true}) {
    const auto ids = (*tokenizer)->encode(sample, {.add_bos = true, .parse_special = special});
    for (const int32_t id : ids) MB_CHECK(id >= 0 && id < (*tokenizer)->vocab_size());
    (void)(*tokenizer)->decode(ids, special);
  }
  return 0;
}
