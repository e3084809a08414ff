// Kept prefixes on their way to a file and back.
#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "runtime/content_hash.h"
#include "runtime/kv_cache.h"
#include "runtime/prefix_file.h"
#include "runtime/whole_file.h"

namespace markbase::runtime {

// Which layers share blocks, how, and whose bytes they are.
uint64_t KvCache::layout_key() const {
  std::vector<uint64_t> numbers;
  for (const Kind& kind : kinds_) {
    const Shape& shape = kind.shape;
    numbers.insert(
        numbers.end(),
        {static_cast<uint64_t>(shape.layout.type), static_cast<uint64_t>(shape.layout.num_kv_heads),
         static_cast<uint64_t>(shape.layout.head_dim), static_cast<uint64_t>(shape.window),
         shape.block_bytes, shape.layers.size()});
    numbers.insert(numbers.end(), shape.layers.begin(), shape.layers.end());
  }
  const std::string_view name = backend_.name();
  return content_hash(std::as_bytes(std::span(numbers)),
                      content_hash(std::as_bytes(std::span(name))));
}

std::vector<PrefixFileKind> KvCache::file_kinds() const {
  std::vector<PrefixFileKind> kinds;
  for (const Kind& kind : kinds_) {
    kinds.push_back({kind.shape.window, kind.shape.block_bytes * kind.shape.layers.size()});
  }
  return kinds;
}

// Layer after layer.
void KvCache::download(size_t kind_idx, int32_t block, std::span<std::byte> bytes) const {
  const Shape& shape = kinds_[kind_idx].shape;
  for (const size_t layer : shape.layers) {
    backend_.download(bytes.first(shape.block_bytes), block_data(layer, shape, block));
    bytes = bytes.subspan(shape.block_bytes);
  }
}

void KvCache::upload(size_t kind_idx, int32_t block, std::span<const std::byte> bytes) {
  const Shape& shape = kinds_[kind_idx].shape;
  for (const size_t layer : shape.layers) {
    backend_.upload(block_data(layer, shape, block), bytes.first(shape.block_bytes));
    bytes = bytes.subspan(shape.block_bytes);
  }
}

Result<int64_t> KvCache::save_prefixes(const std::string& path, uint64_t model) const {
  PrefixFile file;
  std::vector<std::pair<size_t, int32_t>> blocks;  // of the contents
  std::map<std::pair<size_t, int32_t>, uint32_t> content_of;
  const auto content = [&](size_t kind_idx, int32_t block) {
    const auto [entry, is_new] =
        content_of.try_emplace({kind_idx, block}, static_cast<uint32_t>(blocks.size()));
    if (is_new) {
      blocks.emplace_back(kind_idx, block);
      file.contents.push_back({.kind_idx = static_cast<uint32_t>(kind_idx)});
    }
    return entry->second;
  };
  for (const PrefixCache::Entry& entry : prefixes_.entries()) {
    PrefixFileNode node;
    node.parent = entry.parent;
    node.is_border = entry.is_border;
    node.depth = entry.parent < 0 ? 1 : file.nodes[static_cast<size_t>(entry.parent)].depth + 1;
    node.last_use = entry.last_use;
    std::copy(entry.ids.begin(), entry.ids.end(), node.ids.begin());
    auto full = entry.blocks.begin();
    auto window = entry.windows.begin();
    for (size_t i = 0; i < kinds_.size(); ++i) {
      const int64_t size = kinds_[i].shape.window;
      if (size == 0) node.blocks.push_back(content(i, *full++));
      if (size == 0 || !entry.is_border) continue;
      for (int64_t n = node.depth - first_block_seen(node.depth, size); n-- > 0;) {
        node.windows.push_back(content(i, *window++));
      }
    }
    file.nodes.push_back(std::move(node));
  }
  const auto tokens = static_cast<int64_t>(file.nodes.size()) * ops::kKvBlockTokens;
  backend_.synchronize();
  MB_TRY(write_prefix_file(path, {model, layout_key()}, file_kinds(), std::move(file),
                           [&](size_t i, std::span<std::byte> bytes) {
                             download(blocks[i].first, blocks[i].second, bytes);
                           }));
  return tokens;
}

// Chooses the borders that find room, brings their blocks, and only then hangs them into the tree:
// what goes wrong before leaves everything as it was.
class KvCache::Restore {
 public:
  Restore(KvCache& cache, const PrefixFile& file)
      : cache_(cache),
        prefixes_(cache.prefixes_),
        file_(file),
        node_of_(file.nodes.size(), -1),
        is_wanted_(file.nodes.size(), false),
        block_of_(file.contents.size(), kNotWanted) {}
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;
  // The tree holds what it took.
  ~Restore() {
    for (size_t i = 0; i < block_of_.size(); ++i) {
      if (block_of_[i] >= 0) cache_.drop(file_.contents[i].kind_idx, block_of_[i]);
    }
  }

  void choose() {
    find_known_nodes();
    std::vector<size_t> borders;
    for (size_t i = 0; i < file_.nodes.size(); ++i) {
      if (file_.nodes[i].is_border && !is_known_border(i)) borders.push_back(i);
    }
    std::stable_sort(borders.begin(), borders.end(), [&](size_t a, size_t b) {
      return file_.nodes[a].last_use > file_.nodes[b].last_use;
    });
    for (const size_t border : borders) choose_border(border);
    // The one used last is the last to be hung up.
    std::reverse(chosen_.begin(), chosen_.end());
  }

