#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "stress/stress.h"

namespace markbase::stress {
namespace {

bool same(const TokenLogprob& a, const TokenLogprob& b) {
  return a.id == b.id && a.logprob == b.logprob;
}

// As far as there are any of both.
void check_logprobs(const Completion& got, const Completion& expected, Report& report) {
  if (got.logprobs.size() != (expected.logprobs.empty() ? 0 : got.ids.size())) {
    return report.fault(Fault::kLost, fmt::format("{} log probabilities of {} tokens",
                                                  got.logprobs.size(), got.ids.size()));
  }
  const size_t count = std::min(got.logprobs.size(), expected.logprobs.size());
  for (size_t i = 0; i < count; ++i) {
    const TokenLogprobs& a = got.logprobs[i];
    const TokenLogprobs& b = expected.logprobs[i];
    // What is impossible has the logarithm of zero, but it is never drawn.
    if (!std::isfinite(a.chosen.logprob)) {
      report.fault(Fault::kNotFinite, fmt::format("log probability of token {}", i));
    }
    if (std::ranges::any_of(a.top, [](const auto& t) { return std::isnan(t.logprob); })) {
      report.fault(Fault::kNotFinite, fmt::format("log probabilities of place {}", i));
    }
    if (!same(a.chosen, b.chosen) || !std::ranges::equal(a.top, b.top, same)) {
      report.fault(Fault::kMixedUp, fmt::format("other log probabilities at place {}", i));
    }
  }
}

std::string shown(const std::vector<int32_t>& ids) {
  return fmt::format("[{}]", fmt::join(ids, " "));
}

}  // namespace

void check_completion(const Completion& got, const Completion& expected, bool whole,
                      Report& report) {
  const size_t common = std::min(got.ids.size(), expected.ids.size());
  const bool same_begin = std::equal(got.ids.begin(), got.ids.begin() + static_cast<long>(common),
                                     expected.ids.begin());
  if (!same_begin || got.ids.size() > expected.ids.size()) {
    report.fault(Fault::kMixedUp,
                 fmt::format("expected {}, got {}", shown(expected.ids), shown(got.ids)));
  } else if (whole && got.ids.size() < expected.ids.size()) {
    report.fault(Fault::kLost,
                 fmt::format("expected {}, got {}", shown(expected.ids), shown(got.ids)));
  } else if (whole && (got.text != expected.text || got.reasoning != expected.reasoning)) {
    report.fault(Fault::kMixedUp, "the same tokens, another text");
  }
  if (whole && got.finish_reason != expected.finish_reason) {
    report.fault(Fault::kMixedUp, fmt::format("ended by {}, expected {}", got.finish_reason,
                                              expected.finish_reason));
  }
  check_logprobs(got, expected, report);
}

Visit::Visit(const Case& asked, int64_t cancel_after)
    : case_(asked),
      cancel_after_(cancel_after),
      may_be_cancelled_(cancel_after >= 0),
      ids_(asked.expected.size()),
      texts_(asked.expected.size()) {}

Visit::~Visit() {
  // The callback writes here until then.
  if (handle_) (void)handle_->wait_all();
}

bool Visit::start(Engine& engine, Report& report) {
  auto handle = engine.submit(case_.request, [this](const TokenEvent& e) { return on_event(e); });
  if (!handle.ok()) {
    report.fault(Fault::kFailed, handle.error().message);
    return false;
  }
  handle_ = std::move(*handle);
  return true;
}

bool Visit::on_event(const TokenEvent& event) {
  if (event.answer_idx >= ids_.size()) return false;  // finish() finds tokens missing
  if (event.id >= 0) {
    ids_[event.answer_idx].push_back(event.id);
    ++num_events_;
  }
  if (event.kind == OutputPiece::Kind::kContent) {
    texts_[event.answer_idx] += std::string(event.text);
  }
  return cancel_after_ < 0 || num_events_ < cancel_after_;
}

void Visit::cancel() {
  may_be_cancelled_ = true;
  handle_->cancel();
}

void Visit::finish(Report& report) {
  const Result<std::vector<Completion>> answers = handle_->wait_all();
  handle_.reset();
  if (!answers.ok()) return report.fault(Fault::kFailed, answers.error().message);
  if (answers->size() != case_.expected.size()) {
    return report.fault(Fault::kLost,
                        fmt::format("{} answers of {}", answers->size(), case_.expected.size()));
  }
  for (size_t i = 0; i < answers->size(); ++i) {
    const Completion& got = (*answers)[i];
    const bool cut = may_be_cancelled_ && got.finish_reason == "cancelled";
    check_completion(got, case_.expected[i], !cut, report);
    if (ids_[i].size() < got.ids.size()) {
      report.fault(Fault::kLost,
                   fmt::format("streamed {} tokens of {}", ids_[i].size(), got.ids.size()));
    } else if (ids_[i] != got.ids) {
      report.fault(Fault::kRepeated,
                   fmt::format("streamed {}, answered {}", shown(ids_[i]), shown(got.ids)));
    } else if (!cut && texts_[i] != got.text) {
      report.fault(Fault::kMixedUp, "streamed another text than the answer's");
    }
    if (cut) {
      report.cancelled();
    } else {
      report.answer(got);
    }
  }
  report.sample_memory();
}

}  // namespace markbase::stress
