#include "runtime/tools/machine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/guard.h"
#include "markbase/tools.h"
#include "markbase/version.h"
#include "runtime/backend_factory.h"
#include "runtime/memory_plan.h"

namespace markbase::runtime {
namespace {

// Beyond any last-level cache that one process gets to keep.
constexpr size_t kProbeChunkBytes = size_t{256} << 10;

uint64_t sum_of(const std::byte* data, size_t size_bytes) {
  // Four streams, so that several lines are on their way at once.
  constexpr size_t kStreams = 4;
  const size_t words = size_bytes / sizeof(uint64_t) / kStreams;
  const auto* first = reinterpret_cast<const uint64_t*>(data);
  uint64_t sum[kStreams] = {};
  for (size_t i = 0; i < words; ++i) {
    for (size_t s = 0; s < kStreams; ++s) sum[s] += first[s * words + i];
  }
  return sum[0] + sum[1] + sum[2] + sum[3];
}

}  // namespace

std::string cpu_model_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

Result<BandwidthProbe> BandwidthProbe::create(base::ThreadPool& pool) {
  MB_ASSIGN(auto buffer, base::AlignedBuffer::allocate(kBytes, base::AlignedBuffer::Pages::kHuge));
  // Untouched pages would all be the one zero page.
  std::memset(buffer.data(), 1, buffer.size_bytes());
  return BandwidthProbe(pool, std::move(buffer));
}

double BandwidthProbe::measure() {
  const auto start = std::chrono::steady_clock::now();
  const auto chunks = static_cast<int64_t>(buffer_.size_bytes() / kProbeChunkBytes);
  pool_->run(chunks, [&](int64_t chunk, int thread) {
    sums_[static_cast<size_t>(thread)] +=
        sum_of(buffer_.data() + static_cast<size_t>(chunk) * kProbeChunkBytes, kProbeChunkBytes);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  return static_cast<double>(buffer_.size_bytes()) / seconds.count() / 1e9;
}

base::Json machine_json(const std::string& backend, int threads) {
  return {{"cpu", cpu_model_name()},
          {"cores", static_cast<int>(std::thread::hardware_concurrency())},
          {"threads", threads},
          {"backend", backend},
          {"memory_bytes", machine_memory().total_bytes},
          {"version", MARKBASE_VERSION},
          {"commit", MARKBASE_COMMIT},
          {"compiler", MARKBASE_COMPILER}};
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace markbase::runtime

namespace markbase::tools {

Result<std::string> version_json() {
  return base::guarded("version_json", []() -> Result<std::string> {
    return base::dump_json({{"version", MARKBASE_VERSION},
                            {"commit", MARKBASE_COMMIT},
                            {"compiler", MARKBASE_COMPILER},
                            {"backends", {"cpu", "ref"}},
                            {"cpu_level", runtime::best_cpu_level()}});
  });
}

}  // namespace markbase::tools
