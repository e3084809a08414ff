#include "backends/ref/ref_backend.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "backends/ref/ref_backend_impl.h"
#include "base/error.h"
#include "ops/mapped_table.h"

namespace markbase::backends {
namespace {

class HostBuffer final : public ops::DeviceBuffer {
 public:
  explicit HostBuffer(base::AlignedBuffer buffer) : buffer_(std::move(buffer)) {}
  void* data() const override { return buffer_.data(); }
  size_t size_bytes() const override { return buffer_.size_bytes(); }

 private:
  base::AlignedBuffer buffer_;
};

// Rows decoded between two reports of progress: some megabytes of a wide weight.
constexpr int64_t kRowsPerReport = 256;

struct PlannedScratch {
  double* x_columns;
  double* scores;
  double* expert_rows;
};

PlannedScratch carve(base::Arena& arena, const ops::StepCapacity& capacity, int num_threads) {
  const int64_t tiles = (capacity.max_rows + kLinearTileRows - 1) / kLinearTileRows;
  PlannedScratch planned{};
  planned.x_columns = arena.take_array<double>(
      static_cast<size_t>(tiles * kLinearTileRows * capacity.max_linear_cols));
  planned.scores = arena.take_array<double>(
      static_cast<size_t>(num_threads * (capacity.max_context + capacity.max_head_dim)));
  planned.expert_rows = arena.take_array<double>(
      static_cast<size_t>(num_threads * (capacity.expert_inputs + capacity.expert_width)));
  return planned;
}

ops::StepCapacity larger(const ops::StepCapacity& a, const ops::StepCapacity& b) {
  return {.max_rows = std::max(a.max_rows, b.max_rows),
          .max_linear_cols = std::max(a.max_linear_cols, b.max_linear_cols),
          .max_heads = std::max(a.max_heads, b.max_heads),
          .max_head_dim = std::max(a.max_head_dim, b.max_head_dim),
          .max_context = std::max(a.max_context, b.max_context),
          .num_experts = std::max(a.num_experts, b.num_experts),
          .top_k_experts = std::max(a.top_k_experts, b.top_k_experts),
          .expert_inputs = std::max(a.expert_inputs, b.expert_inputs),
          .expert_width = std::max(a.expert_width, b.expert_width)};
}

}  // namespace

std::unique_ptr<ops::Backend> make_ref_backend(base::ThreadPool& pool) {
  return std::make_unique<RefBackend>(pool);
}

std::string RefBackend::description() const { return "reference: float32 weights, sums in double"; }

Result<std::unique_ptr<ops::DeviceBuffer>> RefBackend::allocate(size_t size_bytes) {
  MB_ASSIGN(base::AlignedBuffer buffer, base::AlignedBuffer::allocate(size_bytes));
  return std::unique_ptr<ops::DeviceBuffer>(std::make_unique<HostBuffer>(std::move(buffer)));
}

void RefBackend::upload(void* device, std::span<const std::byte> host) {
  if (!host.empty()) std::memcpy(device, host.data(), host.size());
}

void RefBackend::download(std::span<std::byte> host, const void* device) {
  if (!host.empty()) std::memcpy(host.data(), device, host.size());
}

Result<std::unique_ptr<ops::PackedWeight>> RefBackend::pack(
    const quant::WeightView& weight, std::string_view name,
    base::FunctionRef<void(int64_t, int64_t)> on_rows_done) {
  MB_TRY(quant::validate(weight, name));
  MB_ASSIGN(base::AlignedBuffer values, base::AlignedBuffer::allocate(packed_bytes(weight)));
  auto packed = std::make_unique<RefWeight>(weight.rows, weight.cols, std::move(values));
  std::atomic<int64_t> broken_row{-1};
  for (int64_t begin = 0; begin < weight.rows; begin += kRowsPerReport) {
    const int64_t end = std::min(begin + kRowsPerReport, weight.rows);
    pool_.run(end - begin, [&](int64_t chunk, int) {
      const std::span<float> row(packed->mutable_row(begin + chunk),
                                 static_cast<size_t>(weight.cols));
      quant::decode_row(weight, begin + chunk, row);
      if (!std::ranges::all_of(row, [](float v) { return std::isfinite(v); })) {
        broken_row.store(begin + chunk);
      }
    });
    if (broken_row.load() >= 0) {
      return base::bad_input("{}: row {} has a value that is not finite", name, broken_row.load());
    }
    on_rows_done(begin, end);
  }
  return std::unique_ptr<ops::PackedWeight>(std::move(packed));
}

size_t RefBackend::packed_bytes(const quant::WeightView& weight) const {
  return static_cast<size_t>(weight.rows) * static_cast<size_t>(weight.cols) * sizeof(float);
}

Result<std::unique_ptr<ops::PackedWeight>> RefBackend::map_table(const quant::WeightView& table,
                                                                 std::string_view name) {
  MB_TRY(quant::validate(table, name));
  return std::unique_ptr<ops::PackedWeight>(std::make_unique<ops::MappedTable>(table));
}

Result<void> RefBackend::plan(const ops::StepCapacity& capacity) {
  const ops::StepCapacity wanted = larger(capacity_, capacity);
  MB_ASSIGN(scratch_, base::AlignedBuffer::allocate(plan_bytes(wanted)));
  base::Arena arena(scratch_.bytes());
  const PlannedScratch planned = carve(arena, wanted, pool_.num_threads());
  x_columns_ = planned.x_columns;
  scores_ = planned.scores;
  expert_rows_ = planned.expert_rows;
  capacity_ = wanted;
  return {};
}

size_t RefBackend::plan_bytes(const ops::StepCapacity& capacity) const {
  base::Arena counting;
  carve(counting, capacity, pool_.num_threads());
  return counting.used_bytes();
}

}  // namespace markbase::backends