  Result<void> read(int fd) {
    std::vector<std::byte> bytes;
    const std::vector<PrefixFileKind> kinds = cache_.file_kinds();
    for (size_t i = 0; i < block_of_.size(); ++i) {
      if (block_of_[i] == kNotWanted) continue;
      const PrefixFileContent& content = file_.contents[i];
      bytes.resize(kinds[content.kind_idx].block_bytes);
      if (!read_fully(fd, bytes, content.offset)) return base::bad_input("block {}: cut off", i);
      if (content_hash(bytes) != content.hash)
        return base::bad_input("block {}: its checksum does not hold", i);
      block_of_[i] = cache_.kinds_[content.kind_idx].pool.take();
      cache_.upload(content.kind_idx, block_of_[i], bytes);
    }
    return {};
  }

  int64_t hang_up() {
    int64_t added = 0;
    for (size_t i = 0; i < file_.nodes.size(); ++i) {
      if (!is_wanted_[i]) continue;
      const int32_t parent = parent_of(i);
      // The same ids may stand in the file twice.
      node_of_[i] = prefixes_.find_child(parent, file_.nodes[i].ids);
      if (node_of_[i] >= 0) continue;
      node_of_[i] = prefixes_.add_child(parent, file_.nodes[i].ids, blocks(file_.nodes[i].blocks));
      ++added;
    }
    for (const size_t border : chosen_) {
      if (!prefixes_.is_border(node_of_[border]))
        prefixes_.make_border(node_of_[border], blocks(file_.nodes[border].windows));
      prefixes_.touch(node_of_[border]);
    }
    return added * ops::kKvBlockTokens;
  }

 private:
  static constexpr int32_t kNotWanted = -1;
  static constexpr int32_t kWanted = -2;

  int32_t parent_of(size_t node) const {
    const int32_t parent = file_.nodes[node].parent;
    return parent < 0 ? PrefixCache::kRoot : node_of_[static_cast<size_t>(parent)];
  }
  void find_known_nodes() {
    for (size_t i = 0; i < file_.nodes.size(); ++i) {
      const int32_t parent = parent_of(i);
      if (parent >= 0) node_of_[i] = prefixes_.find_child(parent, file_.nodes[i].ids);
    }
  }
  bool is_known_border(size_t node) const {
    return node_of_[node] >= 0 && prefixes_.is_border(node_of_[node]);
  }
  std::vector<int32_t> blocks(std::span<const uint32_t> contents) const {
    std::vector<int32_t> out;
    for (const uint32_t content : contents) out.push_back(block_of_[content]);
    return out;
  }

  // With all that it needs, where there is room.
  void choose_border(size_t border) {
    if (prefixes_.slides() &&
        prefixes_.num_borders() + static_cast<int64_t>(chosen_.size()) >= prefixes_.most_borders())
      return;
    if (prefixes_.most_borders() == 0) return;
    std::vector<size_t> nodes;
    std::vector<uint32_t> contents = file_.nodes[border].windows;
    for (auto i = static_cast<int32_t>(border); i >= 0;
         i = file_.nodes[static_cast<size_t>(i)].parent) {
      const auto idx = static_cast<size_t>(i);
      if (node_of_[idx] >= 0 || is_wanted_[idx]) break;
      nodes.push_back(idx);
      contents.insert(contents.end(), file_.nodes[idx].blocks.begin(),
                      file_.nodes[idx].blocks.end());
    }
    std::sort(contents.begin(), contents.end());
    contents.erase(std::unique(contents.begin(), contents.end()), contents.end());
    std::erase_if(contents, [&](uint32_t i) { return block_of_[i] == kWanted; });
    std::vector<int64_t> wanted = wanted_;
    wanted.resize(cache_.kinds_.size(), 0);
    for (const uint32_t i : contents) ++wanted[file_.contents[i].kind_idx];
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i] > cache_.kinds_[i].pool.num_free()) return;
    }
    wanted_ = std::move(wanted);
    for (const uint32_t i : contents) block_of_[i] = kWanted;
    for (const size_t i : nodes) is_wanted_[i] = true;
    chosen_.push_back(border);
  }

  KvCache& cache_;
  PrefixCache& prefixes_;
  const PrefixFile& file_;
  std::vector<int32_t> node_of_;   // in the tree; -1: not there
  std::vector<bool> is_wanted_;    // nodes to come
  std::vector<int32_t> block_of_;  // of a content
  std::vector<int64_t> wanted_;    // blocks of each kind so far
  std::vector<size_t> chosen_;     // borders
};

Result<int64_t> KvCache::restore_prefixes(const std::string& path, uint64_t model) {
  MB_ASSIGN(const OpenedFile opened, open_plain_file(path));
  const PrefixFileKey key = {model, layout_key()};
  const auto in_file = [&](const Error& error) {
    return base::bad_input("{}: {}", path, error.message);
  };
  const int fd = opened.file.fd();
  std::vector<std::byte> bytes(std::min<uint64_t>(kPrefixHeaderBytes, opened.size_bytes));
  if (!read_fully(fd, bytes, 0)) return base::bad_input("{}: cut off", path);
  const Result<uint64_t> table_bytes = prefix_table_bytes(bytes, opened.size_bytes, key);
  if (!table_bytes.ok()) return in_file(table_bytes.error());
  bytes.resize(*table_bytes);
  if (!read_fully(fd, bytes, 0)) return base::bad_input("{}: cut off", path);
  const auto file = parse_prefix_table(bytes, opened.size_bytes, key, file_kinds());
  if (!file.ok()) return in_file(file.error());
  Restore restore(*this, *file);
  restore.choose();
  if (const Result<void> read = restore.read(fd); !read.ok()) return in_file(read.error());
  return restore.hang_up();
}

}  // namespace markbase::runtime
