#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "stress/stress.h"

namespace markbase::stress {
namespace {

constexpr size_t kProbes = 6;

std::vector<int32_t> random_ids(Random& random, size_t count, int64_t vocab_size) {
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) {
    id = static_cast<int32_t>(below(random, static_cast<size_t>(vocab_size)));
  }
  return ids;
}

float from(Random& random, std::initializer_list<float> values) {
  return *(values.begin() + below(random, values.size()));
}

// Prompts that begin with a part of one of a few texts, most of them short; every way to draw.
Request random_request(Random& random, const std::vector<std::vector<int32_t>>& texts,
                       int64_t vocab_size) {
  constexpr size_t kMostNew = 40;
  const auto most = static_cast<size_t>(kContextTokens) - kMostNew - 1;
  const size_t length = 1 + below(random, below(random, 8) == 0 ? most : 90);
  const std::vector<int32_t>& text = texts[below(random, texts.size())];
  const size_t common = below(random, length + 1);
  Request request;
  request.ids.assign(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(common));
  const std::vector<int32_t> own = random_ids(random, length - common, vocab_size);
  request.ids.insert(request.ids.end(), own.begin(), own.end());
  request.max_tokens = static_cast<int64_t>(below(random, kMostNew));
  request.ignore_eos = below(random, 4) != 0;
  SamplingOptions& s = request.sampling;
  s.temperature = from(random, {0.0F, 0.5F, 1.0F, 1.5F});
  s.top_k = static_cast<int>(below(random, 3) * 20);
  s.top_p = from(random, {1.0F, 0.95F, 0.5F});
  s.min_p = from(random, {0.0F, 0.0F, 0.05F});
  s.repetition_penalty = from(random, {1.0F, 1.0F, 1.3F});
  s.seed = random();
  request.num_answers = below(random, 6) == 0 ? 2 + static_cast<int>(below(random, 3)) : 1;
  request.top_logprobs = below(random, 3) == 0 ? static_cast<int>(below(random, 6)) : -1;
  request.priority = below(random, 8) == 0 ? static_cast<int>(below(random, 3)) : 0;
  return request;
}

// One answer at a time, as if there were no others.
Result<std::vector<Completion>> answers_alone(Engine& engine, const Request& request) {
  std::vector<Completion> answers;
  for (int i = 0; i < request.num_answers; ++i) {
    Request single = request;
    single.num_answers = 1;
    single.answer_idx = static_cast<uint32_t>(i);
    MB_ASSIGN(Completion answer, engine.generate(single));
    answers.push_back(std::move(answer));
  }
  return answers;
}

Result<std::vector<float>> last_logits(Engine& engine, const std::vector<int32_t>& ids) {
  std::vector<float> logits;
  MB_TRY(engine.logits(ids, true, [&](int64_t, std::span<const float> row) -> Result<void> {
    logits.assign(row.begin(), row.end());
    return {};
  }));
  return logits;
}

bool all_finite(const std::vector<float>& values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

}  // namespace

EngineOptions engine_options(const Options& options, int64_t max_sequences) {
  EngineOptions engine;
  engine.num_threads = options.num_threads;
  engine.context_tokens = kContextTokens;
  engine.max_sequences = max_sequences;
  engine.max_queue = 4096;
  return engine;
}

Result<Reference> compute_reference(const Options& options, Report& report) {
  EngineOptions alone = engine_options(options, 1);
  alone.prefix_cache = false;
  MB_ASSIGN(Engine engine, Engine::load(options.model, alone));
  const int64_t vocab_size = engine.info().vocab_size;
  Random random(options.seed);
  std::vector<std::vector<int32_t>> texts;
  for (int i = 0; i < 4; ++i) {
    texts.push_back(random_ids(random, static_cast<size_t>(kContextTokens), vocab_size));
  }
  Reference reference;
  while (reference.cases.size() < options.num_cases) {
    Case made{random_request(random, texts, vocab_size), {}};
    MB_ASSIGN(made.expected, answers_alone(engine, made.request));
    for (const Completion& answer : made.expected) {
      check_completion(answer, answer, true, report);
      report.answer(answer);
    }
    reference.cases.push_back(std::move(made));
  }
  for (size_t i = 0; i < kProbes; ++i) {
    Probe probe{random_ids(random, 1 + below(random, 100), vocab_size), {}, {}};
    MB_ASSIGN(probe.logits, last_logits(engine, probe.ids));
    EmbedRequest embed;
    embed.ids = probe.ids;
    MB_ASSIGN(probe.embedding, engine.embed(embed));
    if (!all_finite(probe.logits) || !all_finite(probe.embedding)) {
      report.fault(Fault::kNotFinite, "logits or an embedding, alone");
    }
    reference.probes.push_back(std::move(probe));
  }
  return reference;
}

void check_probe(Engine& engine, const Probe& probe, Report& report) {
  const Result<std::vector<float>> logits = last_logits(engine, probe.ids);
  EmbedRequest embed;
  embed.ids = probe.ids;
  const Result<std::vector<float>> embedding = engine.embed(embed);
  if (!logits.ok() || !embedding.ok()) {
    return report.fault(Fault::kFailed, (logits.ok() ? embedding.error() : logits.error()).message);
  }
  if (!all_finite(*logits) || !all_finite(*embedding)) {
    report.fault(Fault::kNotFinite, "logits or an embedding");
  }
  if (*logits != probe.logits) report.fault(Fault::kMixedUp, "other logits than alone");
  if (*embedding != probe.embedding) report.fault(Fault::kMixedUp, "another embedding than alone");
}

}  // namespace markbase::stress
