// Random use of the cache against a reference that knows what should be kept and held.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "runtime/kv_cache.h"
#include "support/random.h"
#include "support/tagged_cache.h"

namespace markbase {
namespace {

using runtime::RunnerOptions;
using testing::adopted;
using testing::Cache;
using testing::kChunk;
using testing::kContext;
using testing::keep;
using testing::kTokens;
using testing::options_for;

// What should be kept: borders with the time of their last use.
class KeptModel {
 public:
  KeptModel(bool slides, int64_t most) : slides_(slides), most_(static_cast<size_t>(most)) {}

  int64_t adopt(const std::vector<int32_t>& ids) {
    const Border* best = nullptr;
    for (const Border& border : borders_) {
      if (border.ids.size() < ids.size() && is_prefix(border.ids, ids) &&
          (best == nullptr || best->ids.size() < border.ids.size())) {
        best = &border;
      }
    }
    if (best == nullptr) return 0;
    const auto found = best->ids;
    touch(found);
    return static_cast<int64_t>(found.size());
  }
  void keep(std::vector<int32_t> ids) {
    ids.resize(ids.size() / kTokens * kTokens);
    if (ids.empty()) return;
    // Without windows one can go on anywhere.
    for (size_t size = slides_ ? ids.size() : kTokens; size <= ids.size(); size += kTokens) {
      const std::vector<int32_t> prefix(ids.begin(), ids.begin() + static_cast<int64_t>(size));
      const auto same = [&](const Border& border) { return border.ids == prefix; };
      if (std::none_of(borders_.begin(), borders_.end(), same)) borders_.push_back({prefix, 0});
    }
    touch(ids);
    while (slides_ && borders_.size() > most_) {
      const auto oldest =
          std::min_element(borders_.begin(), borders_.end(), [&](const Border& a, const Border& b) {
            if ((a.ids == ids) != (b.ids == ids)) return b.ids == ids;
            return std::pair(a.last_use, a.ids.size()) < std::pair(b.last_use, b.ids.size());
          });
      borders_.erase(oldest);
    }
  }
  void clear() { borders_.clear(); }

 private:
  struct Border {
    std::vector<int32_t> ids;
    int64_t last_use;
  };
  static bool is_prefix(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
    return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
  }
  void touch(const std::vector<int32_t>& ids) {
    ++clock_;
    for (Border& border : borders_) {
      if (is_prefix(border.ids, ids)) border.last_use = clock_;
    }
  }

  bool slides_;
  size_t most_;
  int64_t clock_ = 0;
  std::vector<Border> borders_;
};

struct Sequence {
  int slot = -1;
  std::vector<int32_t> ids;
  int64_t done = 0;
  int64_t last_begin = 0;  // of the last reserve
};

// Random use of a cache. `tight`: the pool holds little more than one context, so that prefixes
// make way and sequences have to wait; otherwise the reference says what is adopted.
class RandomUse {
 public:
  RandomUse(uint64_t seed, const std::string& layers, int64_t window, bool tight)
      : layers_(layers),
        random_(seed),
        tight_(tight),
        slides_(layers.find_first_of("Ss") != std::string::npos),
        options_(options_for(tight ? kRunning : 16, kKept, tight ? kTightBlocks * kTokens : 0)),
        cache_(layers, window, options_),
        kept_(slides_, kKept) {}

  void run(int steps) {
    for (int i = 0; i < steps && !::testing::Test::HasFatalFailure(); ++i) {
      SCOPED_TRACE(fmt::format("step {}", i));
      step();
      check_counts();
    }
    while (!running_.empty()) close(0, false);
    check_counts();
    EXPECT_EQ(cache_->usage().used, 0);
    cache_->drop_prefixes();
    EXPECT_EQ(cache_->usage().kept, 0);
    EXPECT_GT(adopted_, 0);
    if (layers_.find('F') != std::string::npos) {
      EXPECT_GT(foreseen_, 0);
    }
    if (tight_ && layers_.find('F') != std::string::npos) {
      EXPECT_GT(refused_, 0);
    }
  }

 private:
  static constexpr int64_t kRunning = 4;
  static constexpr int64_t kKept = 5;
  static constexpr int64_t kTightBlocks = 13;

