#include "tokenizer/output_parser.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tokenizer/vocabulary.h"

namespace markbase::tokenizer {
namespace {

using Kind = OutputEvent::Kind;

constexpr std::string_view kThought = "thought";
// A word on the first line of a thought is its label up to this length; longer ones are text.
constexpr size_t kMaxLabelBytes = 32;

bool in_label(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
         c == '-';
}

// Where a prompt says what the output begins with.
constexpr std::string_view kStarts[] = {"<|turn>", "<|channel>", "<channel|>", "<tool_response|>"};

}  // namespace

OutputParser::OutputParser(const Tokenizer& tokenizer, const MarkerSet& markers,
                           const OutputOptions& options)
    : tokenizer_(tokenizer),
      markers_(markers),
      options_(options),
      decoder_(tokenizer, /*skip_special=*/false),
      scanner_(markers) {}

void OutputParser::continue_from(std::string_view prompt) {
  size_t nearest = prompt.npos;
  std::string_view start;
  for (const std::string_view spelling : kStarts) {
    const size_t at = prompt.rfind(spelling);
    if (at == prompt.npos || (nearest != prompt.npos && at < nearest)) continue;
    nearest = at;
    start = spelling;
  }
  if (start == kStarts[1]) begin_thought(prompt.substr(nearest + start.size()));
}

void OutputParser::continue_from(std::span<const int32_t> prompt) {
  const auto is_start = [&](int32_t id) {
    const std::string_view piece = tokenizer_.piece(id);
    return is_special(tokenizer_.kind(id)) &&
           std::find(std::begin(kStarts), std::end(kStarts), piece) != std::end(kStarts);
  };
  size_t after = prompt.size();
  while (after > 0 && !is_start(prompt[after - 1])) --after;
  if (after == 0 || tokenizer_.piece(prompt[after - 1]) != kStarts[1]) return;
  begin_thought(tokenizer_.decode(prompt.subspan(after), false));
}

void OutputParser::begin_thought(std::string_view written) {
  state_ = State::kLabel;
  label_.clear();
  label_prompt_bytes_ = 0;
  if (written.size() <= kMaxLabelBytes && std::all_of(written.begin(), written.end(), in_label)) {
    label_ = written;
    label_prompt_bytes_ = written.size();
  } else {
    state_ = State::kReasoning;
  }
}

std::vector<OutputEvent> OutputParser::push(int32_t id) {
  const MarkerSet::Entry* entry = markers_.by_id(id);
  if (entry == nullptr) {
    on_text(decoder_.push(id));
  } else {
    on_text(decoder_.finish());
    on_marker(*entry);
  }
  return take_events();
}

std::vector<OutputEvent> OutputParser::push_text(std::string_view bytes) {
  scanner_.push(
      bytes, [&](std::string_view text) { on_text(text); },
      [&](const MarkerSet::Entry& entry) { on_marker(entry); });
  return take_events();
}

std::vector<OutputEvent> OutputParser::finish(bool cut) {
  on_text(decoder_.finish());
  scanner_.finish([&](std::string_view text) { on_text(text); });
  if (state_ == State::kCall) end_call(false, !cut, cut);
  leave_thought(false);
  return take_events();
}

void OutputParser::on_text(std::string_view text) {
  if (text.empty()) return;
  switch (state_) {
    case State::kContent:
      return on_content(text);
    case State::kLabel:
      return on_label(text);
    case State::kReasoning:
      return on_reasoning(text);
    case State::kCall:
      return on_call_text(text);
    case State::kEnded:
      return emit(Kind::kAfterEnd, text);
  }
}

void OutputParser::on_marker(const MarkerSet::Entry& entry) {
  if (state_ == State::kEnded) return emit(Kind::kAfterEnd, entry.spelling);
  if (state_ == State::kCall && on_call_marker(entry)) return;
  switch (entry.marker) {
    case Marker::kChannelOpen:
      leave_thought(false);
      return begin_thought({});
    case Marker::kChannelClose:
      return leave_thought(true);
    case Marker::kCallOpen:
      leave_thought(false);
      trim_newlines_ = false;
      in_string_ = false;
      state_ = State::kCall;
      return;
    case Marker::kQuote:
      return on_text(entry.spelling);
    case Marker::kEnd:
      if (!options_.stop_at_end) return;
      leave_thought(false);
      state_ = State::kEnded;
      return;
    case Marker::kCallClose:  // one too many
    case Marker::kHidden:
      return;
  }
}

void OutputParser::on_content(std::string_view text) {
  if (trim_newlines_) {
    text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
    if (text.empty()) return;
    trim_newlines_ = false;
  }
  emit(Kind::kContent, text);
}

void OutputParser::on_label(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_label(text[i]) && label_.size() < kMaxLabelBytes) {
      label_.push_back(text[i]);
      continue;
    }
    std::string_view rest = text.substr(i);
    const bool is_label = text[i] == '\n' && !label_.empty();
    if (is_label) rest.remove_prefix(1);
    leave_label(is_label ? LabelEnd::kNewline : LabelEnd::kText);
    return on_text(rest);
  }
}

