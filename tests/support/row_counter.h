// A backend that passes everything on and counts the rows that attend.
#pragma once

#include "ops/backend.h"

namespace markbase::testing {

class RowCounter final : public ops::Backend {
 public:
  explicit RowCounter(ops::Backend& inner) : inner_(inner) {}
  int64_t attention_rows() const { return attention_rows_; }

  std::string_view name() const override { return inner_.name(); }
  std::string description() const override { return inner_.description(); }
  tensor::Device device() const override { return inner_.device(); }
  Result<std::unique_ptr<ops::DeviceBuffer>> allocate(size_t size_bytes) override {
    return inner_.allocate(size_bytes);
  }
  void upload(void* device, std::span<const std::byte> host) override {
    inner_.upload(device, host);
  }
  void download(std::span<std::byte> host, const void* device) override {
    inner_.download(host, device);
  }
  void synchronize() override { inner_.synchronize(); }
  Result<std::unique_ptr<ops::PackedWeight>> pack(
      const quant::WeightView& weight, std::string_view name,
      base::FunctionRef<void(int64_t, int64_t)> on_rows_done) override {
    return inner_.pack(weight, name, on_rows_done);
  }
  size_t packed_bytes(const quant::WeightView& weight) const override {
    return inner_.packed_bytes(weight);
  }
  Result<std::unique_ptr<ops::PackedWeight>> map_table(const quant::WeightView& table,
                                                       std::string_view name) override {
    return inner_.map_table(table, name);
  }
  Result<void> plan(const ops::StepCapacity& capacity) override { return inner_.plan(capacity); }
  size_t plan_bytes(const ops::StepCapacity& capacity) const override {
    return inner_.plan_bytes(capacity);
  }
  size_t kv_block_bytes(const ops::KvLayout& layout) const override {
    return inner_.kv_block_bytes(layout);
  }

  void embedding(const ops::EmbeddingArgs& args) override { inner_.embedding(args); }
  void rms_norm(const ops::RmsNormArgs& args) override { inner_.rms_norm(args); }
  void add(const ops::AddArgs& args) override { inner_.add(args); }
  void linear(const ops::LinearArgs& args) override { inner_.linear(args); }
  void gelu_mul(const ops::GeluMulArgs& args) override { inner_.gelu_mul(args); }
  void soft_cap(const ops::SoftCapArgs& args) override { inner_.soft_cap(args); }
  void scale(const ops::ScaleArgs& args) override { inner_.scale(args); }
  void gather_rows(const ops::GatherRowsArgs& args) override { inner_.gather_rows(args); }
  void rope_table(const ops::RopeTableArgs& args) override { inner_.rope_table(args); }
  void rope(const ops::RopeArgs& args) override { inner_.rope(args); }
  void kv_write(const ops::KvWriteArgs& args) override { inner_.kv_write(args); }
  void attention(const ops::AttentionArgs& args) override {
    attention_rows_ += args.q.dim(0);
    inner_.attention(args);
  }
  void sample(const ops::SampleArgs& args) override { inner_.sample(args); }
  void token_logprobs(const ops::TokenLogprobsArgs& args) override { inner_.token_logprobs(args); }
  void route(const ops::RouteArgs& args) override { inner_.route(args); }
  void experts(const ops::ExpertsArgs& args) override { inner_.experts(args); }

 private:
  ops::Backend& inner_;
  int64_t attention_rows_ = 0;
};

}  // namespace markbase::testing
