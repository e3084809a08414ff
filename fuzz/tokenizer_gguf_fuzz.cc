// Random bytes as a GGUF vocabulary and as texts: what loads must encode any bytes and give text
// back.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace {

using namespace markbase::tokenizer;

// Takes the input apart, front to back; at its end everything is 0.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const uint8_t value = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    return value;
  }
  std::string_view text(size_t length) {
    const std::string_view part = rest_.substr(0, length);
    rest_.remove_prefix(part.size());
    return part;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

void check_text(const Tokenizer& tokenizer, std::string_view text) {
  const auto ids = tokenizer.encode(text, {});
  for (const int32_t id : ids) MB_CHECK(id >= 0 && id < tokenizer.vocab_size());
  const std::string decoded = tokenizer.decode(ids, false);
  MB_CHECK(is_valid_utf8(decoded));
  StreamDecoder stream(tokenizer, false);
  std::string streamed;
  for (const int32_t id : ids) streamed += stream.push(id);
  streamed += stream.finish();
  MB_CHECK(is_valid_utf8(streamed));
  // U+2581 decodes to a space; where it is no piece, a space becomes its three bytes and decodes to
  // it.
  const bool keeps_spaces = text.find(' ') == text.npos || tokenizer.find("\xE2\x96\x81");
  if (is_valid_utf8(text) && text.find("\xE2\x96\x81") == text.npos && keeps_spaces) {
    MB_CHECK(decoded == text);
    MB_CHECK(streamed == text);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  std::vector<std::string> bytes;
  for (int i = 0; i < 256; ++i) {
    constexpr char kHex[] = "0123456789ABCDEF";
    bytes.push_back(std::string("<0x") + kHex[i / 16] + kHex[i % 16] + ">");
  }
  for (const std::string& piece : bytes) {
    vocabulary.tokens.push_back(piece);
    vocabulary.token_types.push_back(6);
  }
  const bool with_merges = input.byte() & 1;
  for (int n = input.byte(); n > 0; --n) {
    vocabulary.token_types.push_back(input.byte() % 8);
    vocabulary.tokens.push_back(input.text(input.byte() % 16));
  }
  for (size_t i = 0; i < vocabulary.tokens.size() && !with_merges; ++i) {
    vocabulary.scores.push_back(-static_cast<float>(input.byte()));
  }
  for (int n = with_merges ? input.byte() : 0; n > 0; --n) {
    vocabulary.merges.push_back(input.text(input.byte() % 16));
  }
  const auto tokenizer = from_gguf(vocabulary, "input");
  if (tokenizer.ok()) check_text(**tokenizer, input.rest());
  return 0;
}
