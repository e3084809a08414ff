#include "backends/cpu/cpu_backend.h"

#include <cstring>
#include <utility>

#include "backends/cpu/experts.h"
#include "backends/cpu/linear.h"
#include "backends/cpu/pack.h"
#include "backends/cpu/vector_ops.h"
#include "base/buffer.h"
#include "base/check.h"
#include "ops/mapped_table.h"

namespace markbase::backends {
namespace {

class CpuBuffer : public ops::DeviceBuffer {
 public:
  explicit CpuBuffer(base::AlignedBuffer buffer) : buffer_(std::move(buffer)) {}
  void* data() const override { return buffer_.data(); }
  size_t size_bytes() const override { return buffer_.size_bytes(); }

 private:
  base::AlignedBuffer buffer_;
};

class CpuBackend : public ops::Backend {
 public:
  CpuBackend(base::ThreadPool& pool, const CpuOptions& options)
      : pool_(pool),
        options_(options),
        linear_kernels_(cpu::linear_kernels(options.isa)),
        vector_kernels_(cpu::vector_kernels(options.isa)) {}

  std::string_view name() const override { return "cpu"; }
  std::string description() const override {
    std::string text = "cpu, " + std::string(cpu_isa_name(options_.isa)) + " kernels, ";
    text += std::to_string(pool_.num_threads());
    text += pool_.num_threads() == 1 ? " thread" : " threads";
    if (options_.activations == ActivationPrecision::kQ8) text += ", 8-bit activations";
    return text;
  }
  tensor::Device device() const override { return tensor::Device::kHost; }

  Result<std::unique_ptr<ops::DeviceBuffer>> allocate(size_t size_bytes) override {
    MB_ASSIGN(base::AlignedBuffer buffer, base::AlignedBuffer::allocate(size_bytes));
    return std::unique_ptr<ops::DeviceBuffer>(std::make_unique<CpuBuffer>(std::move(buffer)));
  }
  void upload(void* device, std::span<const std::byte> host) override {
    if (!host.empty()) std::memcpy(device, host.data(), host.size());
  }
  void download(std::span<std::byte> host, const void* device) override {
    if (!host.empty()) std::memcpy(host.data(), device, host.size());
  }
  void synchronize() override {}

  Result<std::unique_ptr<ops::PackedWeight>> pack(
      const quant::WeightView& weight, std::string_view name,
      base::FunctionRef<void(int64_t, int64_t)> on_rows_done) override {
    MB_ASSIGN(auto packed, cpu::pack_weight(pool_, weight_arena_, weight, name, on_rows_done));
    return std::unique_ptr<ops::PackedWeight>(std::move(packed));
  }
  size_t packed_bytes(const quant::WeightView& weight) const override {
    return cpu::packed_weight_bytes(weight);
  }

  Result<std::unique_ptr<ops::PackedWeight>> map_table(const quant::WeightView& table,
                                                       std::string_view name) override {
    MB_TRY(quant::validate(table, name));
    return std::unique_ptr<ops::PackedWeight>(std::make_unique<ops::MappedTable>(table));
  }

  std::string packed_layout() const override { return std::string(cpu::kPackedLayout); }
  std::span<const std::byte> packed_content(const ops::PackedWeight& weight) const override {
    return static_cast<const cpu::CpuPackedWeight&>(weight).content();
  }
  Result<std::unique_ptr<ops::PackedWeight>> restore(const quant::WeightView& weight,
                                                     std::span<const std::byte> content) override {
    return std::unique_ptr<ops::PackedWeight>(cpu::restore_weight(weight, content));
  }

  Result<void> plan(const ops::StepCapacity& capacity) override {
    MB_ASSIGN(linear_scratch_, base::AlignedBuffer::allocate(linear_bytes(capacity)));
    MB_ASSIGN(vector_scratch_, base::AlignedBuffer::allocate(vector_bytes(capacity)));
    MB_ASSIGN(experts_scratch_, base::AlignedBuffer::allocate(experts_bytes(capacity)));
    return {};
  }
  size_t plan_bytes(const ops::StepCapacity& capacity) const override {
    return linear_bytes(capacity) + vector_bytes(capacity) + experts_bytes(capacity);
  }
  size_t kv_block_bytes(const ops::KvLayout& layout) const override {
    return cpu::kv_block_bytes(layout);
  }

