#include "support/subject.h"

#include <algorithm>

#include "backends/cpu/cpu_backend.h"
#include "backends/ref/ref_backend.h"
#include "base/check.h"

namespace markbase::testing {
namespace {

constexpr std::string_view kCpuPrefix = "cpu_";

std::unique_ptr<ops::Backend> make_backend(const std::string& name, base::ThreadPool& pool) {
  if (name == "ref") return backends::make_ref_backend(pool);
  MB_CHECK(name.starts_with(kCpuPrefix));
  const auto isa = backends::parse_cpu_isa(std::string_view(name).substr(kCpuPrefix.size()));
  MB_CHECK(isa.has_value() && backends::cpu_supports(*isa));
  return backends::make_cpu_backend(pool, {.isa = *isa});
}

}  // namespace

std::vector<std::string> subject_names() {
  std::vector<std::string> names = {"ref"};
  for (const backends::CpuIsa isa : backends::all_cpu_isas()) {
    if (!backends::cpu_supports(isa)) continue;
    names.push_back(std::string(kCpuPrefix) + std::string(backends::cpu_isa_name(isa)));
  }
  return names;
}

Subject make_subject(const std::string& name, int num_threads) {
  Subject subject;
  subject.pool = std::make_unique<base::ThreadPool>(num_threads);
  subject.backend = make_backend(name, *subject.pool);
  const Result<void> planned = subject.backend->plan({.max_rows = 128,
                                                      .max_linear_cols = 4096,
                                                      .max_heads = 16,
                                                      .max_head_dim = 512,
                                                      .max_context = 2048,
                                                      .num_experts = 128,
                                                      .top_k_experts = 8,
                                                      .expert_inputs = 1024,
                                                      .expert_width = 512});
  MB_CHECK_MSG(planned.ok(), "the plan for tests failed");
  return subject;
}

DeviceTensor::DeviceTensor(ops::Backend& backend, tensor::DType dtype,
                           std::initializer_list<int64_t> shape)
    : backend_(&backend), view_(tensor::make_view(nullptr, dtype, shape, backend.device())) {
  const auto n = static_cast<size_t>(view_.num_elements());
  auto buffer = backend.allocate(std::max<size_t>(1, n) * tensor::dtype_bytes(dtype));
  MB_CHECK_MSG(buffer.ok(), "out of memory in a test");
  buffer_ = std::move(buffer).value();
  view_.data = buffer_->data();
}

void DeviceTensor::upload(std::span<const std::byte> bytes) {
  MB_CHECK(bytes.size() ==
           static_cast<size_t>(view_.num_elements()) * tensor::dtype_bytes(view_.dtype));
  backend_->upload(view_.data, bytes);
  backend_->synchronize();
}

void DeviceTensor::download(std::span<std::byte> bytes) const {
  backend_->synchronize();
  backend_->download(bytes, view_.data);
  backend_->synchronize();
}

std::vector<float> DeviceTensor::floats() const {
  MB_CHECK(view_.dtype == tensor::DType::kF32);
  std::vector<float> values(static_cast<size_t>(view_.num_elements()));
  download(std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<int32_t> DeviceTensor::ints() const {
  MB_CHECK(view_.dtype == tensor::DType::kI32);
  std::vector<int32_t> values(static_cast<size_t>(view_.num_elements()));
  download(std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace markbase::testing
