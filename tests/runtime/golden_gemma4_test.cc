// Tiny random Gemma 4 models in every file format against float32 transformers on the same weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/json.h"
#include "formats/safetensors/safetensors_file.h"
#include "markbase/engine.h"
#include "support/golden.h"

namespace markbase {
namespace {

using testing::golden_path;
using testing::read_file;
using testing::read_npy;

constexpr const char* kHuggingFace[] = {"e2b-hf-bf16", "26b-hf-bf16", "31b-hf-bf16", "text-hf-bf16",
                                        "odd-hf-bf16"};
constexpr const char* kQuantised[] = {"12b-mlx-5bit-g128", "26b-mlx-3bit-g32",  "31b-mlx-2bit-g32",
                                      "31b-mlx-6bit-g64",  "31b-mlx-mixed_3_6", "31b-mlx-mxfp4",
                                      "31b-mlx-nvfp4",     "e4b-gguf-q4_k_m",   "e2b-gguf-q4_0",
                                      "26b-gguf-q4_0"};

// What a float32 run of the model may differ from another, per rms of the tensor: seen 1.3e-5.
constexpr double kReferenceShare = 2e-4;
// What 16-bit activations and a half-precision cache cost here, in nats: seen 1.4e-6. The bound
// that a file's own program sets is hundreds of times as wide.
constexpr double kCpuMeanKl = 1e-5;

class Gemma4 : public ::testing::TestWithParam<const char*> {
 protected:
  std::string path(const std::string& file) const {
    return golden_path("gemma4/" + std::string(GetParam()) + "/" + file);
  }
  bool quantised() const { return std::string(GetParam()).find("-hf-") == std::string::npos; }

  Engine load(BackendKind backend) const {
    EngineOptions options;
    options.backend = backend;
    options.num_threads = 2;
    const bool gguf = std::string(GetParam()).find("-gguf-") != std::string::npos;
    Result<Engine> engine = Engine::load(path(gguf ? "model.gguf" : ""), options);
    if (!engine.ok()) {
      ADD_FAILURE() << engine.error().message;
      std::abort();
    }
    return *std::move(engine);
  }
  std::vector<int32_t> ids() const { return read_npy<int32_t>(path("ids.npy")).values; }

