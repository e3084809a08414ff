// Backends under test, and tensors in their memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "ops/backend.h"

namespace markbase::testing {

// A backend with its pool, planned for the sizes that tests use.
struct Subject {
  std::unique_ptr<base::ThreadPool> pool;
  std::unique_ptr<ops::Backend> backend;
};

// "ref", then "cpu_<isa>" for each instruction set this machine runs.
std::vector<std::string> subject_names();
Subject make_subject(const std::string& name, int num_threads);

// A contiguous tensor in a backend's memory.
class DeviceTensor {
 public:
  DeviceTensor(ops::Backend& backend, tensor::DType dtype, std::initializer_list<int64_t> shape);
  template <class T>
  DeviceTensor(ops::Backend& backend, tensor::DType dtype, std::initializer_list<int64_t> shape,
               std::span<const T> values)
      : DeviceTensor(backend, dtype, shape) {
    upload(std::as_bytes(values));
  }

  const tensor::TensorView& view() const { return view_; }
  std::vector<float> floats() const;
  std::vector<int32_t> ints() const;

 private:
  void upload(std::span<const std::byte> bytes);
  void download(std::span<std::byte> bytes) const;

  ops::Backend* backend_;
  std::unique_ptr<ops::DeviceBuffer> buffer_;
  tensor::TensorView view_;
};

inline DeviceTensor device_floats(ops::Backend& backend, std::initializer_list<int64_t> shape,
                                  std::span<const float> values) {
  return {backend, tensor::DType::kF32, shape, values};
}
inline DeviceTensor device_ints(ops::Backend& backend, std::initializer_list<int64_t> shape,
                                std::span<const int32_t> values) {
  return {backend, tensor::DType::kI32, shape, values};
}

}  // namespace markbase::testing
