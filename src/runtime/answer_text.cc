#include "runtime/answer_text.h"

#include <algorithm>
#include <utility>

namespace markbase::runtime {
namespace {

using tokenizer::OutputEvent;

// Ids that hold a turn are a chat, however they came here.
bool is_chat(const tokenizer::Tokenizer& tokenizer, const Request& request,
             std::span<const int32_t> prompt_ids) {
  if (request.ids.empty()) return !request.text_is_set && request.text.empty();
  const auto turn = tokenizer.find("<|turn>");
  return turn && std::find(prompt_ids.begin(), prompt_ids.end(), *turn) != prompt_ids.end();
}

}  // namespace

AnswerText::AnswerText(const tokenizer::Tokenizer& tokenizer, const Request& request,
                       std::span<const int32_t> prompt_ids)
    : markers_(tokenizer), decoder_(tokenizer, /*skip_special=*/true), stops_(request.stop) {
  if (!markers_.has_channels() || !is_chat(tokenizer, request, prompt_ids)) return;
  parser_.emplace(tokenizer, markers_,
                  tokenizer::OutputOptions{.stop_at_end = !request.ignore_eos});
  parser_->continue_from(prompt_ids);
}

std::vector<OutputPiece> AnswerText::push(int32_t id) {
  if (parser_) return show(parser_->push(id));
  std::vector<OutputPiece> pieces;
  show_text(decoder_.push(id), &pieces);
  return pieces;
}

std::vector<OutputPiece> AnswerText::finish(bool cut) {
  std::vector<OutputPiece> pieces;
  if (parser_) {
    pieces = show(parser_->finish(cut));
  } else {
    show_text(decoder_.finish(), &pieces);
  }
  std::string rest = stops_.finish();
  text_ += rest;
  if (!rest.empty()) pieces.push_back({OutputPiece::Kind::kContent, std::move(rest), {}});
  return pieces;
}

std::vector<OutputPiece> AnswerText::show(std::vector<OutputEvent> events) {
  std::vector<OutputPiece> pieces;
  for (OutputEvent& event : events) {
    if (stopped()) break;
    collector_.add({&event, 1});
    switch (event.kind) {
      case OutputEvent::Kind::kContent:
      case OutputEvent::Kind::kBrokenCall:
        show_text(std::move(event.text), &pieces);
        break;
      case OutputEvent::Kind::kReasoning:
        pieces.push_back({OutputPiece::Kind::kReasoning, std::move(event.text), {}});
        break;
      case OutputEvent::Kind::kCall:
        pieces.push_back({OutputPiece::Kind::kToolCall, {}, std::move(event.call)});
        break;
      case OutputEvent::Kind::kLabel:
      case OutputEvent::Kind::kAfterEnd:
        break;
    }
  }
  return pieces;
}

void AnswerText::show_text(std::string text, std::vector<OutputPiece>* pieces) {
  text = stops_.push(text);
  text_ += text;
  if (!text.empty()) pieces->push_back({OutputPiece::Kind::kContent, std::move(text), {}});
}

void AnswerText::move_to(Completion* completion) {
  ParsedOutput output = std::move(collector_).finish(completion->finish_reason);
  completion->text = std::move(text_);
  completion->reasoning = std::move(output.reasoning);
  completion->labels = std::move(output.labels);
  completion->tool_calls = std::move(output.tool_calls);
  completion->broken_calls = std::move(output.broken_calls);
  completion->finish_reason = std::move(output.finish_reason);
}

}  // namespace markbase::runtime