  std::vector<float> logits(Engine& engine) const { return logits(engine, ids(), false); }
  static std::vector<float> logits(Engine& engine, std::span<const int32_t> ids, bool last_only) {
    std::vector<float> out;
    const Result<void> done =
        engine.logits(ids, last_only, [&](int64_t, std::span<const float> row) -> Result<void> {
          out.insert(out.end(), row.begin(), row.end());
          return {};
        });
    if (!done.ok()) ADD_FAILURE() << done.error().message;
    return out;
  }
};

double rms(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// Largest difference, in units of the golden's rms; infinite where a value is not a number.
double worst_share(std::span<const float> got, std::span<const float> golden) {
  if (got.size() != golden.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < golden.size(); ++i) {
    const double difference =
        std::abs(static_cast<double>(got[i]) - static_cast<double>(golden[i]));
    if (!(difference <= worst)) worst = std::isnan(difference) ? INFINITY : difference;
  }
  return worst / rms(golden);
}

std::vector<double> log_softmax(std::span<const float> row) {
  const double top = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float v : row) sum += std::exp(static_cast<double>(v) - top);
  std::vector<double> out;
  for (const float v : row) out.push_back(static_cast<double>(v) - top - std::log(sum));
  return out;
}

double divergence(std::span<const float> golden, std::span<const float> got) {
  const std::vector<double> p = log_softmax(golden);
  const std::vector<double> q = log_softmax(got);
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
  return kl;
}

struct Best {
  int64_t id;
  double margin;  // to the second
};
Best best_of(std::span<const float> row) {
  const auto best = std::max_element(row.begin(), row.end());
  float second = -INFINITY;
  for (auto it = row.begin(); it != row.end(); ++it) {
    if (it != best) second = std::max(second, *it);
  }
  return {best - row.begin(), static_cast<double>(*best) - static_cast<double>(second)};
}

TEST_P(Gemma4, ReferenceLogits) {
  Engine engine = load(BackendKind::kRef);
  const auto golden = read_npy<float>(path("logits.npy"));
  const double share = worst_share(logits(engine), golden.values);
  std::printf("%s: reference logits off by %.2g of their rms\n", GetParam(), share);
  EXPECT_LE(share, kReferenceShare);
}

// The bound is what the file's own program shows against the same golden: the same for a 16-bit
// file, a tenth of it for a quantised one, and no less than 1e-3 nats, which is what 8-bit products
// elsewhere are content with. The second bound is ours.
TEST_P(Gemma4, CpuLogits) {
  Engine engine = load(BackendKind::kCpu);
  const auto golden = read_npy<float>(path("logits.npy"));
  const std::vector<float> got = logits(engine);
  ASSERT_EQ(got.size(), golden.values.size());
  const base::Json record = *base::parse_json(read_file(path("provenance.json")), "provenance");
  const double shown = record["runtime"]["mean_kl"].get<double>();
  const double bound = std::max(quantised() ? shown / 10 : shown, 1e-3);
  // Two logits that move apart by d change the divergence by about d^2 / 2.
  const double clear_margin = 2 * std::sqrt(2 * bound);
  const auto vocab = static_cast<size_t>(golden.shape[1]);
  const size_t rows = got.size() / vocab;
  double mean_kl = 0;
  for (size_t r = 0; r < rows; ++r) {
    const std::span<const float> expected(golden.values.data() + r * vocab, vocab);
    const std::span<const float> row(got.data() + r * vocab, vocab);
    mean_kl += divergence(expected, row) / static_cast<double>(rows);
    const Best best = best_of(expected);
    if (best.margin > clear_margin) {
      EXPECT_EQ(best_of(row).id, best.id) << "row " << r << ", margin " << best.margin;
    }
  }
  std::printf("%s: mean KL %.3g, bound %.3g, its own program %.3g\n", GetParam(), mean_kl, bound,
              shown);
  RecordProperty("mean_kl", std::to_string(mean_kl));
  EXPECT_LE(mean_kl, bound);
  EXPECT_LE(mean_kl, kCpuMeanKl);
}

// Every length from one token to well over the window (of 5 to 12): where only the last row's
// logits are asked for, and the other rows are left out of the layers behind the last keys and
// values, they are the bits of that row among all, which the tests above compare with the golden.
TEST_P(Gemma4, PromptsOfEveryLength) {
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    Engine engine = load(backend);
    const std::vector<int32_t> all_ids = ids();
    const std::vector<float> all = logits(engine);
    const size_t vocab = all.size() / all_ids.size();
    for (size_t n = 1; n <= all_ids.size(); ++n) {
      const std::vector<float> last = logits(engine, std::span(all_ids).first(n), true);
      ASSERT_EQ(last.size(), vocab);
      EXPECT_EQ(std::memcmp(last.data(), all.data() + (n - 1) * vocab, vocab * sizeof(float)), 0)
          << engine.info().backend << ", " << n << " tokens";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Gemma4, ::testing::ValuesIn([] {
                           std::vector<const char*> all(std::begin(kHuggingFace),
                                                        std::end(kHuggingFace));
                           all.insert(all.end(), std::begin(kQuantised), std::end(kQuantised));
                           return all;
                         }()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

class Gemma4Trace : public Gemma4 {};

// Every named intermediate of the golden, and no other, at the positions that the golden holds.
TEST_P(Gemma4Trace, ReferenceIntermediates) {
  Engine engine = load(BackendKind::kRef);
  std::map<std::string, std::vector<float>> seen;
  const Result<void> done = engine.trace(
      ids(), "*",
      [&](const TraceTensor& tensor) -> Result<void> {
        auto& values = seen[std::string(tensor.name)];
        values.insert(values.end(), tensor.values.begin(), tensor.values.end());
        return {};
      },
      [](int64_t, std::span<const float>) -> Result<void> { return {}; });
  ASSERT_TRUE(done.ok()) << done.error().message;
  seen.erase("logits");
  auto golden = formats::SafetensorsFile::open(path("trace/trace.safetensors"));
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  const auto find = [&](const std::string& name) {
    const auto tensors = golden->tensors();
    return std::find_if(tensors.begin(), tensors.end(),
                        [&](const formats::TensorInfo& t) { return t.name == name; });
  };
  const formats::TensorInfo& row_info = *find("rows");
  std::vector<int32_t> rows(row_info.data.size() / sizeof(int32_t));
  std::memcpy(rows.data(), row_info.data.data(), row_info.data.size());
  EXPECT_EQ(seen.size() + 1, golden->tensors().size());
  double worst = 0;
  for (const auto& [name, values] : seen) {
    const auto info = find(name);
    ASSERT_NE(info, golden->tensors().end()) << name << " is not in the golden";
    std::vector<float> expected(info->data.size() / sizeof(float));
    std::memcpy(expected.data(), info->data.data(), info->data.size());
    const size_t width = values.size() / ids().size();
    ASSERT_EQ(width * rows.size(), expected.size()) << name;
    std::vector<float> got;
    for (const int32_t row : rows) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(width) * row;
      got.insert(got.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
    }
    const double share = worst_share(got, expected);
    worst = std::max(worst, share);
    EXPECT_LE(share, kReferenceShare) << name;
  }
  std::printf("%s: %zu intermediates, the worst off by %.2g of its rms\n", GetParam(), seen.size(),
              worst);
}

TEST_P(Gemma4Trace, GreedyIds) {
  for (const BackendKind backend : {BackendKind::kRef, BackendKind::kCpu}) {
    Engine engine = load(backend);
    Request request;
    request.ids = ids();
    auto expected = read_npy<int32_t>(path("greedy.npy")).values;
    // A 16-bit run may take another turn where the golden's two best are closer than its error.
    const base::Json record = *base::parse_json(read_file(path("provenance.json")), "provenance");
    const bool clear = record["smallest_greedy_margin"].get<double>() > 0.05;
    if (backend == BackendKind::kCpu && !clear) continue;
    request.max_tokens = static_cast<int64_t>(expected.size());
    request.sampling.temperature = 0.0F;
    request.ignore_eos = true;
    const Result<Completion> answer = engine.generate(request);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->ids, expected) << engine.info().backend;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Gemma4Trace, ::testing::ValuesIn(kHuggingFace),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace markbase
