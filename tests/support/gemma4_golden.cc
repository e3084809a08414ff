#include "support/gemma4_golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "formats/safetensors/safetensors_file.h"
#include "support/golden.h"

namespace markbase::testing {
namespace {

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

template <class T>
std::vector<T> values_of(const formats::TensorInfo& info) {
  std::vector<T> values(info.data.size() / sizeof(T));
  std::memcpy(values.data(), info.data.data(), info.data.size());
  return values;
}

}  // namespace

std::vector<std::string> gemma4_goldens(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (std::filesystem::exists(entry.path() / "ids.npy")) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

double TraceFigures::worst() const {
  double worst = 0;
  for (const auto& [name, value] : share) worst = std::max(worst, value);
  return worst;
}

std::string Gemma4Golden::path(const std::string& file) const {
  return folder_ + "/" + name_ + "/" + file;
}

bool Gemma4Golden::has(const std::string& file) const {
  return std::filesystem::exists(path(file));
}

// Sixteen bits and more are not.
bool Gemma4Golden::quantised() const {
  return !name_.ends_with("-bf16") && !name_.ends_with("-gguf-f16") &&
         !name_.ends_with("-gguf-f32");
}

base::Json Gemma4Golden::provenance() const {
  return *base::parse_json(read_file(path("provenance.json")), "provenance");
}

std::vector<int32_t> Gemma4Golden::ids() const { return read_npy<int32_t>(path("ids.npy")).values; }

Engine Gemma4Golden::load(BackendKind backend) const {
  EngineOptions options;
  options.backend = backend;
  options.num_threads = 2;
  Result<Engine> engine = Engine::load(path(has("model.gguf") ? "model.gguf" : ""), options);
  if (!engine.ok()) {
    ADD_FAILURE() << engine.error().message;
    std::abort();
  }
  return *std::move(engine);
}

std::vector<float> Gemma4Golden::logits(Engine& engine, std::span<const int32_t> ids,
                                        bool last_only) {
  std::vector<float> out;
  const Result<void> done =
      engine.logits(ids, last_only, [&](int64_t, std::span<const float> row) -> Result<void> {
        out.insert(out.end(), row.begin(), row.end());
        return {};
      });
  if (!done.ok()) ADD_FAILURE() << done.error().message;
  return out;
}

LogitsFigures Gemma4Golden::logits_figures() const {
  Engine ref = load(BackendKind::kRef);
  Engine cpu = load(BackendKind::kCpu);
  const auto golden = read_npy<float>(path("logits.npy"));
  LogitsFigures figures;
  figures.ref_share = worst_share(logits(ref, ids(), false), golden.values);
  figures.own_mean_kl = provenance()["runtime"]["mean_kl"].get<double>();
  figures.bound = std::max(quantised() ? figures.own_mean_kl / 10 : figures.own_mean_kl, 1e-3);
  // Two logits that move apart by d change the divergence by about d^2 / 2.
  const double clear_margin = 2 * std::sqrt(2 * figures.bound);
  const std::vector<float> got = logits(cpu, ids(), false);
  const auto vocab = static_cast<size_t>(golden.shape[1]);
  figures.rows = golden.shape[0];
  EXPECT_EQ(got.size(), golden.values.size());
  for (size_t r = 0; r < got.size() / vocab; ++r) {
    const std::span<const float> expected(golden.values.data() + r * vocab, vocab);
    const std::span<const float> row(got.data() + r * vocab, vocab);
    figures.cpu_mean_kl += divergence(expected, row) / static_cast<double>(figures.rows);
    const Best best = best_of(expected);
    const int64_t equal = best_of(row).id == best.id ? 1 : 0;
    figures.equal_rows += equal;
    if (best.margin <= clear_margin) continue;
    ++figures.clear_rows;
    figures.clear_equal += equal;
  }
  return figures;
}

TraceFigures Gemma4Golden::trace_figures() const {
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
  if (!done.ok()) ADD_FAILURE() << done.error().message;
  auto file = formats::SafetensorsFile::open(path("trace/trace.safetensors"));
  if (!file.ok()) {
    ADD_FAILURE() << file.error().message;
    std::abort();
  }
  std::map<std::string, formats::TensorInfo> golden;
  for (const formats::TensorInfo& info : file->tensors()) golden[info.name] = info;
  const auto rows = values_of<int32_t>(golden.at("rows"));
  for (const char* other : {"rows", "logits"}) golden.erase(other);  // logits have their own test
  seen.erase("logits");
  TraceFigures figures;
  const size_t num_ids = ids().size();
  for (const auto& [name, values] : seen) {
    const auto found = golden.find(name);
    const size_t width = values.size() / num_ids;
    if (found == golden.end() || found->second.data.size() != width * rows.size() * sizeof(float)) {
      figures.missing.push_back(name);
      continue;
    }
    std::vector<float> got;
    for (const int32_t row : rows) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(width) * row;
      got.insert(got.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
    }
    figures.share[name] = worst_share(got, values_of<float>(found->second));
    golden.erase(found);
  }
  for (const auto& [name, info] : golden) {
    if (!seen.contains(name)) figures.missing.push_back(name);
  }
  return figures;
}

}  // namespace markbase::testing