  void step() {
    const int64_t choice = random_.below(100);
    if (running_.empty() || (choice < 20 && running_.size() < kRunning)) return open(some_text());
    if (choice < 22) return foresee_and_open();
    const auto idx = static_cast<size_t>(random_.below(static_cast<int64_t>(running_.size())));
    if (choice < 65) return advance(idx);
    if (choice < 80) return keep(running_[idx]);
    if (choice < 87 && running_.size() < kRunning) return share(running_[idx]);
    if (choice < 99) return close(idx, random_.below(2) == 0);
    const bool full = cache_->usage().kept > cache_->usage().num_blocks / 4;
    if (random_.below(4) == 0 || (!tight_ && full)) drop_prefixes();
  }
  void drop_prefixes() {
    cache_->drop_prefixes();
    kept_.clear();
    EXPECT_EQ(cache_->usage().kept, 0);
  }

  // The beginning of an earlier text, then something else, of few ids so that texts meet again.
  std::vector<int32_t> some_text() {
    std::vector<int32_t> ids;
    if (!texts_.empty() && random_.below(5) != 0) {
      ids = texts_[static_cast<size_t>(random_.below(static_cast<int64_t>(texts_.size())))];
      if (random_.below(3) != 0) ids.resize(static_cast<size_t>(random_.below(kContext + 1)));
    }
    const int64_t length =
        std::max<int64_t>(static_cast<int64_t>(ids.size()), 1 + random_.below(kContext));
    const auto id = static_cast<int32_t>(random_.below(3));
    while (static_cast<int64_t>(ids.size()) < length) ids.push_back(id);
    texts_.push_back(ids);
    if (texts_.size() > 12) texts_.erase(texts_.begin() + random_.below(12));
    return ids;
  }

  // Some are closed for the new one, of more that were thought of.
  void foresee_and_open() {
    std::vector<int> closing = slots();
    for (size_t i = closing.size(); i > 1; --i) {
      std::swap(closing[i - 1],
                closing[static_cast<size_t>(random_.below(static_cast<int64_t>(i)))]);
    }
    const auto most = static_cast<int64_t>(closing.size());
    const int64_t least = most == kRunning ? 1 : 0;
    const auto num_closed = static_cast<size_t>(least + random_.below(most - least + 1));
    closing.resize(num_closed +
                   static_cast<size_t>(random_.below(most - static_cast<int64_t>(num_closed) + 1)));
    const std::vector<int32_t> ids = some_text();
    std::vector<int64_t> available(closing.size() + 1);
    const int64_t now = cache_->available_tokens();
    const int64_t prefix = cache_->foresee({.ids = ids}, closing, available);
    EXPECT_EQ(cache_->available_tokens(), now);
    foreseen_ += prefix > 0 && available[num_closed] != available[0] ? 1 : 0;
    for (size_t i = 0; i < num_closed; ++i) {
      const auto found = std::ranges::find(running_, closing[i], &Sequence::slot);
      close(static_cast<size_t>(found - running_.begin()), false);
    }
    open(ids);
    EXPECT_EQ(running_.back().done, prefix);
    EXPECT_EQ(cache_->available_tokens(), available[num_closed]);
  }
  void open(const std::vector<int32_t>& ids) {
    Sequence sequence;
    sequence.slot = cache_->open_sequence();
    ASSERT_GE(sequence.slot, 0);
    sequence.ids = ids;
    sequence.done = cache_->adopt_prefix(sequence.slot, sequence.ids);
    sequence.last_begin = sequence.done;
    EXPECT_EQ(sequence.done % kTokens, 0);
    EXPECT_LT(sequence.done, static_cast<int64_t>(sequence.ids.size()));
    if (!tight_) {
      ASSERT_EQ(sequence.done, kept_.adopt(sequence.ids));
    }
    adopted_ += sequence.done;
    cache_.expect_seen(sequence.slot, sequence.ids, sequence.done);
    running_.push_back(std::move(sequence));
  }
  void advance(size_t idx) {
    Sequence& sequence = running_[idx];
    const int64_t left = static_cast<int64_t>(sequence.ids.size()) - sequence.done;
    if (left == 0) return;
    const int64_t count = std::min(left, random_.below(3) == 0 ? 1 : 1 + random_.below(kChunk));
    const auto before = cache_->usage();
    if (cache_.compute(sequence.slot, sequence.ids, sequence.done, sequence.done + count)) {
      sequence.last_begin = sequence.done;
      sequence.done += count;
      return;
    }
    ++refused_;
    ASSERT_TRUE(tight_);
    EXPECT_EQ(cache_->usage().used, before.used);
    EXPECT_EQ(cache_->usage().kept, before.kept);
    const size_t full = layers_.find('F');
    ASSERT_NE(full, std::string::npos) << "a sliding pool has room for everyone";
    const int64_t wanted =
        (sequence.done + count + kTokens - 1) / kTokens - (sequence.done + kTokens - 1) / kTokens;
    EXPECT_LT(kTightBlocks - cache_.num_held(full, slots()), wanted);
    cache_.expect_seen(sequence.slot, sequence.ids, sequence.done);
    close(idx, random_.below(2) == 0);
  }
  void keep(const Sequence& sequence) {
    const int64_t low = tight_ && random_.below(4) == 0 ? 0 : sequence.last_begin;
    const int64_t count = low + random_.below(sequence.done - low + 1);
    const std::vector<int32_t> ids(sequence.ids.begin(), sequence.ids.begin() + count);
    cache_->keep_prefix(sequence.slot, ids);
    kept_.keep(ids);
  }
  void share(const Sequence& from) {
    Sequence to;
    to.slot = cache_->open_sequence();
    ASSERT_GE(to.slot, 0);
    const int64_t end = from.last_begin + random_.below(from.done - from.last_begin + 1);
    to.ids.assign(from.ids.begin(), from.ids.begin() + end);
    while (static_cast<int64_t>(to.ids.size()) < kContext) to.ids.push_back(7);
    int64_t available = 0;
    const int64_t foreseen =
        cache_->foresee({.beside = from.slot, .common = end}, {}, std::span(&available, 1));
    to.done = cache_->share(from.slot, to.slot, end);
    EXPECT_EQ(to.done, foreseen);
    EXPECT_EQ(cache_->available_tokens(), available);
    to.last_begin = to.done;
    EXPECT_EQ(to.done, end / kTokens * kTokens);
    cache_.expect_seen(to.slot, to.ids, to.done);
    running_.push_back(std::move(to));
  }
  void close(size_t idx, bool keeps) {
    const Sequence sequence = running_[idx];
    if (keeps) keep(sequence);
    cache_->close_sequence(sequence.slot);
    running_.erase(running_.begin() + static_cast<int64_t>(idx));
  }

