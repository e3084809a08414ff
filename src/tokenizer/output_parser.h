// What a model writes, taken apart: thoughts, the answer and calls of tools.
//
// A streaming state machine over ids or text. However the output is cut, the events put together
// are the same. Nothing is lost: every character comes out again but the markers, the label
// "thought" with its newline, one newline in front of the end of a thought and the newlines after
// it. A call that cannot be read comes out as text, with a reason.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "markbase/output.h"
#include "tokenizer/call_parser.h"
#include "tokenizer/output_markers.h"
#include "tokenizer/tokenizer.h"

namespace markbase::tokenizer {

struct OutputEvent {
  enum class Kind : uint8_t {
    kContent,     // text of the answer
    kReasoning,   // text of a thought
    kLabel,       // the name of a thought's channel, where it is not "thought"
    kCall,        // a whole call
    kBrokenCall,  // `text` is part of the answer: a call as it was written; `why` it is none
    kAfterEnd,    // what was written after the end of the answer, markers spelled
  };
  Kind kind = Kind::kContent;
  std::string text;
  ToolCall call;
  std::string why;
  bool truncated = false;  // a broken call that the length limit cut
};

struct OutputOptions {
  // Otherwise what would end the answer is left out and the answer goes on.
  bool stop_at_end = true;
  // A longer call is given up, so that memory stays bounded.
  size_t max_call_bytes = size_t{1} << 23;
};

class OutputParser {
 public:
  // `tokenizer` and `markers` must outlive it.
  OutputParser(const Tokenizer& tokenizer, const MarkerSet& markers,
               const OutputOptions& options = {});

  // Before the first push: what the output continues. The nearest <|turn>, <|channel>, <channel|>
  // or <tool_response|> of the prompt tells whether it begins inside a thought, and whether the
  // label is already written.
  void continue_from(std::span<const int32_t> prompt);
  void continue_from(std::string_view prompt);

  // The events that are certain now. Not both: an output is pushed as ids or as text.
  std::vector<OutputEvent> push(int32_t id);
  std::vector<OutputEvent> push_text(std::string_view bytes);
  // `cut`: the length limit ended the output. A call it cut in two is none.
  std::vector<OutputEvent> finish(bool cut);

  // The output came to its end by a marker.
  bool ended() const { return state_ == State::kEnded; }
  bool in_reasoning() const { return state_ == State::kLabel || state_ == State::kReasoning; }

 private:
  enum class State : uint8_t { kContent, kLabel, kReasoning, kCall, kEnded };

  void begin_thought(std::string_view written);
  void on_text(std::string_view text);
  void on_marker(const MarkerSet::Entry& entry);
  void on_content(std::string_view text);
  void on_label(std::string_view text);
  void on_reasoning(std::string_view text);
  void on_call_text(std::string_view text);
  // True: the marker belongs to the call.
  bool on_call_marker(const MarkerSet::Entry& entry);
  // What follows a word that may be a label.
  enum class LabelEnd : uint8_t { kNewline, kText, kThoughtEnds };
  void leave_label(LabelEnd end);
  void leave_thought(bool closed);
  void end_call(bool closed, bool forgive_brackets, bool cut);
  void break_call(std::string why, bool closed, bool cut);
  void emit(OutputEvent::Kind kind, std::string_view text);
  std::vector<OutputEvent> take_events();

  const Tokenizer& tokenizer_;
  const MarkerSet& markers_;
  OutputOptions options_;
  StreamDecoder decoder_;
  MarkerScanner scanner_;
  State state_ = State::kContent;
  bool trim_newlines_ = false;     // at the beginning of content after a thought
  bool newline_held_ = false;      // of a thought: dropped if the thought ends here
  std::string label_;              // of a thought, as far as it may be one
  size_t label_prompt_bytes_ = 0;  // of label_ that the prompt wrote
  CallText call_;
  bool in_string_ = false;  // of call_
  std::vector<OutputEvent> events_;
};

// The events put together.
class OutputCollector {
 public:
  void add(std::span<const OutputEvent> events);
  // finish_reason: "tool_calls" where there is a call, none was cut and `reason` is not
  // "cancelled"; else `reason`.
  ParsedOutput finish(std::string_view reason) &&;

 private:
  ParsedOutput output_;
  bool cut_ = false;
};

}  // namespace markbase::tokenizer
