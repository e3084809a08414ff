#include "cli/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"

namespace markbase::cli {
namespace {

std::string name_of(std::string_view option, NamedAs named_as) {
  if (named_as == NamedAs::kOption) return fmt::format("--{}", option);
  std::string key(option);
  std::replace(key.begin(), key.end(), '-', '_');
  return fmt::format("\"{}\"", key);
}

Result<void> check_float(const std::optional<float>& value, const std::string& name, float min,
                         bool min_allowed, float max) {
  if (!value) return {};
  const bool above = min_allowed ? *value >= min : *value > min;
  if (std::isfinite(*value) && above && *value <= max) return {};
  return base::usage_error("{}: expected a number {} {} and at most {}, got {}", name,
                           min_allowed ? "at least" : "above", min, max, *value);
}

}  // namespace

void add_sampling_options(CLI::App& app, SamplingFlags& flags) {
  constexpr auto kMaxTokens = std::numeric_limits<int64_t>::max();
  app.add_option("-n", flags.max_tokens,
                 "tokens at most (default: to a stop or the end of the context)")
      ->check(CLI::Range(int64_t{0}, kMaxTokens));
  app.add_option("--temperature", flags.temperature,
                 "0 is greedy (default: the model's own, for Gemma 1)");
  app.add_option("--top-k", flags.top_k, "0 is off (default: the model's own, for Gemma 64)")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()));
  app.add_option("--top-p", flags.top_p, "1 is off (default: the model's own, for Gemma 0.95)");
  app.add_option("--min-p", flags.min_p, "0 is off");
  app.add_option("--repetition-penalty", flags.repetition_penalty, "1 is off");
  app.add_option("--seed", flags.seed,
                 "the same seed gives the same answer (default: a new one, which is said)");
  app.add_option("--stop", flags.stop, "end the answer at this text (repeatable)");
  app.add_flag("--ignore-eos", flags.ignore_eos, "go on past the end of the answer");
}

Result<void> check_sampling(const SamplingFlags& flags, NamedAs named_as) {
  const auto name = [&](std::string_view option) { return name_of(option, named_as); };
  MB_TRY(check_float(flags.temperature, name("temperature"), 0.0F, true, kMostTemperature));
  MB_TRY(check_float(flags.top_p, name("top-p"), 0.0F, false, 1.0F));
  MB_TRY(check_float(flags.min_p, name("min-p"), 0.0F, true, 1.0F));
  MB_TRY(check_float(flags.repetition_penalty, name("repetition-penalty"), kLeastPenalty, true,
                     kMostPenalty));
  for (const std::string& stop : flags.stop) {
    if (stop.empty())
      return base::usage_error("{}: an empty text would stop every answer at once", name("stop"));
  }
  return {};
}

void apply_sampling(const SamplingFlags& flags, const SamplingOptions& defaults, Request& request) {
  request.sampling = defaults;
  request.sampling.temperature = flags.temperature.value_or(defaults.temperature);
  request.sampling.top_k = flags.top_k.value_or(defaults.top_k);
  request.sampling.top_p = flags.top_p.value_or(defaults.top_p);
  request.sampling.min_p = flags.min_p.value_or(defaults.min_p);
  request.sampling.repetition_penalty =
      flags.repetition_penalty.value_or(defaults.repetition_penalty);
  request.sampling.seed = flags.seed ? *flags.seed : std::random_device{}();
  request.max_tokens = flags.max_tokens.value_or(-1);
  request.stop = flags.stop;
  request.ignore_eos = flags.ignore_eos;
}

void note_overrides(const SamplingFlags& flags, const SamplingOptions& defaults, bool quiet) {
  std::vector<std::string> replaced;
  const auto compare = [&](const char* option, const auto& given, auto own) {
    if (given && *given != own) {
      replaced.push_back(fmt::format("{} {} (the model's own: {})", option, *given, own));
    }
  };
  compare("--temperature", flags.temperature, defaults.temperature);
  compare("--top-k", flags.top_k, defaults.top_k);
  compare("--top-p", flags.top_p, defaults.top_p);
  compare("--min-p", flags.min_p, defaults.min_p);
  compare("--repetition-penalty", flags.repetition_penalty, defaults.repetition_penalty);
  if (!replaced.empty()) note(quiet, fmt::format("sampling: {}", fmt::join(replaced, ", ")));
}

void note_seed(const SamplingFlags& flags, const Request& request, bool quiet) {
  if (flags.seed || request.sampling.temperature == 0) return;
  note(quiet, fmt::format("drawn with --seed {}", request.sampling.seed));
}

void explain_sampling(const Request& request, const SharedOptions& shared) {
  const SamplingOptions& s = request.sampling;
  note(!shared.verbose, fmt::format("sampling in effect: temperature {}{}, top-k {}, top-p {}, "
                                    "min-p {}, repetition penalty {}, "
                                    "seed {}",
                                    s.temperature, s.temperature == 0 ? " (greedy)" : "", s.top_k,
                                    s.top_p, s.min_p, s.repetition_penalty, s.seed));
}

}  // namespace markbase::cli
