// The ids of an answer to what its reader sees: thoughts, text and calls, up to a stop string.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "markbase/options.h"
#include "runtime/stop_strings.h"
#include "tokenizer/output_parser.h"
#include "tokenizer/tokenizer.h"

namespace markbase::runtime {

class AnswerText {
 public:
  // An answer in a chat format with thoughts and calls is taken apart; plain continuation is text
  // with control tokens left out. `tokenizer` must outlive it.
  AnswerText(const tokenizer::Tokenizer& tokenizer, const Request& request,
             std::span<const int32_t> prompt_ids);

  // What may be shown now.
  std::vector<OutputPiece> push(int32_t id);
  // The rest. `cut`: the length limit ended the answer.
  std::vector<OutputPiece> finish(bool cut);
  // A stop string is complete.
  bool stopped() const { return stops_.stopped(); }
  // Puts text, thoughts and calls into the completion; a finish_reason other than "cancelled"
  // becomes "tool_calls" where there is a call and none was cut.
  void move_to(Completion* completion);

 private:
  std::vector<OutputPiece> show(std::vector<tokenizer::OutputEvent> events);
  void show_text(std::string text, std::vector<OutputPiece>* pieces);

  tokenizer::MarkerSet markers_;
  tokenizer::StreamDecoder decoder_;
  std::optional<tokenizer::OutputParser> parser_;
  tokenizer::OutputCollector collector_;
  StopScanner stops_;
  std::string text_;
};

}  // namespace markbase::runtime
