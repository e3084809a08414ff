// markbase::OutputParser and ToolDeclarations over the tokenizer room.
#include "base/guard.h"
#include "base/repeated_key.h"
#include "markbase/output.h"
#include "runtime/tokenizer_access.h"
#include "tokenizer/output_parser.h"
#include "tokenizer/tool_schema.h"

namespace markbase {
namespace {

// Labels and what follows the end are told at the end only.
std::vector<OutputPiece> pieces_of(std::vector<tokenizer::OutputEvent> events) {
  using From = tokenizer::OutputEvent::Kind;
  using To = OutputPiece::Kind;
  std::vector<OutputPiece> pieces;
  for (tokenizer::OutputEvent& event : events) {
    if (event.kind == From::kLabel || event.kind == From::kAfterEnd) continue;
    const To kind = event.kind == From::kReasoning ? To::kReasoning
                    : event.kind == From::kCall    ? To::kToolCall
                                                   : To::kContent;
    pieces.push_back({kind, std::move(event.text), std::move(event.call)});
  }
  return pieces;
}

}  // namespace

struct OutputParser::Impl {
  explicit Impl(const tokenizer::Tokenizer& tokenizer)
      : markers(tokenizer), parser(tokenizer, markers) {}
  // Keeps the events and shows them.
  std::vector<OutputPiece> take(std::vector<tokenizer::OutputEvent> events) {
    collector.add(events);
    return pieces_of(std::move(events));
  }

  tokenizer::MarkerSet markers;
  tokenizer::OutputParser parser;
  tokenizer::OutputCollector collector;
};

OutputParser::OutputParser(const Tokenizer& tokenizer)
    : impl_(std::make_unique<Impl>(TokenizerAccess::inner(tokenizer))) {}
OutputParser::OutputParser(OutputParser&&) noexcept = default;
OutputParser& OutputParser::operator=(OutputParser&&) noexcept = default;
OutputParser::~OutputParser() = default;

void OutputParser::continue_from(std::span<const int32_t> prompt_ids) {
  impl_->parser.continue_from(prompt_ids);
}
void OutputParser::continue_from(std::string_view prompt_text) {
  impl_->parser.continue_from(prompt_text);
}

std::vector<OutputPiece> OutputParser::push(std::span<const int32_t> ids) {
  std::vector<tokenizer::OutputEvent> events;
  for (const int32_t id : ids) {
    for (tokenizer::OutputEvent& event : impl_->parser.push(id)) events.push_back(std::move(event));
  }
  return impl_->take(std::move(events));
}

std::vector<OutputPiece> OutputParser::push_text(std::string_view bytes) {
  return impl_->take(impl_->parser.push_text(bytes));
}

bool OutputParser::ended() const { return impl_->parser.ended(); }

ParsedOutput OutputParser::finish(std::string_view reason, std::vector<OutputPiece>* rest) {
  if (impl_->parser.ended()) reason = "stop";
  std::vector<OutputPiece> pieces = impl_->take(impl_->parser.finish(reason == "length"));
  if (rest != nullptr) *rest = std::move(pieces);
  return std::move(impl_->collector).finish(reason);
}

struct ToolDeclarations::Impl {
  tokenizer::ToolSet set;
};

ToolDeclarations::ToolDeclarations(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ToolDeclarations::ToolDeclarations(ToolDeclarations&&) noexcept = default;
ToolDeclarations& ToolDeclarations::operator=(ToolDeclarations&&) noexcept = default;
ToolDeclarations::~ToolDeclarations() = default;

Result<ToolDeclarations> ToolDeclarations::from_json(std::string_view text) {
  return base::guarded("ToolDeclarations::from_json", [&]() -> Result<ToolDeclarations> {
    Result<base::Json> json = base::parse_json(text, "tools");
    if (!json.ok()) return Error{ErrorCode::kUsage, json.error().message};
    MB_TRY(base::check_no_repeated_key(text));
    MB_ASSIGN(tokenizer::ToolSet set, tokenizer::ToolSet::from_json(*json));
    return ToolDeclarations(std::make_unique<Impl>(Impl{std::move(set)}));
  });
}

std::vector<std::string> ToolDeclarations::faults(const ToolCall& call) const {
  return impl_->set.faults(call);
}

}  // namespace markbase
