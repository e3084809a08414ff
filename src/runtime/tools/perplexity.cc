// perplexity: how well the model foretells a text.
//
// The text is tokenised without BOS. Windows of window - 1 tokens, each preceded by BOS, cover it;
// every token is scored once, given BOS and the tokens before it in its window. With a stride
// shorter than the window, the tokens that a window shares with the one before are context only.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/guard.h"
#include "markbase/tools.h"
#include "runtime/engine_access.h"
#include "runtime/logits.h"
#include "runtime/tools/machine.h"
#include "runtime/tools/npy_rows.h"

namespace markbase::tools {
namespace {

struct LogSum {
  double log_sum = 0;  // log of the sum of exp(logit)
  int64_t top = 0;
};

LogSum log_sum_of(std::span<const float> logits) {
  const auto top = std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits)
    sum += std::exp(static_cast<double>(logit) - static_cast<double>(*top));
  return {static_cast<double>(*top) + std::log(sum), top - logits.begin()};
}

// What the rows of a file were computed from.
struct Scored {
  std::span<const int32_t> ids;
  int64_t window_tokens = 0;  // with BOS
  int64_t stride_tokens = 0;

  base::Json json() const {
    return {{"window_tokens", window_tokens},
            {"stride_tokens", stride_tokens},
            {"ids", std::vector<int32_t>(ids.begin(), ids.end())}};
  }
};

Result<void> check_same_windows(const std::string& path, const base::Json& there,
                                const base::Json& here) {
  for (const char* key : {"window_tokens", "stride_tokens"}) {
    const auto value = there.find(key);
    if (value == there.end() || *value != here[key]) {
      return base::bad_input("--against: {}: expected rows with {} {}, as here, got {}", path, key,
                             base::dump_json(here[key]),
                             value == there.end() ? "none" : base::dump_json(*value));
    }
  }
  return {};
}

// Whether the record of a file belongs to what is scored here.
Result<void> check_record(const std::string& path, const std::string& record,
                          const Scored& scored) {
  MB_ASSIGN(const base::Json there, base::parse_json(record, path + ": the record after the rows"));
  const base::Json here = scored.json();
  const auto ids = there.find("ids");
  if (ids == there.end() || !ids->is_array() || ids->size() != scored.ids.size()) {
    return base::bad_input("--against: {}: expected a record of {} ids after the rows", path,
                           scored.ids.size());
  }
  for (size_t i = 0; i < ids->size(); ++i) {
    if ((*ids)[i] == here["ids"][i]) continue;
    return base::bad_input(
        "--against: {}: expected the same text, and its token {} is {} there and {} here", path, i,
        base::dump_json((*ids)[i]), scored.ids[i]);
  }
  return check_same_windows(path, there, here);
}

class Scorer {
 public:
  // Scores `target` by the logits of the position before it.
  Result<void> add(std::span<const float> logits, int32_t target) {
    const LogSum sum = log_sum_of(logits);
    nll_.push_back(sum.log_sum - static_cast<double>(logits[static_cast<size_t>(target)]));
    if (!std::isfinite(nll_.back())) {
      return base::failed("token {}: the logits are not finite", nll_.size() - 1);
    }
    if (against_) MB_TRY(compare(logits, sum));
    if (!save_) return {};
    row_.resize(logits.size());
    for (size_t i = 0; i < logits.size(); ++i) {
      row_[i] = static_cast<float>(static_cast<double>(logits[i]) - sum.log_sum);
    }
    return save_->append(row_);
  }

