#include "ops/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "ops/arg_checks.h"
#include "ops/exp_log.h"

namespace markbase::ops {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// exp(-104) is below half the smallest float32 subnormal: such an id has probability zero.
constexpr float kNegligible = 104.0F;
// Candidates are gathered and sorted band after band below the highest logit, so that a peaked
// distribution, the usual case, sorts tens of ids and not the vocabulary.
constexpr float kBands[] = {4.0F, 8.0F, 16.0F, 32.0F, kNegligible};
constexpr size_t kNumBands = std::size(kBands);

// exp(logit - best) as float32, in (0, 1]; 0 for what is negligible.
inline float weight_of(float logit, float best) {
  const double distance = static_cast<double>(logit) - static_cast<double>(best);
  const double bounded = distance >= -kNegligible ? distance : -kNegligible;
  const double weight = exp_of(bounded);
  return distance >= -kNegligible ? static_cast<float>(weight) : 0.0F;
}

bool by_logit(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

void suppress(std::span<float> logits, std::span<const int32_t> suppressed) {
  for (const int32_t id : suppressed) {
    if (id >= 0 && static_cast<size_t>(id) < logits.size()) {
      logits[static_cast<size_t>(id)] = -kInfinity;
    }
  }
}

void penalize(std::span<float> logits, std::span<const uint32_t> seen, float penalty) {
  if (penalty == 1.0F) return;
  for (size_t word = 0; word < seen.size(); ++word) {
    for (uint32_t bits = seen[word]; bits != 0; bits &= bits - 1) {
      const size_t id = word * 32 + static_cast<size_t>(std::countr_zero(bits));
      if (id >= logits.size()) return;
      float& logit = logits[id];
      logit = logit < 0.0F ? logit * penalty : logit / penalty;
    }
  }
}

// Sum of the weights of the whole row, in eight interleaved partial sums.
double sum_weights(std::span<const float> logits, float best) {
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += static_cast<double>(weight_of(logits[i + lane], best));
    }
  }
  for (; i < logits.size(); ++i) sums[0] += static_cast<double>(weight_of(logits[i], best));
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// The ids in order of falling logit, as far as they were asked for. Values of the candidates are
// weights relative to the best.
class Ranking {
 public:
  Ranking(std::span<const float> logits, float best, int64_t limit, std::span<Candidate> candidates)
      : logits_(logits), best_(best), limit_(static_cast<size_t>(limit)), candidates_(candidates) {}

  // True when there is a candidate at this index; indices are asked for in order.
  bool reaches(int64_t idx) {
    while (static_cast<size_t>(idx) >= size_) {
      if (size_ >= limit_ || (size_ == gathered_ && band_ == kNumBands)) return false;
      extend();
    }
    return true;
  }

 private:
  // Sorts the next few of the band at hand, four times as many as before in all, since most draws
  // end early even in a wide band.
  void extend() {
    if (size_ == gathered_) gather_band();
    const size_t wanted =
        std::min({gathered_ - size_, limit_ - size_, std::max<size_t>(256, 3 * size_)});
    Candidate* const first = candidates_.data() + size_;
    Candidate* const end = first + wanted;
    Candidate* const last = candidates_.data() + gathered_;
    if (end < last) std::nth_element(first, end, last, by_logit);
    std::sort(first, end, by_logit);
    for (Candidate* c = first; c < end; ++c) c->value = weight_of(c->value, best_);
    size_ += wanted;
  }

  void gather_band() {
    const float upper = lower_;
    lower_ = best_ - kBands[band_++];
    for (size_t id = 0; id < logits_.size(); ++id) {
      const float logit = logits_[id];
      if (logit >= lower_ && logit < upper) {
        candidates_[gathered_++] = {static_cast<int32_t>(id), logit};
      }
    }
  }

