#include "support/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "support/random.h"

namespace markbase::testing {
namespace {

using runtime::RequestState;

// FNV-1a over words: enough to tell different bits apart.
uint64_t hash_of(std::span<const float> values) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const float value : values) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    hash = (hash ^ bits) * 0x100000001b3U;
  }
  return hash;
}

std::vector<int32_t> random_ids(Random& random, int64_t count, int64_t vocab_size) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(vocab_size));
  return ids;
}

int64_t random_length(Random& random, int64_t most) {
  // Most are short; one in sixteen may be anything.
  const int64_t usual = std::min<int64_t>(most, 200);
  return 1 + random.below(random.below(16) == 0 ? most : usual);
}

Request random_request(Random& random, const std::vector<std::vector<int32_t>>& texts,
                       const TrafficLimits& limits) {
  Request request;
  const int64_t length = random_length(random, limits.most_prompt_tokens);
  const std::vector<int32_t>& text =
      texts[static_cast<size_t>(random.below(static_cast<int64_t>(texts.size())))];
  const int64_t common = random.below(4) == 0 ? length : random.below(length + 1);
  request.ids.assign(text.begin(), text.begin() + common);
  const std::vector<int32_t> own = random_ids(random, length - common, limits.vocab_size);
  request.ids.insert(request.ids.end(), own.begin(), own.end());
  request.max_tokens = random.below(limits.most_new_tokens + 1);
  request.ignore_eos = true;
  SamplingOptions& s = request.sampling;
  s.temperature = random.below(3) == 0 ? 0.0F : 0.5F + random.uniform();
  s.top_k = static_cast<int>(random.below(3) == 0 ? 0 : 1 + random.below(50));
  s.top_p = random.below(2) == 0 ? 1.0F : 0.5F + 0.5F * random.uniform();
  s.repetition_penalty = random.below(3) == 0 ? 1.3F : 1.0F;
  s.seed = random.next();
  request.answer_idx = static_cast<uint32_t>(random.below(3));
  request.num_answers = random.below(6) == 0 ? 2 + static_cast<int>(random.below(3)) : 1;
  request.priority = static_cast<int>(random.below(8) == 0 ? random.below(3) : 0);
  return request;
}

// One item under way.
struct Visitor {
  std::shared_ptr<RequestState> state;
  int64_t num_tokens = 0;
};

}  // namespace

std::vector<TrafficItem> random_traffic(uint64_t seed, const TrafficLimits& limits) {
  Random random(seed);
  std::vector<std::vector<int32_t>> texts;
  for (int i = 0; i < 4; ++i)
    texts.push_back(random_ids(random, limits.most_prompt_tokens, limits.vocab_size));
  std::vector<TrafficItem> items;
  int64_t step = 0;
  for (int64_t i = 0; i < limits.num_requests; ++i) {
    TrafficItem item;
    item.request = random_request(random, texts, limits);
    // They come in bursts.
    step += random.below(3) == 0 ? random.below(12) : 0;
    item.arrives_at = step;
    if (random.below(8) == 0) item.cancel_after = random.below(6);
    items.push_back(std::move(item));
  }
  return items;
}

std::vector<TrafficResult> run_traffic(runtime::Batch& batch,
                                       const std::vector<TrafficItem>& items) {
  std::vector<TrafficResult> results(items.size());
  std::vector<Visitor> visitors(items.size());
  std::map<const RequestState*, size_t> item_of;
  batch.set_observer([&](const RequestState& state, size_t number, int64_t num_tokens,
                         std::span<const float> logits) {
    results[item_of.at(&state)].logits[{number, num_tokens}] = hash_of(logits);
  });
  size_t next = 0;
  for (int64_t step = 0;; ++step) {
    for (; next < items.size() && items[next].arrives_at <= step; ++next) {
      const TrafficItem& item = items[next];
      Visitor& visitor = visitors[next];
      const auto on_event = [&visitor, after = item.cancel_after](const TokenEvent& event) {
        visitor.num_tokens += event.id >= 0 ? 1 : 0;
        if (after >= 0 && visitor.num_tokens >= after) visitor.state->cancel();
        return true;
      };
      visitor.state = std::make_shared<RequestState>(item.request, item.request.ids, on_event,
                                                     std::thread::id());
      item_of[visitor.state.get()] = next;
      batch.add(visitor.state);
      if (item.cancel_after == 0) visitor.state->cancel();
    }
    if (!batch.step() && next == items.size()) break;
  }
  for (size_t i = 0; i < items.size(); ++i) {
    Result<std::vector<Completion>> done = visitors[i].state->wait_all();
    results[i].ok = done.ok();
    if (done.ok()) {
      results[i].completions = *std::move(done);
    } else {
      results[i].error = done.error().message;
    }
  }
  batch.set_observer({});
  return results;
}

std::string difference(const TrafficItem& item, const TrafficResult& shared,
                       const TrafficResult& alone) {
  if (!alone.ok || !shared.ok) return "an error: " + alone.error + shared.error;
  for (size_t number = 0; number < alone.completions.size(); ++number) {
    const Completion& a = alone.completions[number];
    const Completion& s = shared.completions[number];
    const bool cancelled = s.finish_reason == "cancelled";
    if (cancelled && item.cancel_after < 0) return "cancelled by nobody";
    if (!cancelled && s.finish_reason != a.finish_reason) {
      return fmt::format("answer {}: expected to end by {}, got {}", number, a.finish_reason,
                         s.finish_reason);
    }
    if (s.ids.size() > a.ids.size() || (!cancelled && s.ids.size() != a.ids.size())) {
      return fmt::format("answer {}: expected {} ids, got {}", number, a.ids.size(), s.ids.size());
    }
    if (!std::equal(s.ids.begin(), s.ids.end(), a.ids.begin()))
      return fmt::format("answer {}: other ids", number);
    if (!cancelled && s.answer_idx != a.answer_idx) return "another answer's number";
  }
  if (shared.logits.size() > alone.logits.size()) return "drawn more often than alone";
  for (const auto& [place, hash] : shared.logits) {
    const auto found = alone.logits.find(place);
    if (found == alone.logits.end() || found->second != hash) {
      return fmt::format("answer {}: other logits after {} ids", place.first, place.second);
    }
  }
  if (item.cancel_after < 0 && shared.logits.size() != alone.logits.size())
    return "not every draw was seen";
  return {};
}

}  // namespace markbase::testing