  Result<void> open(const PerplexityOptions& options, const Scored& scored, int64_t vocab_size) {
    const auto tokens = static_cast<int64_t>(scored.ids.size());
    if (!options.against.empty()) {
      MB_ASSIGN(against_, runtime::NpyRowReader::open(options.against, tokens, vocab_size));
      MB_TRY(check_against(options, scored));
      row_.resize(static_cast<size_t>(vocab_size));
    }
    std::error_code ignored;
    if (!options.against.empty() &&
        std::filesystem::equivalent(options.against, options.save_logits, ignored)) {
      return base::usage_error("--save-logits: expected another file than --against");
    }
    if (!options.save_logits.empty()) {
      MB_ASSIGN(save_, runtime::NpyRowWriter::create(options.save_logits, tokens, vocab_size));
      record_ = base::dump_json(scored.json());
      const auto values = static_cast<uint64_t>(tokens) * static_cast<uint64_t>(vocab_size);
      tell(options, Severity::kInfo,
           fmt::format("{}: log-probabilities [{}, {}], a float32 .npy file of {}",
                       options.save_logits, tokens, vocab_size,
                       runtime::bytes_text(values * sizeof(float))));
    }
    return {};
  }

  Result<base::Json> report() {
    if (save_) MB_TRY(save_->finish(record_));
    const auto count = static_cast<double>(nll_.size());
    double mean = 0;
    for (const double v : nll_) mean += v / count;
    double variance = 0;
    for (const double v : nll_) variance += (v - mean) * (v - mean);
    const double error = nll_.size() > 1 ? std::sqrt(variance / (count - 1) / count) : 0;
    // The error of exp(mean) is, to first order, exp(mean) times that of the mean.
    base::Json out = {{"perplexity", std::exp(mean)},
                      {"standard_error", std::exp(mean) * error},
                      {"tokens", nll_.size()},
                      {"mean_nll", mean},
                      {"standard_error_nll", error}};
    if (against_) add_comparison(&out);
    return out;
  }

 private:
  static void tell(const PerplexityOptions& options, Severity severity, const std::string& text) {
    if (options.message) options.message(severity, text);
  }

  Result<void> check_against(const PerplexityOptions& options, const Scored& scored) {
    constexpr uint64_t kMostBytesOfAnId = 16;  // ten digits, a comma and what JSON may put between
    constexpr uint64_t kMostBytesOfTheRest = 4096;
    MB_ASSIGN(const std::string record,
              against_->record(kMostBytesOfTheRest + scored.ids.size() * kMostBytesOfAnId));
    if (!record.empty()) return check_record(options.against, record, scored);
    tell(options, Severity::kWarning,
         options.against +
             ": no record of text and windows stands after its rows: only the shape was compared");
    return {};
  }

  // The divergence of this model from the file's: sum of p_file * (log p_file - log p_here).
  Result<void> compare(std::span<const float> logits, const LogSum& sum) {
    MB_TRY(against_->read(row_));
    const LogSum other = log_sum_of(row_);
    double kl = 0;
    for (size_t i = 0; i < row_.size(); ++i) {
      const double theirs = static_cast<double>(row_[i]) - other.log_sum;
      kl += std::exp(theirs) * (theirs - (static_cast<double>(logits[i]) - sum.log_sum));
    }
    kl_.push_back(kl);
    if (other.top == sum.top) ++agreed_;
    return {};
  }

  void add_comparison(base::Json* out) {
    double mean = 0;
    for (const double v : kl_) mean += v / static_cast<double>(kl_.size());
    std::sort(kl_.begin(), kl_.end());
    const auto at = static_cast<size_t>(std::ceil(0.99 * static_cast<double>(kl_.size()))) - 1;
    (*out)["kl"] = {{"mean", mean}, {"p99", kl_[at]}, {"max", kl_.back()}};
    (*out)["top1_agreement"] = static_cast<double>(agreed_) / static_cast<double>(kl_.size());
  }

