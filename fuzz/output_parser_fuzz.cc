// Random model outputs through the output parser: any cut gives the same, and no character is lost.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "tokenizer/output_parser.h"
#include "tokenizer/utf8.h"

namespace {

using namespace markbase::tokenizer;
using markbase::ToolCall;
namespace base = markbase::base;
using Kind = OutputEvent::Kind;

constexpr std::string_view kMarkers[] = {
    "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>",
    "<turn|>",    "<|turn>",    "<eos>",        "<pad>",        "<|tool_response>"};
// What bytes below a space stand for, so that few of them make an output with structure.
constexpr std::string_view kSnippets[] = {"<|channel>",
                                          "<channel|>",
                                          "<|tool_call>",
                                          "<tool_call|>",
                                          "<|\"|>",
                                          "<turn|>",
                                          "<|turn>",
                                          "<eos>",
                                          "<pad>",
                                          "\t",
                                          "\n",
                                          "thought\n",
                                          "<|tool_call>call:f{",
                                          "}<tool_call|>",
                                          "<|channel>thought\n",
                                          "\n<channel|>",
                                          "thought",
                                          "call:",
                                          "<|\"|>:",
                                          "true",
                                          "None",
                                          "-1.5e+3",
                                          "日本",
                                          "\xF0\x9F\x98\x80",
                                          "<|tool_response>",
                                          "\\u00e9",
                                          "\\ud83d",
                                          "<|",
                                          "|>",
                                          "<|channel",
                                          "<|tool_response>",
                                          "[{"};

// How the vocabulary spells a space; in a text it would come back as one.
constexpr std::string_view kSpace = "\xE2\x96\x81";

std::unique_ptr<Tokenizer> small_tokenizer() {
  static std::vector<std::string> pieces;
  GgufVocabulary vocabulary;
  vocabulary.model = "llama";
  for (const std::string_view marker : kMarkers) {
    pieces.emplace_back(marker);
    vocabulary.token_types.push_back(3);
  }
  for (int i = 0; i < 256; ++i) {
    constexpr char kHex[] = "0123456789ABCDEF";
    pieces.push_back(std::string("<0x") + kHex[i / 16] + kHex[i % 16] + ">");
    vocabulary.token_types.push_back(6);
  }
  pieces.emplace_back(kSpace);
  vocabulary.token_types.push_back(1);
  vocabulary.tokens.assign(pieces.begin(), pieces.end());
  vocabulary.scores.assign(pieces.size(), -1.0f);
  return std::move(from_gguf(vocabulary, "small")).value();
}

// One event each for a stretch of the same kind, so that cuts do not show.
void merge(std::vector<OutputEvent> from, std::vector<OutputEvent>* to) {
  for (OutputEvent& event : from) {
    const bool is_text = event.kind == Kind::kContent || event.kind == Kind::kReasoning ||
                         event.kind == Kind::kAfterEnd;
    if (is_text && !to->empty() && to->back().kind == event.kind) {
      to->back().text += event.text;
    } else {
      to->push_back(std::move(event));
    }
  }
}

bool same(const std::vector<OutputEvent>& a, const std::vector<OutputEvent>& b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), b.end(), [](const OutputEvent& x, const OutputEvent& y) {
        return x.kind == y.kind && x.text == y.text && x.call.name == y.call.name &&
               x.call.arguments == y.call.arguments && x.why == y.why && x.truncated == y.truncated;
      });
}

