// The class behind make_ref_backend. Private to this room.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "ops/backend.h"

namespace markbase::backends {

class RefWeight final : public ops::PackedWeight {
 public:
  RefWeight(int64_t rows, int64_t cols, base::AlignedBuffer values)
      : PackedWeight(rows, cols, values.size_bytes()), values_(std::move(values)) {}
  const float* row(int64_t i) const { return mutable_row(i); }
  float* mutable_row(int64_t i) const {
    return reinterpret_cast<float*>(values_.data()) + i * cols();
  }

 private:
  base::AlignedBuffer values_;
};

class RefBackend final : public ops::Backend {
 public:
  explicit RefBackend(base::ThreadPool& pool) : pool_(pool) {}

  std::string_view name() const override { return "ref"; }
  std::string description() const override;
  tensor::Device device() const override { return tensor::Device::kHost; }

  Result<std::unique_ptr<ops::DeviceBuffer>> allocate(size_t size_bytes) override;
  void upload(void* device, std::span<const std::byte> host) override;
  void download(std::span<std::byte> host, const void* device) override;
  void synchronize() override {}

  Result<std::unique_ptr<ops::PackedWeight>> pack(
      const quant::WeightView& weight, std::string_view name,
      base::FunctionRef<void(int64_t, int64_t)> on_rows_done) override;
  size_t packed_bytes(const quant::WeightView& weight) const override;
  Result<std::unique_ptr<ops::PackedWeight>> map_table(const quant::WeightView& table,
                                                       std::string_view name) override;
  Result<void> plan(const ops::StepCapacity& capacity) override;
  size_t plan_bytes(const ops::StepCapacity& capacity) const override;
  size_t kv_block_bytes(const ops::KvLayout& layout) const override;

  void embedding(const ops::EmbeddingArgs& args) override;
  void rms_norm(const ops::RmsNormArgs& args) override;
  void add(const ops::AddArgs& args) override;
  void linear(const ops::LinearArgs& args) override;
  void gelu_mul(const ops::GeluMulArgs& args) override;
  void soft_cap(const ops::SoftCapArgs& args) override;
  void scale(const ops::ScaleArgs& args) override;
  void gather_rows(const ops::GatherRowsArgs& args) override;
  void rope_table(const ops::RopeTableArgs& args) override;
  void rope(const ops::RopeArgs& args) override;
  void kv_write(const ops::KvWriteArgs& args) override;
  void attention(const ops::AttentionArgs& args) override;
  void sample(const ops::SampleArgs& args) override;
  void token_logprobs(const ops::TokenLogprobsArgs& args) override;
  void route(const ops::RouteArgs& args) override;
  void experts(const ops::ExpertsArgs& args) override;

 private:
  void linear_target(const tensor::TensorView& x, const ops::LinearTarget& target);

  base::ThreadPool& pool_;
  ops::StepCapacity capacity_;
  base::AlignedBuffer scratch_;
  double* x_columns_ = nullptr;    // linear: x as [row tiles, K, kLinearTileRows]
  double* scores_ = nullptr;       // attention: [threads, max_context + head_dim]
  double* expert_rows_ = nullptr;  // experts: [threads, inputs + width]
};

// Rows of x that one pass over a weight row serves.
inline constexpr int64_t kLinearTileRows = 8;

}  // namespace markbase::backends
