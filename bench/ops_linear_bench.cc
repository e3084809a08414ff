// Speed of the CPU backend's linear products beside the machine's own read speed.
//   ops_linear_bench [--isa NAME] [--threads N] [--filter TEXT] [--rows N,N,...]
// Prints, for each format, shape and number of rows of x, the time of a product, GB/s of packed
// weights read (they come from memory: copies are cycled through) and GFLOP/s. Medians of the
// repetitions.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "backends/cpu/cpu_backend.h"
#include "base/buffer.h"
#include "base/thread_pool.h"
#include "markbase/options.h"
#include "ops/backend.h"
#include "quant/encode.h"

namespace markbase {
namespace {

using backends::CpuIsa;
using quant::Format;
using tensor::DType;

struct Options {
  CpuIsa isa = backends::best_cpu_isa();
  int threads = base::default_num_threads();
  std::string filter;
  std::vector<int64_t> tokens = {1, 8, 512};
};

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Median seconds of one call, over at least 0.25 s.
double median_seconds(const std::function<void()>& body) {
  std::vector<double> times;
  const double begin = seconds();
  while (times.size() < 5 || seconds() - begin < 0.25) {
    const double start = seconds();
    body();
    times.push_back(seconds() - start);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

// What all threads together read from memory, GB/s.
double read_probe(base::ThreadPool& pool) {
  constexpr int64_t kBytes = int64_t{512} << 20;
  constexpr int64_t kChunk = int64_t{256} << 10;
  auto buffer = base::AlignedBuffer::allocate(static_cast<size_t>(kBytes)).value();
  std::memset(buffer.data(), 1, buffer.size_bytes());
  std::vector<uint64_t> sums(static_cast<size_t>(pool.num_threads()) * 8);
  const double time = median_seconds([&] {
    pool.run(kBytes / kChunk, [&](int64_t chunk, int thread) {
      const auto* p = reinterpret_cast<const uint64_t*>(buffer.data() + chunk * kChunk);
      uint64_t sum[8] = {};
      for (int64_t i = 0; i < kChunk / 8; i += 64) {
        // One word a cache line: the line is what costs.
        for (int j = 0; j < 8; ++j) sum[j] += p[i + j * 8];
      }
      for (uint64_t s : sum) sums[static_cast<size_t>(thread) * 8] += s;
    });
  });
  volatile uint64_t sink = sums[0];
  (void)sink;
  return static_cast<double>(kBytes) / time / 1e9;
}

// `group` 0: a format of blocks; otherwise MLX's 4 bits in groups of so many.
struct Case {
  Format format;
  int64_t rows;
  int64_t cols;
  int group = 0;

  std::string label() const {
    const std::string name =
        group > 0 ? "mlx 4/" + std::to_string(group) : std::string(quant::format_name(format));
    char text[96];
    std::snprintf(text, sizeof text, "%-8s %6ld x %5ld", name.c_str(), static_cast<long>(rows),
                  static_cast<long>(cols));
    return text;
  }
};

// A weight with its bytes.
struct RandomWeight {
  std::vector<std::byte> data;
  std::vector<std::byte> scales;
  std::vector<std::byte> biases;
  quant::WeightView view;

  explicit RandomWeight(const Case& c) {
    const auto count = static_cast<size_t>(c.rows * c.cols);
    view.format = c.format;
    view.rows = c.rows;
    view.cols = c.cols;
    if (c.group > 0) {
      data = random_bytes(count / 2);
      const size_t groups = count / static_cast<size_t>(c.group);
      scales.resize(2 * groups, std::byte{0x38});
      biases.resize(2 * groups, std::byte{0x39});
      view.bits = 4;
      view.group_size = c.group;
      view.scale_dtype = DType::kBF16;
    } else if (const auto shape = quant::block_shape(c.format); shape.elements > 1) {
      data = quant::random_blocks(c.format, 1, c.rows * c.cols / shape.elements);
    } else {
      data.resize(count * static_cast<size_t>(shape.bytes), std::byte{0x3c});
    }
    view.data = data;
    view.scales = scales;
    view.biases = biases;
  }

  static std::vector<std::byte> random_bytes(size_t count) {
    std::mt19937 random(1);
    std::vector<std::byte> bytes(count);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    return bytes;
  }
};

void run_case(const Options& options, ops::Backend& backend, const Case& c) {
  if (c.label().find(options.filter) == std::string::npos) return;
  const RandomWeight weight(c);
  // Enough copies that none is still in a cache when its turn comes again.
  constexpr size_t kColdBytes = size_t{192} << 20;
  const size_t copies = std::max<size_t>(1, kColdBytes / backend.packed_bytes(weight.view));
  std::vector<std::unique_ptr<ops::PackedWeight>> packed;
  for (size_t i = 0; i < copies; ++i)
    packed.push_back(std::move(backend.pack(weight.view, "w", [](int64_t, int64_t) {})).value());

  const int64_t most = *std::max_element(options.tokens.begin(), options.tokens.end());
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(most * c.cols));
  for (float& v : x) v = normal(random);
  std::vector<float> y(static_cast<size_t>(most * c.rows));
  if (!backend.plan({.max_rows = most, .max_linear_cols = c.cols}).ok()) std::abort();
  const auto time = [&](int64_t tokens) {
    const ops::LinearTarget target = {packed[0].get(),
                                      tensor::make_view(y.data(), DType::kF32, {tokens, c.rows})};
    const auto x_view = tensor::make_view(x.data(), DType::kF32, {tokens, c.cols});
    size_t next = 0;
    return median_seconds([&] {
      ops::LinearTarget cold = target;
      cold.weight = packed[next++ % copies].get();
      backend.linear({x_view, {&cold, 1}});
    });
  };
  const double bytes = static_cast<double>(packed[0]->size_bytes());
  std::printf("%s", c.label().c_str());
  for (int64_t tokens : options.tokens) {
    const double seconds = time(tokens);
    std::printf("  | %ld: %.1f us %.1f GB/s %.0f GFLOP/s", static_cast<long>(tokens), seconds * 1e6,
                bytes / seconds / 1e9,
                2.0 * static_cast<double>(tokens * c.rows * c.cols) / seconds / 1e9);
  }
  std::printf("\n");
  std::fflush(stdout);
}

int run(const Options& options) {
  if (!backends::cpu_supports(options.isa)) {
    std::fprintf(stderr, "%s\n", backends::cpu_isa_obstacle(options.isa).c_str());
    return 2;
  }
  base::ThreadPool pool(options.threads);
  auto backend =
      backends::make_cpu_backend(pool, {options.isa, backends::ActivationPrecision::k16});
  std::printf("%s\nread probe %.1f GB/s\n", backend->description().c_str(), read_probe(pool));
  constexpr Case kCases[] = {
      {Format::kQ4_K, 2048, 640},         {Format::kQ4_K, 256, 640},
      {Format::kQ4_K, 640, 2048},         {Format::kQ6_K, 640, 2048},
      {Format::kQ5_0, 2048, 640},         {Format::kQ4_0, 2048, 640},
      {Format::kQ8_0, 2048, 640},         {Format::kQ8_0, 262144, 640},
      {Format::kQ4_K, 6912, 1152},        {Format::kQ3_K, 2048, 2048},
      {Format::kIQ4_NL, 2048, 2048},      {Format::kBF16, 2048, 2048},
      {Format::kF32, 2048, 640},          {Format::kQ4_0, 10240, 2560},
      {Format::kQ4_0, 2560, 10240},       {Format::kAffine, 10240, 2560, 64},
      {Format::kAffine, 2560, 10240, 64},
  };
  for (const Case& c : kCases) {
    run_case(options, *backend, c);
  }
  std::printf("read probe %.1f GB/s\n", read_probe(pool));
  return 0;
}

}  // namespace
}  // namespace markbase

int main(int argc, char** argv) {
  using namespace markbase;
  Options options;
  std::string isa = "auto";
  CLI::App app{"Speed of the CPU backend's linear products beside the machine's own read speed"};
  app.add_option("--isa", isa, "a kernel level that this CPU has (default: the best)");
  app.add_option("--threads", options.threads)->check(CLI::Range(1, kMostThreads));
  app.add_option("--rows", options.tokens)->delimiter(',')->check(CLI::Range(1, 4096));
  app.add_option("--filter", options.filter, "only what has this text in its name");
  CLI11_PARSE(app, argc, argv);
  if (isa != "auto") {
    const auto level = backends::parse_cpu_isa(isa);
    if (!level || !backends::cpu_supports(*level)) {
      std::fprintf(stderr, "--isa: this CPU has no level %s\n", isa.c_str());
      return 2;
    }
    options.isa = *level;
  }
  return run(options);
}
