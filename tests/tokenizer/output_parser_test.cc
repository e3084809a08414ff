// Outputs of the model taken apart: every golden, cut everywhere, as text and as ids.
#include "tokenizer/output_parser.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/json.h"
#include "support/mini_gemma4.h"
#include "tiny_vocabulary.h"

namespace markbase::tokenizer {
namespace {

class OutputParserTest : public ::testing::Test {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = testing::mini_gemma4();
  MarkerSet markers_{*tokenizer_};

  // The pieces pushed one after the other, as text.
  base::Json parse(const std::vector<std::string_view>& pieces,
                   const base::Json& row = base::Json::object(),
                   const OutputOptions& options = {}) const {
    return collect(row, options, [&](OutputParser& parser, OutputCollector& collector) {
      parser.continue_from(std::string_view(row.value("prompt_tail", std::string())));
      for (const std::string_view piece : pieces) collector.add(parser.push_text(piece));
    });
  }
  base::Json parse_ids(std::span<const int32_t> ids,
                       const base::Json& row = base::Json::object()) const {
    return collect(row, {}, [&](OutputParser& parser, OutputCollector& collector) {
      const auto prompt =
          tokenizer_->encode(row.value("prompt_tail", std::string()), {.parse_special = true});
      parser.continue_from(prompt);
      for (const int32_t id : ids) collector.add(parser.push(id));
    });
  }

 private:
  base::Json collect(const base::Json& row, const OutputOptions& options,
                     const std::function<void(OutputParser&, OutputCollector&)>& push) const {
    OutputParser parser(*tokenizer_, markers_, options);
    OutputCollector collector;
    push(parser, collector);
    const std::string finish = parser.ended() ? "stop" : row.value("finish", std::string("stop"));
    collector.add(parser.finish(finish == "length"));
    return as_json(std::move(collector).finish(finish));
  }
  // In the form of the goldens.
  static base::Json as_json(const ParsedOutput& output) {
    base::Json calls = base::Json::array();
    for (const ToolCall& call : output.tool_calls) {
      calls.push_back({{"name", call.name}, {"arguments", call.arguments}});
    }
    base::Json broken = base::Json::array();
    for (const BrokenCall& call : output.broken_calls) {
      EXPECT_FALSE(call.why.empty());
      broken.push_back(call.text);
    }
    return {{"reasoning", output.reasoning},
            {"labels", output.labels},
            {"content", output.content},
            {"tool_calls", calls},
            {"broken_calls", broken},
            {"after_end", output.after_end},
            {"finish_reason", output.finish_reason}};
  }
};

TEST_F(OutputParserTest, GoldensCutAtEveryByte) {
  const auto rows = read_json_lines("output/gemma4.jsonl");
  ASSERT_GE(rows.size(), 400u);
  for (const base::Json& row : rows) {
    const std::string text = row["text"].get<std::string>();
    const std::string_view view = text;
    ASSERT_EQ(parse({view}, row), row["expected"]) << text;
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      ASSERT_EQ(parse({view.substr(0, cut), view.substr(cut)}, row), row["expected"])
          << text << "\ncut at byte " << cut;
    }
    for (size_t length = 1; length <= 7; ++length) {
      std::vector<std::string_view> pieces;
      for (size_t i = 0; i < view.size(); i += length) pieces.push_back(view.substr(i, length));
      ASSERT_EQ(parse(pieces, row), row["expected"]) << text << "\n"
                                                     << length << " bytes at a time";
    }
  }
}

TEST_F(OutputParserTest, GoldensCutAtEveryToken) {
  for (const base::Json& row : read_json_lines("output/gemma4.jsonl")) {
    const std::string text = row["text"].get<std::string>();
    const auto ids = tokenizer_->encode(text, {.parse_special = true});
    ASSERT_EQ(parse_ids(ids, row), row["expected"]) << text;
    size_t cut = 0;
    std::vector<std::string_view> tokens;
    for (const int32_t id : ids) {
      const bool byte = tokenizer_->kind(id) == TokenKind::kByte;
      const size_t length = byte ? 1 : tokenizer_->decode({&id, 1}, false).size();
      tokens.push_back(std::string_view(text).substr(cut, length));
      cut += length;
      ASSERT_EQ(
          parse({std::string_view(text).substr(0, cut), std::string_view(text).substr(cut)}, row),
          row["expected"])
          << text << "\ncut at byte " << cut;
    }
    ASSERT_EQ(cut, text.size());
    ASSERT_EQ(parse(tokens, row), row["expected"]) << text;
  }
}

TEST_F(OutputParserTest, ArgumentsAreJson) {
  for (const base::Json& row : read_json_lines("output/gemma4.jsonl")) {
    const base::Json output = parse({row["text"].get_ref<const std::string&>()}, row);
    for (const base::Json& call : output["tool_calls"]) {
      const auto json = base::parse_json(call["arguments"].get<std::string>(), "arguments");
      ASSERT_TRUE(json.ok()) << json.error().message;
      EXPECT_TRUE(json->is_object());
    }
  }
}

// A marker that is spelled with ordinary tokens is text.
TEST_F(OutputParserTest, SpelledMarkersAreTextAmongIds) {
  const std::string text =
      "<|channel>thought\nx\n<channel|><|tool_call>call:f{}<tool_call|><turn|>y";
  const auto ids = tokenizer_->encode(text, {.parse_special = false});
  EXPECT_EQ(parse_ids(ids)["content"], text);
  EXPECT_EQ(parse_ids(ids)["finish_reason"], "stop");
  auto call = tokenizer_->encode("<|tool_call>call:f{a:<|\"|>", {.parse_special = true});
  const auto spelled = tokenizer_->encode("<|\"|><tool_call|>", {.parse_special = false});
  const auto end = tokenizer_->encode("<|\"|>}<tool_call|>", {.parse_special = true});
  call.insert(call.end(), spelled.begin(), spelled.end());
  call.insert(call.end(), end.begin(), end.end());
  EXPECT_EQ(parse_ids(call)["tool_calls"][0]["arguments"], R"({"a":"<|\"|><tool_call|>"})");
}