// Walks over the output beside the events: what an event does not tell may only be a marker, a
// newline, or the label of a thought.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}

  void take(const OutputEvent& event) {
    if (event.kind == Kind::kCall) return take_call(event.call);
    if (event.kind == Kind::kAfterEnd) return take_end(event.text);
    for (size_t i = 0; i < event.text.size();) {
      const std::string_view found = marker(rest_);
      if (found.empty() && rest_.starts_with(event.text[i])) {
        rest_.remove_prefix(1);
        ++i;
      } else if (is_shown(found, event) &&
                 std::string_view(event.text).substr(i).starts_with(found)) {
        rest_.remove_prefix(found.size());
        i += found.size();
      } else {
        skip();
      }
    }
    if (event.kind != Kind::kLabel) return;
    while (!marker(rest_).empty()) rest_.remove_prefix(marker(rest_).size());
    MB_CHECK(rest_.starts_with('\n'));
  }
  void finish() {
    while (!rest_.empty()) skip();
  }

 private:
  // Text around a marker that is left out may spell another one together; only these come out
  // again.
  static bool is_shown(std::string_view marker, const OutputEvent& event) {
    return !marker.empty() && (marker == kMarkers[4] || event.kind == Kind::kBrokenCall);
  }

  // All that follows the marker of the end, as it is.
  void take_end(std::string_view text) {
    MB_CHECK(rest_.ends_with(text));
    const size_t skipped = rest_.size() - text.size();
    rest_ = rest_.substr(0, skipped);
    finish();
  }

  static std::string_view marker(std::string_view text) {
    for (const std::string_view marker : kMarkers) {
      if (text.starts_with(marker)) return marker;
    }
    return {};
  }

  void skip() {
    const std::string_view found = marker(rest_);
    if (found.empty()) {
      MB_CHECK_MSG(rest_.starts_with('\n'), "a character was lost");
      rest_.remove_prefix(1);
      return;
    }
    rest_.remove_prefix(found.size());
    if (found == kMarkers[0]) skip_label();
  }

  // "thought" with the newline after it, or where the thought ends; markers that mean nothing here
  // may stand inside.
  void skip_label() {
    std::string_view after = rest_;
    std::string word;
    for (;;) {
      const std::string_view found = marker(after);
      const bool means_nothing =
          found == kMarkers[3] || found == kMarkers[6] || found == kMarkers[8];
      if (means_nothing) {
        after.remove_prefix(found.size());
      } else if (found.empty() && !after.empty() && word.size() < 7) {
        word.push_back(after.front());
        after.remove_prefix(1);
      } else {
        break;
      }
    }
    const bool ends = after.empty() || after.front() == '\n' ||
                      (!marker(after).empty() && marker(after) != kMarkers[4]);
    if (word != "thought" || !ends) return;
    rest_ = after;
    if (rest_.starts_with('\n')) rest_.remove_prefix(1);
  }

  void take_call(const ToolCall& call) {
    while (marker(rest_) != kMarkers[2]) skip();
    rest_.remove_prefix(kMarkers[2].size());
    const std::string_view begin = rest_;
    for (bool in_string = false; !rest_.empty();) {
      const std::string_view found = marker(rest_);
      if (found == kMarkers[4]) in_string = !in_string;
      const bool ends = found == kMarkers[0] || found == kMarkers[2] || found == kMarkers[3] ||
                        found == kMarkers[5] || found == kMarkers[7] || found == kMarkers[9];
      if (ends && !in_string) break;
      rest_.remove_prefix(std::max<size_t>(found.size(), 1));
    }
    compare(begin.substr(0, begin.size() - rest_.size()), call);
  }

  static bool is_letter(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           static_cast<uint8_t>(c) >= 0x80;
  }
  static size_t letters(std::string_view text) {
    return static_cast<size_t>(std::count_if(text.begin(), text.end(), is_letter));
  }
  static size_t count(std::string_view text, std::string_view part) {
    size_t n = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
    return n;
  }

  // Letters of names, keys and strings, each once. False where a key may stand twice in `source`.
  static bool count_letters(const base::Json& value, std::string_view source, size_t* sum) {
    if (value.is_object()) {
      for (const auto& [key, item] : value.items()) {
        if (key.empty() || count(source, key) != 1) return false;
        *sum += letters(key);
        if (!count_letters(item, source, sum)) return false;
      }
      return true;
    }
    if (value.is_array()) {
      return std::all_of(value.begin(), value.end(),
                         [&](const base::Json& item) { return count_letters(item, source, sum); });
    }
    *sum += letters(value.is_string() ? value.get_ref<const std::string&>() : "");
    return true;
  }

  static void compare(std::string_view source, const ToolCall& call) {
    const auto arguments = base::parse_json(call.arguments, "arguments");
    MB_CHECK(arguments.ok() && arguments->is_object());
    MB_CHECK(source.find(call.name) != source.npos);
    // The JSON text holds numbers and literals as well; escapes and Python's None change letters.
    if (source.find('\\') != source.npos || source.find("None") != source.npos) return;
    if (call.arguments.find('\\') != std::string::npos) return;
    size_t ignored = 0;
    if (!count_letters(*arguments, source, &ignored)) return;
    MB_CHECK(letters(source) == letters("call") + letters(call.name) + letters(call.arguments));
  }

  std::string_view rest_;
};

}  // namespace

// Byte 0: how the output ended and how it is cut; the rest: the output.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<Tokenizer> tokenizer = small_tokenizer();
  static const MarkerSet markers(*tokenizer);
  if (size == 0) return 0;
  const bool cut = (data[0] & 1) != 0;
  const size_t piece = 1 + (data[0] >> 1) % 31;
  std::string bytes;
  for (size_t i = 1; i < size; ++i) {
    if (data[i] < std::size(kSnippets)) {
      bytes += kSnippets[data[i]];
    } else {
      bytes.push_back(static_cast<char>(data[i]));
    }
  }
  std::string text;
  append_lossy(bytes, true, text);

  const auto parse = [&](size_t length) {
    OutputParser parser(*tokenizer, markers);
    std::vector<OutputEvent> events;
    for (size_t i = 0; i < bytes.size(); i += length) {
      merge(parser.push_text(std::string_view(bytes).substr(i, length)), &events);
    }
    merge(parser.finish(cut), &events);
    return events;
  };
  const std::vector<OutputEvent> whole = parse(std::max<size_t>(bytes.size(), 1));
  MB_CHECK(same(whole, parse(piece)));
  MB_CHECK(same(whole, parse(1)));

  if (text.find(kSpace) == text.npos) {
    OutputParser by_ids(*tokenizer, markers);
    std::vector<OutputEvent> events;
    for (const int32_t id : tokenizer->encode(text, {.parse_special = true})) {
      merge(by_ids.push(id), &events);
    }
    merge(by_ids.finish(cut), &events);
    MB_CHECK(same(whole, events));
  }

  Reader reader(text);
  for (const OutputEvent& event : whole) {
    MB_CHECK(is_valid_utf8(event.text));
    reader.take(event);
  }
  reader.finish();
  return 0;
}
