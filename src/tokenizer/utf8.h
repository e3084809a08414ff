// UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace markbase::tokenizer {

struct Scalar {
  char32_t value = 0;
  // Bytes of a well-formed character; of an ill-formed one, the bytes that were a possible
  // beginning (at least 1).
  uint32_t length = 0;
  bool valid = false;
  bool truncated = false;  // ill-formed only because the text ends here
};

// The character at `position`, which must lie inside the text.
Scalar decode_scalar(std::string_view text, size_t position);
bool is_valid_utf8(std::string_view text);
void append_scalar(char32_t value, std::string& out);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

// Appends `bytes` to `out`, each maximal ill-formed part replaced by one U+FFFD. Without `final` a
// last character that may still be completed is left alone. Returns the number of bytes consumed.
size_t append_lossy(std::string_view bytes, bool final, std::string& out);

}  // namespace markbase::tokenizer
