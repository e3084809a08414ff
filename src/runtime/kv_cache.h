// Keys and values of the sequences under way, in blocks of 64 tokens.
//
// Layers that use the keys and values of another one have its view and take no memory. Layers of
// one kind (same layout, same window) share block numbers. A full layer has a table as
// long as the context; a sliding layer a ring that holds the window, the largest chunk and one
// block more. The memory is reserved at once and touched as it is used.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "markbase/result.h"
#include "model/config.h"
#include "ops/backend.h"
#include "runtime/memory_plan.h"

namespace markbase::runtime {

class KvCache {
 public:
  static uint64_t bytes(const model::TextConfig& config, const ops::Backend& backend,
                        const RunnerOptions& options);
  // Errors: kOutOfMemory.
  static Result<std::unique_ptr<KvCache>> create(const model::TextConfig& config,
                                                 ops::Backend& backend,
                                                 const RunnerOptions& options);

  // A free row of the block tables. -1: all are taken.
  int open_sequence();
  void close_sequence(int sequence);
  // Makes room for the positions below `end`; never fails within the context. Allocates nothing.
  void reserve(int sequence, int64_t end);
  // Brings the tables to the backend if they changed since.
  void upload_tables();
  // One view a layer.
  std::span<const ops::KvView> views() const { return views_; }

 private:
  // Layers that share a table.
  struct Kind {
    ops::KvLayout layout;
    int64_t window = 0;
    int64_t table_blocks = 0;    // of one sequence
    std::vector<int32_t> free;   // block numbers
    std::vector<int32_t> table;  // [max_sequences, table_blocks]
    std::vector<int64_t> held;   // blocks of each sequence so far, at most table_blocks
    tensor::TensorView device_table;
  };

  explicit KvCache(ops::Backend& backend) : backend_(backend) {}
  static std::vector<Kind> kinds_of(const model::TextConfig& config, const RunnerOptions& options,
                                    std::vector<int>* kind_of_layer);

  ops::Backend& backend_;
  int64_t max_sequences_ = 0;
  std::vector<Kind> kinds_;
  std::vector<bool> taken_;
  std::vector<std::unique_ptr<ops::DeviceBuffer>>
      memory_;  // a table a kind, then the blocks a layer
  std::vector<ops::KvView> views_;
  bool tables_changed_ = true;
};

}  // namespace markbase::runtime