  std::vector<int> slots() const {
    std::vector<int> slots;
    for (const Sequence& sequence : running_) slots.push_back(sequence.slot);
    return slots;
  }
  // Blocks in the rows are those that count as used; every sequence still finds what it sees.
  void check_counts() {
    const auto usage = cache_->usage();
    int64_t used = 0;
    std::set<int64_t> windows;
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      if (!windows.insert(cache_.config().layers[layer].sliding_window).second) continue;
      used += cache_.num_held(layer, slots());
    }
    ASSERT_EQ(usage.used, used);
    ASSERT_LE(usage.used + usage.kept, usage.num_blocks);
    if (running_.empty()) return;
    const Sequence& any =
        running_[static_cast<size_t>(random_.below(static_cast<int64_t>(running_.size())))];
    cache_.expect_seen(any.slot, any.ids, any.done);
  }

  std::string layers_;
  testing::Random random_;
  bool tight_;
  bool slides_;
  RunnerOptions options_;
  Cache cache_;
  KeptModel kept_;
  std::vector<Sequence> running_;
  std::vector<std::vector<int32_t>> texts_;
  int64_t adopted_ = 0;
  int64_t refused_ = 0;
  int64_t foreseen_ = 0;  // that closing makes room beside a prefix
};

TEST(KvCache, RandomUseIsAsAReferenceSays) {
  uint64_t seed = 0;
  for (const char* layers : {"SF", "F", "S", "FSFs"}) {
    for (const int64_t window : {20, 64, 100, 200}) {
      for (const bool tight : {false, true}) {
        SCOPED_TRACE(fmt::format("{} window {} tight {}", layers, window, tight));
        RandomUse(++seed, layers, window, tight).run(2000);
        if (HasFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace markbase
