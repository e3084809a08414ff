// Properties of encode and decode on random text and bytes.
#include <gtest/gtest.h>

#include <random>

#include "tiny_vocabulary.h"
#include "tokenizer/utf8.h"

namespace markbase::tokenizer {
namespace {

using Ids = std::vector<int32_t>;

std::string random_text(std::mt19937& rng) {
  std::string text;
  for (int n = rng() % 40; n > 0; --n) {
    char32_t scalar = 0;
    switch (rng() % 4) {
      case 0:
        scalar = "the ab\n\taan<>"[rng() % 13];
        break;
      case 1:
        scalar = rng() % 128;
        break;
      case 2:
        scalar = rng() % 0xD800;
        break;
      default:
        scalar = 0xE000 + rng() % (0x110000 - 0xE000);
    }
    if (scalar != 0x2581) append_scalar(scalar, text);  // decodes to a space
  }
  return text;
}

std::string random_bytes(std::mt19937& rng) {
  std::string bytes;
  for (int n = rng() % 40; n > 0; --n) bytes.push_back(static_cast<char>(rng()));
  return bytes;
}

// The bytes that ids stand for, byte tokens one by one.
std::string bytes_of(const Tokenizer& tokenizer, const Ids& ids) {
  std::string bytes;
  for (const int32_t id : ids) {
    if (tokenizer.kind(id) == TokenKind::kByte) {
      bytes.push_back(
          static_cast<char>(std::stoi(std::string(tokenizer.piece(id).substr(3, 2)), nullptr, 16)));
    } else {
      bytes += tokenizer.decode({&id, 1}, false);
    }
  }
  return bytes;
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids) {
  StreamDecoder decoder(tokenizer, false);
  std::string text;
  for (const int32_t id : ids) {
    const std::string part = decoder.push(id);
    EXPECT_TRUE(is_valid_utf8(part));
    text += part;
  }
  return text + decoder.finish();
}

TEST(RoundTrip, TextComesBack) {
  std::mt19937 rng(1);
  const auto tokenizer = tiny_tokenizer("json");
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_text(rng);
    for (const bool special : {false, true}) {
      const Ids ids = tokenizer->encode(text, {.parse_special = special});
      EXPECT_EQ(tokenizer->decode(ids, false), text);
      EXPECT_EQ(streamed(*tokenizer, ids), text);
    }
  }
}

TEST(RoundTrip, EveryByteIsKept) {
  std::mt19937 rng(2);
  const auto tokenizer = tiny_tokenizer("scores");
  for (int i = 0; i < 3000; ++i) {
    const std::string bytes = random_bytes(rng);
    EXPECT_EQ(bytes_of(*tokenizer, tokenizer->encode(bytes, {})), bytes);
  }
}

TEST(RoundTrip, LongPartsTakeTheHeapAndGiveTheSame) {
  // The vocabulary joins "ab" and "abab" only: long runs have a known answer.
  const auto tokenizer = tiny_tokenizer("json");
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "ab";
  const Ids ids = tokenizer->encode(text, {});
  EXPECT_EQ(ids, Ids(2500, *tokenizer->find("abab")));
}

TEST(Streaming, EveryCutGivesTheWhole) {
  const auto tokenizer = tiny_tokenizer("json");
  const std::string text = "the 日本 Ж😀é\n\n <h1>\u00a0x";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    // Cut in the middle of a character, the ids are those of the bytes; together they are the text
    // again.
    Ids ids = tokenizer->encode(std::string_view(text).substr(0, cut), {});
    const Ids rest = tokenizer->encode(std::string_view(text).substr(cut), {});
    ids.insert(ids.end(), rest.begin(), rest.end());
    EXPECT_EQ(streamed(*tokenizer, ids), text) << cut;
  }
}

TEST(Streaming, BrokenBytesAreReplacedOnceTheyCannotBecomeValid) {
  const auto tokenizer = tiny_tokenizer("json");
  const auto byte = [&](int value) { return 16 + value; };  // <0x00> is id 16
  ASSERT_EQ(tokenizer->piece(byte(0xF0)), "<0xF0>");
  StreamDecoder decoder(*tokenizer, true);
  EXPECT_EQ(decoder.push(byte(0xF0)), "");
  EXPECT_EQ(decoder.push(byte(0x9F)), "");
  EXPECT_EQ(decoder.push(2), "");  // <bos> is left out and does not part the bytes
  EXPECT_EQ(decoder.push(byte(0x98)), "");
  EXPECT_EQ(decoder.push(byte(0x80)), "😀");
  EXPECT_EQ(decoder.push(byte(0xC3)), "");
  EXPECT_EQ(decoder.push(*tokenizer->find("the")), "\uFFFDthe");
  EXPECT_EQ(decoder.push(byte(0xFF)), "\uFFFD");
  EXPECT_EQ(decoder.push(byte(0xE2)), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(Segments, ABorderStopsNoMerge) {
  std::mt19937 rng(3);
  const auto tokenizer = tiny_tokenizer("json");
  for (int i = 0; i < 1000; ++i) {
    const std::string text = random_text(rng) + "abab the\n\n\n<h1>";
    const size_t cut = rng() % (text.size() + 1);
    const std::string_view view = text;
    const TextSegment segments[] = {{view.substr(0, cut), true}, {view.substr(cut), false}};
    EXPECT_EQ(tokenizer->encode_segments(segments, false), tokenizer->encode(text, {}));
    EXPECT_EQ(tokenizer->encode_segments(segments, true),
              tokenizer->encode(text, {.add_bos = true}));
  }
}

TEST(Segments, SpecialTokensComeOnlyFromWhereTheyAreAllowed) {
  const auto tokenizer = tiny_tokenizer("json");
  const auto count = [&](std::initializer_list<TextSegment> segments) {
    const Ids ids = tokenizer->encode_segments(std::vector<TextSegment>(segments), false);
    return std::count(ids.begin(), ids.end(), tokenizer->bos_id());
  };
  EXPECT_EQ(count({{"<bos>", true}}), 1);
  EXPECT_EQ(count({{"<b", true}, {"os>", true}}), 1);
  EXPECT_EQ(count({{"<bos>", false}}), 0);
  EXPECT_EQ(count({{"<b", true}, {"os>", false}}), 0);
  EXPECT_EQ(count({{"<b", false}, {"os>", true}}), 0);
  EXPECT_EQ(count({{"<bos", false}, {"<bos>", true}}), 1);
}

}  // namespace
}  // namespace markbase::tokenizer
