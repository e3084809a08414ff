// Keys and values of the sequences under way and of the prefixes kept for later ones, in blocks of
// 64 tokens at absolute positions.
//
// Layers that use the keys and values of another one have its view and take no memory. Layers of
// one kind (same layout, same window) share block numbers. Every kind has a pool of blocks and a
// table as long as the context; in a full layer a sequence holds all its blocks, in a sliding layer
// those from the window of its last block border on. Blocks are never copied and never written
// again once they are shared: only whole blocks are. The memory is reserved at once and touched as
// it is used.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "markbase/result.h"
#include "model/config.h"
#include "ops/backend.h"
#include "runtime/block_pool.h"
#include "runtime/memory_plan.h"
#include "runtime/prefix_cache.h"
#include "runtime/prefix_file.h"

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
  // Gives back what the sequence holds; what is kept for others stays.
  void close_sequence(int sequence);
  // Makes room for rows at positions [begin, end): sliding blocks that no row from the border below
  // `begin` on can see are given back first; kept prefixes make way, the one not used for longest
  // first. False: too few blocks even so, and nothing was taken. Allocates nothing.
  bool reserve(int sequence, int64_t begin, int64_t end);
  // Brings the table rows that changed since to the backend.
  void upload_tables();
  // One view a layer.
  std::span<const ops::KvView> views() const { return views_; }

  // --- prefixes ---
  // The longest kept prefix of `ids` that ends at a block border and leaves at least the last id to
  // compute: its blocks become the sequence's, which must be fresh. Returns its tokens, 0 for none.
  int64_t adopt_prefix(int sequence, std::span<const int32_t> ids);
  // Keeps the whole blocks of a sequence whose rows at positions [0, ids.size()) were computed from
  // these ids: full blocks, and the window before the last border. Nothing happens where prefixes
  // are not kept (RunnerOptions::kept_windows == 0), nothing is left to hold, or there is no memory
  // to note it.
  void keep_prefix(int sequence, std::span<const int32_t> ids);
  // How many of the ids, in whole blocks, a kept prefix begins with, whether or not a sequence can
  // go on from there.
  int64_t matched_prefix(std::span<const int32_t> ids) const;
  // The sequence `to`, which is fresh, shares the blocks of `from` up to the border at or below
  // `end`: returns that border, 0 where `from` no longer holds the window before it. For several
  // answers to one prompt; needs no kept prefix.
  int64_t share(int from, int to, int64_t end);
  void drop_prefixes();

  // --- foresight ---
  // A sequence that may be opened.
  struct Newcomer {
    std::span<const int32_t> ids = {};  // what adopt_prefix will be given; none: nothing
    int beside = -1;                    // whom it will share with, where no prefix is kept
    int64_t common = 0;                 // up to here
  };
  // The tokens that it would have at once. available[n]: what available_tokens() would be then, the
  // first n of `closing` closed. Nothing changes, and nothing is allocated.
  int64_t foresee(const Newcomer& newcomer, std::span<const int> closing,
                  std::span<int64_t> available);

  // --- files ---
  // Every kept prefix with its blocks. `model`: what the file belongs to. Errors: kFailed.
  Result<int64_t> save_prefixes(const std::string& path, uint64_t model) const;
  // Adds to what is kept while there is room; tokens brought back. Errors: kBadInput (not such a
  // file, another version, model or layout, cut off, a checksum that does not hold).
  Result<int64_t> restore_prefixes(const std::string& path, uint64_t model);

  struct Usage {
    int64_t num_blocks = 0;
    int64_t used = 0;  // by sequences
    int64_t kept = 0;  // by prefixes alone
  };
  // Over all kinds.
  Usage usage() const;
  // Tokens that the free blocks of full layers and those that kept prefixes alone hold have room
  // for; without full layers, any number.
  int64_t available_tokens() const;
  // Blocks that a sequence of so many tokens needs of the kind that it exhausts first, as a share
  // of that pool; above 1 it can never run.
  double share_of_pool(int64_t tokens) const;

 private:
  // Layers of one layout and window.
  struct Shape {
    ops::KvLayout layout;
    int64_t window = 0;           // 0: full
    int64_t table_blocks = 0;     // of a row: the context
    int64_t sequence_blocks = 0;  // that one sequence holds at most
    int64_t num_blocks = 0;
    std::vector<size_t> layers;  // that own keys and values
    size_t block_bytes = 0;      // of one layer
  };
  // Blocks [begin, end) of a row.
  struct Held {
    int64_t begin = 0;
    int64_t end = 0;
  };
  struct Kind {
    Kind(Shape s, int64_t max_sequences);
    std::span<int32_t> row(size_t sequence) {
      return std::span(table).subspan(sequence * static_cast<size_t>(shape.table_blocks),
                                      static_cast<size_t>(shape.table_blocks));
    }

    Shape shape;
    BlockPool pool;
    std::vector<int32_t> table;  // [max_sequences, table_blocks], kNoBlock where nothing is held
    std::vector<Held> held;      // of each sequence
    std::vector<bool> changed;   // rows that the backend does not have yet
    tensor::TensorView device_table;
  };
  // What a sequence needs of one kind for its next rows.
  struct Need {
    int64_t first = 0;  // blocks before it go
    int64_t end = 0;
  };
  static constexpr int32_t kNoBlock = -1;

  KvCache(const model::TextConfig& config, ops::Backend& backend, const RunnerOptions& options);
  static std::vector<Shape> shapes_of(const model::TextConfig& config, const ops::Backend& backend,
                                      const RunnerOptions& options);
  Result<void> allocate(const model::TextConfig& config);
  Need need_of(const Kind& kind, size_t sequence, int64_t begin, int64_t end) const;
  bool has_room(size_t kind_idx, size_t sequence, const Need& need);
  void check_writable(Kind& kind, size_t sequence, int64_t begin, int64_t end);
  void give_back(size_t kind_idx, size_t sequence, int64_t end);
  void take(size_t kind_idx, size_t sequence, int64_t end);
  bool is_fresh(size_t sequence) const;
  PrefixCache::Place border_for(std::span<const int32_t> ids) const;
  int64_t blocks_to_share(size_t source, int64_t end) const;
  void foresee_kind(size_t kind_idx, std::span<const int32_t> prefix, std::span<const int> closing,
                    std::span<int64_t> available);
  // The sequence holds blocks [begin, end) of its row as well as others do.
  void hold(Kind& kind, size_t sequence, int64_t begin, int64_t end);
  void drop(size_t kind_idx, int32_t block);
  void fill_freed(size_t kind_idx, int32_t block);
  void* block_data(size_t layer, const Shape& shape, int32_t block) const;
  uint64_t layout_key() const;
  std::vector<PrefixFileKind> file_kinds() const;
  void download(size_t kind_idx, int32_t block, std::span<std::byte> bytes) const;
  void upload(size_t kind_idx, int32_t block, std::span<const std::byte> bytes);
  // A file on its way in.
  class Restore;

  ops::Backend& backend_;
  int64_t chunk_tokens_;
  int64_t context_tokens_;
  std::vector<Kind> kinds_;
  PrefixCache prefixes_;
  std::vector<bool> taken_;
  std::vector<PrefixCache::Place> places_;  // of each sequence among what is kept
  std::vector<std::byte> fill_;             // of a freed block; empty: left as it is
  // For foresight: holders of a block that would be gone, all 0 between calls; a row.
  std::vector<int32_t> gone_, spare_row_;
  std::vector<std::unique_ptr<ops::DeviceBuffer>>
      memory_;  // a table a kind, then the blocks a layer
  std::vector<ops::KvView> views_;
};

}  // namespace markbase::runtime