  std::span<const float> logits_;
  float best_;
  size_t limit_;
  std::span<Candidate> candidates_;
  size_t size_ = 0;      // ranked, values turned into weights
  size_t gathered_ = 0;  // of the bands so far; the rest in no order yet
  size_t band_ = 0;
  float lower_ = kInfinity;
};

// What remains after suppression, penalty and temperature.
struct Prepared {
  float best = 0.0F;  // NaN: nothing to choose
  bool greedy = false;
};

Prepared prepare(std::span<float> logits, const SamplingParams& params,
                 std::span<const int32_t> suppressed, std::span<const uint32_t> seen) {
  suppress(logits, suppressed);
  penalize(logits, seen, params.repetition_penalty);
  const float best = highest_logit(logits);
  if (std::isnan(best) || params.temperature == 0.0F) return {best, true};
  // A temperature so small that the quotient overflows leaves nothing but the best.
  const float scaled_best = best / params.temperature;
  if (!std::isfinite(scaled_best)) return {best, true};
  if (params.temperature != 1.0F) {
    for (float& logit : logits) logit /= params.temperature;
  }
  return {scaled_best, params.top_k == 1};
}

int32_t first_id_of(std::span<const float> logits, float best) {
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), best) - logits.begin());
}

int64_t rank_limit(const SamplingParams& params, size_t vocab) {
  const auto all = static_cast<int64_t>(vocab);
  return params.top_k > 0 ? std::min<int64_t>(params.top_k, all) : all;
}

bool has_mass_filter(const SamplingParams& params) {
  return params.top_p < 1.0F || params.min_p > 0.0F;
}

// Puts the kept candidates in front, values relative to the best. Returns how many; *total is the
// sum.
int64_t keep(std::span<const float> logits, float best, const SamplingParams& params,
             std::span<Candidate> candidates, double* total) {
  Ranking ranking(logits, best, rank_limit(params, logits.size()), candidates);
  double mass_limit = std::numeric_limits<double>::infinity();
  if (params.top_p < 1.0F) {
    double all = 0.0;
    if (params.top_k > 0) {
      for (int64_t i = 0; ranking.reaches(i); ++i) all += candidates[static_cast<size_t>(i)].value;
    } else {
      all = sum_weights(logits, best);
    }
    mass_limit = static_cast<double>(params.top_p) * all;
  }
  double mass = 0.0;
  int64_t n = 0;
  for (; ranking.reaches(n); ++n) {
    const float value = candidates[static_cast<size_t>(n)].value;
    // Both conditions hold for all that follow, too, so what is kept is a front part of the
    // ranking.
    if (n > 0 && (mass >= mass_limit || value < params.min_p)) break;
    mass += static_cast<double>(value);
  }
  *total = mass;
  return n;
}

// Uniform in [0, 1) with 53 bits.
double uniform(const SamplingParams& params, int32_t position) {
  const PhiloxBlock block =
      philox4x32(params.seed, params.answer_idx, static_cast<uint32_t>(position));
  const uint64_t bits = (uint64_t{block.word[0]} << 21) | (block.word[1] >> 11);
  return static_cast<double>(bits) * 0x1p-53;
}

// The first of n candidates whose cumulative sum exceeds goal; the last where rounding hides it.
int32_t draw(std::span<const Candidate> kept, double goal) {
  double mass = 0.0;
  for (const Candidate& c : kept) {
    mass += static_cast<double>(c.value);
    if (mass > goal) return c.id;
  }
  return kept.back().id;
}

// Without filters the ranking is needed only as far as the draw reaches.
int32_t draw_unfiltered(std::span<const float> logits, float best, double u,
                        std::span<Candidate> candidates) {
  const double goal = u * sum_weights(logits, best);
  Ranking ranking(logits, best, static_cast<int64_t>(logits.size()), candidates);
  double mass = 0.0;
  int64_t i = 0;
  for (; ranking.reaches(i); ++i) {
    mass += static_cast<double>(candidates[static_cast<size_t>(i)].value);
    if (mass > goal) return candidates[static_cast<size_t>(i)].id;
  }
  return candidates[static_cast<size_t>(i - 1)].id;
}

int32_t choose(std::span<float> logits, const SamplingParams& params, int32_t position,
               std::span<const int32_t> suppressed, std::span<const uint32_t> seen,
               std::span<Candidate> candidates) {
  const Prepared prepared = prepare(logits, params, suppressed, seen);
  if (std::isnan(prepared.best)) return -1;
  if (prepared.greedy) return first_id_of(logits, prepared.best);
  const double u = uniform(params, position);
  if (params.top_k <= 0 && !has_mass_filter(params)) {
    return draw_unfiltered(logits, prepared.best, u, candidates);
  }
  double total = 0.0;
  const int64_t n = keep(logits, prepared.best, params, candidates, &total);
  return draw(candidates.first(static_cast<size_t>(n)), u * total);
}

}  // namespace

