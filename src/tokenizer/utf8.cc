#include "tokenizer/utf8.h"

namespace markbase::tokenizer {
namespace {

struct Lead {
  uint32_t length;      // of the whole character; 0: cannot begin one
  uint8_t second_low;   // the range of the second byte is what excludes
  uint8_t second_high;  // overlong forms, surrogates and values beyond U+10FFFF
};

Lead classify(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Scalar decode_scalar(std::string_view text, size_t position) {
  const auto byte_at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte_at(position);
  if (first < 0x80) return {first, 1, true, false};
  const Lead lead = classify(first);
  if (lead.length == 0) return {0, 1, false, false};
  // The payload bits of a lead byte of n bytes are its low 7 - n.
  char32_t value = first & (0x7Fu >> lead.length);
  for (uint32_t i = 1; i < lead.length; ++i) {
    if (position + i >= text.size()) return {0, i, false, true};
    const uint8_t byte = byte_at(position + i);
    const uint8_t low = i == 1 ? lead.second_low : 0x80;
    const uint8_t high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {0, i, false, false};
    value = (value << 6) | (byte & 0x3Fu);
  }
  return {value, lead.length, true, false};
}

bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const Scalar scalar = decode_scalar(text, i);
    if (!scalar.valid) return false;
    i += scalar.length;
  }
  return true;
}

void append_scalar(char32_t value, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | (value >> 6));
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | (value >> 12));
    put(0x80 | ((value >> 6) & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | (value >> 18));
    put(0x80 | ((value >> 12) & 0x3F));
    put(0x80 | ((value >> 6) & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

size_t append_lossy(std::string_view bytes, bool final, std::string& out) {
  size_t i = 0;
  while (i < bytes.size()) {
    const Scalar scalar = decode_scalar(bytes, i);
    if (scalar.valid) {
      out.append(bytes.substr(i, scalar.length));
    } else if (scalar.truncated && !final) {
      return i;
    } else {
      out.append(kReplacementCharacter);
    }
    i += scalar.length;
  }
  return i;
}

}  // namespace markbase::tokenizer