void OutputParser::leave_label(LabelEnd end) {
  if (state_ != State::kLabel) return;
  state_ = State::kReasoning;
  const std::string label = std::exchange(label_, {});
  const size_t written = std::exchange(label_prompt_bytes_, 0);
  if (label == kThought && end != LabelEnd::kText) return;
  if (end == LabelEnd::kNewline) {
    emit(Kind::kLabel, label);
  } else {
    on_reasoning(std::string_view(label).substr(written));
  }
}

void OutputParser::on_reasoning(std::string_view text) {
  if (text.empty()) return;
  if (std::exchange(newline_held_, false)) emit(Kind::kReasoning, "\n");
  if (text.ends_with('\n')) {
    newline_held_ = true;
    text.remove_suffix(1);
  }
  emit(Kind::kReasoning, text);
}

void OutputParser::leave_thought(bool closed) {
  if (!in_reasoning()) return;
  leave_label(LabelEnd::kThoughtEnds);
  if (std::exchange(newline_held_, false) && !closed) emit(Kind::kReasoning, "\n");
  state_ = State::kContent;
  trim_newlines_ = closed;
}

void OutputParser::on_call_text(std::string_view text) {
  size_t room = options_.max_call_bytes - std::min(call_.size(), options_.max_call_bytes);
  if (text.size() <= room) return call_.add_text(text);
  while (room > 0 && (static_cast<uint8_t>(text[room]) & 0xC0) == 0x80) --room;
  call_.add_text(text.substr(0, room));
  break_call("longer than the limit", false, false);
  on_text(text.substr(room));
}

bool OutputParser::on_call_marker(const MarkerSet::Entry& entry) {
  const auto keep = [&] {
    if (call_.size() + CallText::kMarkerBytes > options_.max_call_bytes) {
      break_call("longer than the limit", false, false);
      return false;
    }
    call_.add_marker(entry, markers_);
    return true;
  };
  if (entry.marker == Marker::kQuote) {
    in_string_ = !in_string_;
    return keep();
  }
  if (in_string_) return keep();
  switch (entry.marker) {
    case Marker::kCallClose:
      end_call(true, false, false);
      return true;
    case Marker::kEnd:
      if (!options_.stop_at_end) return true;
      end_call(false, true, false);
      return false;
    case Marker::kCallOpen:
    case Marker::kChannelOpen:
      end_call(false, false, false);
      return false;
    default:
      return keep();
  }
}

// `forgive_brackets`: the output ended here of itself, so closing brackets may be missing.
void OutputParser::end_call(bool closed, bool forgive_brackets, bool cut) {
  CallResult result = parse_call(call_, markers_);
  const bool is_call = result.status == CallResult::Status::kComplete ||
                       (result.status == CallResult::Status::kUnclosed && forgive_brackets);
  if (!is_call) return break_call(std::move(result.why), closed, cut);
  call_.clear();
  state_ = State::kContent;
  OutputEvent event;
  event.kind = Kind::kCall;
  event.call = std::move(result.call);
  events_.push_back(std::move(event));
}

void OutputParser::break_call(std::string why, bool closed, bool cut) {
  OutputEvent event;
  event.kind = Kind::kBrokenCall;
  event.text = "<|tool_call>" + call_.spelled(markers_) + (closed ? "<tool_call|>" : "");
  event.why = cut ? "cut by the length limit" : std::move(why);
  event.truncated = cut;
  events_.push_back(std::move(event));
  call_.clear();
  state_ = State::kContent;
}

void OutputParser::emit(Kind kind, std::string_view text) {
  if (text.empty()) return;
  if (!events_.empty() && events_.back().kind == kind && kind != Kind::kLabel &&
      kind != Kind::kBrokenCall) {
    events_.back().text.append(text);
    return;
  }
  OutputEvent event;
  event.kind = kind;
  event.text = text;
  events_.push_back(std::move(event));
}

std::vector<OutputEvent> OutputParser::take_events() { return std::exchange(events_, {}); }

void OutputCollector::add(std::span<const OutputEvent> events) {
  for (const OutputEvent& event : events) {
    switch (event.kind) {
      case Kind::kContent:
        output_.content += event.text;
        break;
      case Kind::kReasoning:
        output_.reasoning += event.text;
        break;
      case Kind::kLabel:
        output_.labels.push_back(event.text);
        break;
      case Kind::kCall:
        output_.tool_calls.push_back(event.call);
        break;
      case Kind::kBrokenCall:
        output_.content += event.text;
        output_.broken_calls.push_back({event.text, event.why, event.truncated});
        cut_ |= event.truncated;
        break;
      case Kind::kAfterEnd:
        output_.after_end += event.text;
        break;
    }
  }
}

ParsedOutput OutputCollector::finish(std::string_view reason) && {
  const bool calls = !output_.tool_calls.empty() && !cut_ && reason != "cancelled";
  output_.finish_reason = calls ? "tool_calls" : reason;
  return std::move(output_);
}

}  // namespace markbase::tokenizer