  void embedding(const ops::EmbeddingArgs& args) override {
    ops::check(args);
    cpu::embedding(pool_, args);
  }
  void linear(const ops::LinearArgs& args) override {
    ops::check(args);
    cpu::linear({&linear_kernels_, &pool_, linear_scratch_.bytes(), options_.activations}, args);
  }
  void rms_norm(const ops::RmsNormArgs& args) override {
    ops::check(args);
    cpu::rms_norm(vector_kernels_, pool_, args);
  }
  void add(const ops::AddArgs& args) override {
    ops::check(args);
    cpu::add(vector_kernels_, pool_, args);
  }
  void gelu_mul(const ops::GeluMulArgs& args) override {
    ops::check(args);
    cpu::gelu_mul(vector_kernels_, pool_, args);
  }
  void soft_cap(const ops::SoftCapArgs& args) override {
    ops::check(args);
    cpu::soft_cap(vector_kernels_, pool_, args);
  }
  void scale(const ops::ScaleArgs& args) override {
    ops::check(args);
    cpu::scale(vector_kernels_, pool_, args);
  }
  void gather_rows(const ops::GatherRowsArgs& args) override {
    ops::check(args);
    cpu::gather_rows(vector_kernels_, pool_, args);
  }
  void rope_table(const ops::RopeTableArgs& args) override {
    ops::check(args);
    cpu::rope_table(pool_, args);
  }
  void rope(const ops::RopeArgs& args) override {
    ops::check(args);
    cpu::rope(vector_kernels_, pool_, args);
  }
  void kv_write(const ops::KvWriteArgs& args) override {
    ops::check(args);
    cpu::kv_write(vector_kernels_, pool_, args);
  }
  void attention(const ops::AttentionArgs& args) override {
    ops::check(args);
    cpu::attention(vector_kernels_, pool_, vector_scratch_.bytes(), args);
  }
  void sample(const ops::SampleArgs& args) override {
    ops::check(args);
    cpu::sample(vector_kernels_, pool_, args);
  }
  void token_logprobs(const ops::TokenLogprobsArgs& args) override {
    ops::check(args);
    cpu::token_logprobs(pool_, args);
  }
  void route(const ops::RouteArgs& args) override {
    ops::check(args);
    cpu::route(vector_kernels_, pool_, args);
  }
  void experts(const ops::ExpertsArgs& args) override {
    ops::check(args);
    cpu::experts({.linear = &linear_kernels_,
                  .vector = &vector_kernels_,
                  .pool = &pool_,
                  .scratch = experts_scratch_.bytes(),
                  .activations = options_.activations},
                 args);
  }
  void add_rms_norm(const ops::AddRmsNormArgs& args) override {
    ops::check(args);
    cpu::add_rms_norm(vector_kernels_, pool_, args);
  }
  void norm_rope(const ops::NormRopeArgs& args) override {
    ops::check(args);
    cpu::norm_rope(vector_kernels_, pool_, args);
  }

 private:
  size_t linear_bytes(const ops::StepCapacity& capacity) const {
    return cpu::linear_scratch_bytes(linear_kernels_, capacity, pool_.num_threads());
  }
  size_t experts_bytes(const ops::StepCapacity& capacity) const {
    return cpu::experts_scratch_bytes(linear_kernels_, capacity, pool_.num_threads());
  }
  size_t vector_bytes(const ops::StepCapacity& capacity) const {
    return cpu::vector_scratch_bytes(capacity, pool_.num_threads());
  }

  base::ThreadPool& pool_;
  const CpuOptions options_;
  const cpu::LinearKernels& linear_kernels_;
  const cpu::VectorKernels& vector_kernels_;
  cpu::WeightArena weight_arena_;
  base::AlignedBuffer linear_scratch_;
  base::AlignedBuffer vector_scratch_;
  base::AlignedBuffer experts_scratch_;
};

}  // namespace

std::unique_ptr<ops::Backend> make_cpu_backend(base::ThreadPool& pool, const CpuOptions& options) {
  MB_CHECK_MSG(cpu_supports(options.isa), "instruction set not supported by this machine");
  return std::make_unique<CpuBackend>(pool, options);
}

}  // namespace markbase::backends
