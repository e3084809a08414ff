// The machine under us: processor, cores, memory bandwidth.
#pragma once

#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/json.h"
#include "base/thread_pool.h"
#include "markbase/result.h"

namespace markbase::runtime {

std::string cpu_model_name();

// Reads memory that no cache holds, all threads together.
class BandwidthProbe {
 public:
  static constexpr uint64_t kBytes = uint64_t{256} << 20;  // what it holds

  // Errors: kOutOfMemory.
  static Result<BandwidthProbe> create(base::ThreadPool& pool);
  // One pass: GB/s (1e9 bytes).
  double measure();

 private:
  BandwidthProbe(base::ThreadPool& pool, base::AlignedBuffer buffer)
      : pool_(&pool), buffer_(std::move(buffer)), sums_(static_cast<size_t>(pool.num_threads())) {}
  base::ThreadPool* pool_;
  base::AlignedBuffer buffer_;
  std::vector<uint64_t> sums_;
};

// {"cpu","cores","threads","backend","memory_bytes","version","commit","compiler"}
base::Json machine_json(const std::string& backend, int threads);

double median(std::vector<double> values);

}  // namespace markbase::runtime