void check(const SampleArgs& args) {
  using tensor::DType;
  MB_CHECK_MSG(is_f32_rows(args.logits), "sample logits must be [rows, vocab] f32");
  const int64_t rows = args.logits.dim(0);
  const int64_t vocab = args.logits.dim(1);
  MB_CHECK_MSG(vocab > 0, "sample needs a vocabulary");
  MB_CHECK_MSG(args.params != nullptr || rows == 0, "sample needs params");
  MB_CHECK_MSG(is_vector(args.positions, DType::kI32, rows), "sample positions must be [rows] i32");
  MB_CHECK_MSG(is_vector(args.ids, DType::kI32, rows), "sample ids must be [rows] i32");
  MB_CHECK_MSG(is_type(args.seen, DType::kU32, 2) && args.seen.dim(0) == rows &&
                   args.seen.dim(1) == (vocab + 31) / 32,
               "sample seen must be [rows, ceil(vocab / 32)] u32");
  MB_CHECK_MSG(args.suppressed.data == nullptr ||
                   (args.suppressed.rank == 1 && args.suppressed.dtype == DType::kI32),
               "sample suppressed must be [n] i32 or empty");
  MB_CHECK_MSG(args.scratch != nullptr || rows == 0, "sample needs scratch");
  MB_CHECK_MSG(same_device(args.logits, args.positions) && same_device(args.logits, args.ids) &&
                   same_device(args.logits, args.seen),
               "sample tensors must be on one device");
}

size_t sample_scratch_bytes(int64_t rows, int64_t vocab) {
  return static_cast<size_t>(rows) * static_cast<size_t>(vocab) * sizeof(Candidate);
}

float highest_logit(std::span<const float> logits) {
  constexpr size_t kLanes = 16;
  float best[kLanes];
  uint32_t broken[kLanes] = {};
  std::fill_n(best, kLanes, -kInfinity);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float logit = logits[i + lane];
      best[lane] = logit > best[lane] ? logit : best[lane];
      broken[lane] |= logit < kInfinity ? 0u : 1u;
    }
  }
  for (; i < logits.size(); ++i) {
    best[0] = logits[i] > best[0] ? logits[i] : best[0];
    broken[0] |= logits[i] < kInfinity ? 0u : 1u;
  }
  float result = -kInfinity;
  uint32_t any_broken = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    result = std::max(result, best[lane]);
    any_broken |= broken[lane];
  }
  return any_broken != 0 || result == -kInfinity ? std::numeric_limits<float>::quiet_NaN() : result;
}

int32_t sample_row(std::span<float> logits, const SamplingParams& params, int32_t position,
                   std::span<const int32_t> suppressed, std::span<uint32_t> seen,
                   std::span<Candidate> candidates) {
  MB_CHECK(candidates.size() >= logits.size());
  const int32_t id = choose(logits, params, position, suppressed, seen, candidates);
  const auto word = static_cast<size_t>(id) / 32;
  if (id >= 0 && word < seen.size()) seen[word] |= uint32_t{1} << (id % 32);
  return id;
}

int64_t sampling_distribution(std::span<float> logits, const SamplingParams& params,
                              std::span<const int32_t> suppressed, std::span<const uint32_t> seen,
                              std::span<Candidate> candidates) {
  MB_CHECK(candidates.size() >= logits.size());
  const Prepared prepared = prepare(logits, params, suppressed, seen);
  if (std::isnan(prepared.best)) return 0;
  if (prepared.greedy) {
    candidates[0] = {first_id_of(logits, prepared.best), 1.0F};
    return 1;
  }
  double total = 0.0;
  const int64_t n = keep(logits, prepared.best, params, candidates, &total);
  for (Candidate& c : candidates.first(static_cast<size_t>(n))) {
    c.value = static_cast<float>(static_cast<double>(c.value) / total);
  }
  return n;
}

}  // namespace markbase::ops