TEST_F(OutputParserTest, TextComesAsSoonAsItIsCertain) {
  OutputParser parser(*tokenizer_, markers_);
  const auto text_of = [&](std::string_view bytes) {
    std::string text;
    for (const OutputEvent& event : parser.push_text(bytes)) text += event.text;
    return text;
  };
  EXPECT_EQ(text_of("Hi"), "Hi");
  EXPECT_EQ(text_of(" <"), " ");
  EXPECT_EQ(text_of("|b"), "<|b");
  EXPECT_EQ(text_of("\xE6\x97"), "");
  EXPECT_EQ(text_of("\xA5"), "日");
  EXPECT_EQ(text_of("<|channel>thought\n"), "");
  EXPECT_EQ(text_of("a\n"), "a");
  EXPECT_EQ(text_of("b"), "\nb");
  EXPECT_TRUE(parser.in_reasoning());
  // Of a call nothing is told before it is whole.
  EXPECT_TRUE(parser.push_text("<channel|><|tool_call>call:f{a:1}").empty());
  const auto events = parser.push_text("<tool_call|>");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, OutputEvent::Kind::kCall);
  EXPECT_EQ(events[0].call.arguments, R"({"a":1})");
}

TEST_F(OutputParserTest, IllFormedBytesBecomeReplacementCharacters) {
  const std::string text = "a\xFF<|channel>thought\n\xC3\n<channel|>b\xE6\x97";
  const base::Json whole = parse({text});
  EXPECT_EQ(whole["content"],
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
  EXPECT_EQ(whole["reasoning"], "\xEF\xBF\xBD");
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    EXPECT_EQ(parse({std::string_view(text).substr(0, cut), std::string_view(text).substr(cut)}),
              whole);
  }
}

TEST_F(OutputParserTest, ACallLongerThanTheLimitIsText) {
  const std::string text = "<|tool_call>call:f{a:<|\"|>日本語日本語日本語<|\"|>}<tool_call|>after";
  for (size_t limit = 1; limit < 48; ++limit) {
    const OutputOptions options{.max_call_bytes = limit};
    const base::Json whole = parse({text}, base::Json::object(), options);
    if (whole["tool_calls"].empty()) {
      // The closing marker no longer closes a call, and is left out as any stray one.
      EXPECT_EQ(whole["content"], text.substr(0, text.size() - 17) + "after") << limit;
      EXPECT_EQ(whole["broken_calls"].size(), 1u);
    } else {
      EXPECT_GE(limit, 40u);
    }
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      const std::string_view view = text;
      ASSERT_EQ(parse({view.substr(0, cut), view.substr(cut)}, base::Json::object(), options),
                whole);
    }
  }
}

TEST_F(OutputParserTest, GoesOnPastTheEndWhereAsked) {
  const base::Json output = parse({"a<turn|>b<|tool_call>call:f{<eos>}<tool_call|>c"},
                                  base::Json::object(), {.stop_at_end = false});
  EXPECT_EQ(output["content"], "abc");
  EXPECT_EQ(output["tool_calls"].size(), 1u);
}

TEST_F(OutputParserTest, AVocabularyWithoutChannelsHasNoneInItsOutput) {
  const auto tokenizer = tiny_tokenizer("json");
  const MarkerSet markers(*tokenizer);
  EXPECT_FALSE(markers.has_channels());
  OutputParser parser(*tokenizer, markers);
  const auto events = parser.push_text("<|channel>x<|tool_call>");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].text, "<|channel>x<|tool_call>");
}

// Twice the text takes about twice the work: a quadratic parser would not come to an end here.
TEST_F(OutputParserTest, LongOutputs) {
  constexpr size_t kBytes = 300'000;
  const auto repeat = [](std::string_view piece) {
    std::string text;
    while (text.size() < kBytes) text += piece;
    return text;
  };
  const std::string open = "<|tool_call>call:f{a:[";
  for (const std::string& text :
       {repeat("<"), repeat("<|channel"), repeat("<|channel>"), repeat("a:"), open + repeat("1,"),
        open + repeat("<|\"|>x<|\"|>,"), "<|tool_call>call:f{" + repeat("k: "),
        "<|tool_call>call:f{" + repeat("k:1,"), "<|tool_call>call:f{" + repeat("1:"),
        "<|tool_call>call:f{a:" + repeat("\""), "<|tool_call>call:f{a:" + repeat("\\u00")}) {
    std::vector<std::string_view> pieces;
    for (size_t i = 0; i < text.size(); i += 16) {
      pieces.push_back(std::string_view(text).substr(i, 16));
    }
    EXPECT_EQ(parse(pieces), parse({text}));
  }
}

}  // namespace
}  // namespace markbase::tokenizer