  std::vector<double> nll_;
  std::vector<double> kl_;
  int64_t agreed_ = 0;
  std::unique_ptr<runtime::NpyRowReader> against_;
  std::unique_ptr<runtime::NpyRowWriter> save_;
  std::vector<float> row_;
  std::string record_;
};

struct Windows {
  int64_t size = 0;    // tokens beside BOS
  int64_t stride = 0;  // tokens that each window scores, the first apart
};

Result<Windows> windows_of(const PerplexityOptions& options, int64_t context_tokens) {
  if (context_tokens < 2) {
    return base::usage_error("--ctx: expected 2 or more, BOS and a token to score, got {}",
                             context_tokens);
  }
  if (options.window_tokens < 0 || options.window_tokens == 1 ||
      options.window_tokens > context_tokens) {
    return base::usage_error("--ctx: expected 2 to {}, got {}", context_tokens,
                             options.window_tokens);
  }
  Windows windows;
  windows.size = (options.window_tokens == 0 ? context_tokens : options.window_tokens) - 1;
  windows.stride = options.stride_tokens == 0 ? windows.size : options.stride_tokens;
  if (windows.stride < 1 || windows.stride > windows.size) {
    return base::usage_error("--stride: expected 1 to {}, got {}", windows.size,
                             options.stride_tokens);
  }
  return windows;
}

// Engine::logits without its progress: the text as a whole has one.
Result<void> window_logits(Engine& engine, std::span<const int32_t> ids, const OnLogits& on_row) {
  Result<void> result;
  MB_TRY(EngineAccess::run(engine, [&](runtime::LoadedModel& model) {
    result = runtime::stream_logits(model, ids, false, nullptr, on_row);
  }));
  return result;
}

Result<std::string> perplexity_unguarded(Engine& engine, std::string_view text,
                                         const PerplexityOptions& options,
                                         const std::function<void(const Progress&)>& progress) {
  const runtime::LoadedModel& model = EngineAccess::model(engine);
  const int32_t bos = model.tokenizer->bos_id();
  if (bos < 0) return base::bad_input("{}: expected a BOS token, got none", model.path.path);
  MB_ASSIGN(const Windows windows, windows_of(options, model.runner_options.context_tokens));
  const std::vector<int32_t> ids = model.tokenizer->encode(text, {});
  if (ids.empty()) return base::usage_error("the text is empty: expected at least one token");
  const auto count = static_cast<int64_t>(ids.size());
  // Where one window holds the text, how much more it could hold makes no difference.
  const int64_t window_size = std::min(windows.size, count);
  Scorer scorer;
  MB_TRY(scorer.open(options,
                     {ids, window_size + 1, windows.size < count ? windows.stride : window_size},
                     model.config.vocab_size));
  std::vector<int32_t> window;
  int64_t num_windows = 0;
  for (int64_t scored = 0; scored < count;) {
    const int64_t end = std::min(count, scored + (scored == 0 ? windows.size : windows.stride));
    // Windows begin a stride apart; the last one is shorter rather than given more context.
    const int64_t begin = std::max<int64_t>(0, scored - (windows.size - windows.stride));
    window.assign(1, bos);
    window.insert(window.end(), ids.begin() + begin, ids.begin() + end);
    // Row r foretells token begin + r; the last row foretells what no longer belongs to the window.
    MB_TRY(window_logits(engine, window,
                         [&](int64_t row, std::span<const float> logits) -> Result<void> {
                           const int64_t target = begin + row;
                           if (target < scored || target >= end) return {};
                           if (progress)
                             progress({"scoring", static_cast<uint64_t>(target),
                                       static_cast<uint64_t>(count), Progress::Unit::kTokens});
                           return scorer.add(logits, ids[static_cast<size_t>(target)]);
                         }));
    scored = end;
    ++num_windows;
  }
  MB_ASSIGN(base::Json out, scorer.report());
  out["windows"] = num_windows;
  out["window_tokens"] = windows.size + 1;
  out["stride_tokens"] = windows.stride;
  return base::dump_json(out);
}

}  // namespace

Result<std::string> perplexity_json(Engine& engine, std::string_view text,
                                    const PerplexityOptions& options,
                                    const std::function<void(const Progress&)>& progress) {
  return base::guarded("perplexity_json",
                       [&] { return perplexity_unguarded(engine, text, options, progress); });
}

}  // namespace markbase::tools
