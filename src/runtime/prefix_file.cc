#include "runtime/prefix_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "runtime/content_hash.h"
#include "runtime/prefix_cache.h"
#include "runtime/whole_file.h"

namespace markbase::runtime {
namespace {

constexpr char kMagic[8] = {'M', 'B', 'P', 'R', 'E', 'F', 'I', 'X'};
constexpr uint32_t kVersion = 1;

// As they stand in the file, little-endian like every machine that we run on.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t block_tokens;
  PrefixFileKey key;
  uint64_t file_bytes;
  uint64_t num_nodes;
  uint64_t num_refs;  // of all nodes, to contents
  uint64_t num_contents;
  uint64_t hash;  // of the table, and of this header with 0 here
  uint64_t reserved;
};
static_assert(sizeof(Header) == kPrefixHeaderBytes);

struct NodeRecord {
  int32_t parent;
  uint32_t is_border;
  uint64_t last_use;
  std::array<int32_t, ops::kKvBlockTokens> ids;
};
struct ContentRecord {
  uint64_t hash;
  uint64_t kind_idx;
};
using RefRecord = uint32_t;
static_assert(sizeof(NodeRecord) == 272 && sizeof(ContentRecord) == 16);

uint64_t hash_of(Header header, std::span<const std::byte> table) {
  header.hash = 0;
  return content_hash(table, content_hash(std::as_bytes(std::span(&header, 1))));
}

Result<Header> read_header(std::span<const std::byte> bytes, uint64_t file_bytes,
                           const PrefixFileKey& key) {
  Header header;
  if (bytes.size() < sizeof header)
    return base::bad_input("header: expected {} bytes, got {}", sizeof header, bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return base::bad_input("header: expected the magic MBPREFIX");
  if (header.version != kVersion)
    return base::bad_input("header: expected version {}, got {}", kVersion, header.version);
  if (header.block_tokens != ops::kKvBlockTokens) {
    return base::bad_input("header: expected blocks of {} tokens, got {}", ops::kKvBlockTokens,
                           header.block_tokens);
  }
  if (header.key.model != key.model)
    return base::bad_input("header: made by another model, configuration or build");
  if (header.key.layout != key.layout)
    return base::bad_input("header: made by another kind of cache (type, layers or backend)");
  if (header.file_bytes != file_bytes)
    return base::bad_input("size: expected {} bytes, got {}", header.file_bytes, file_bytes);
  return header;
}

// Bytes of the table, or of more than the file has.
uint64_t table_bytes(const Header& header) {
  const uint64_t most = header.file_bytes;
  if (header.num_nodes > most / sizeof(NodeRecord) || header.num_refs > most / sizeof(RefRecord) ||
      header.num_contents > most / sizeof(ContentRecord)) {
    return most;
  }
  return header.num_nodes * sizeof(NodeRecord) + header.num_refs * sizeof(RefRecord) +
         header.num_contents * sizeof(ContentRecord);
}

// Records one after the other, of which there are enough.
class Table {
 public:
  explicit Table(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  std::vector<T> take(uint64_t count) {
    std::vector<T> records(count);
    if (count > 0) std::memcpy(records.data(), bytes_.data(), count * sizeof(T));
    bytes_ = bytes_.subspan(count * sizeof(T));
    return records;
  }

 private:
  std::span<const std::byte> bytes_;
};

// Gives every node its part of the references, in their order.
class Builder {
 public:
  Builder(std::span<const PrefixFileKind> kinds, std::span<const RefRecord> refs, PrefixFile* file)
      : kinds_(kinds), refs_(refs), file_(*file) {}

  Result<void> add(const NodeRecord& record) {
    const auto idx = static_cast<int64_t>(file_.nodes.size());
    if (record.parent < -1 || record.parent >= idx) {
      return base::bad_input("node {}: expected a parent before it, got {}", idx, record.parent);
    }
    if (record.is_border > 1)
      return base::bad_input("node {}: expected a border or none, got {}", idx, record.is_border);
    PrefixFileNode node;
    node.parent = record.parent;
    node.is_border = record.is_border == 1;
    node.depth = 1;
    if (node.parent >= 0) node.depth += file_.nodes[static_cast<size_t>(node.parent)].depth;
    node.last_use = record.last_use;
    node.ids = record.ids;
    for (size_t i = 0; i < kinds_.size(); ++i) {
      if (kinds_[i].window == 0) MB_TRY(take(i, 1, &node.blocks));
    }
    for (size_t i = 0; node.is_border && i < kinds_.size(); ++i) {
      const int64_t window = kinds_[i].window;
      if (window == 0) continue;
      MB_TRY(take(i, node.depth - first_block_seen(node.depth, window), &node.windows));
    }
    file_.nodes.push_back(std::move(node));
    return {};
  }
  Result<void> finish() const {
    if (refs_.empty()) return {};
    return base::bad_input("table: {} references belong to no node", refs_.size());
  }

 private:
  Result<void> take(size_t kind_idx, int64_t count, std::vector<uint32_t>* out) {
    if (static_cast<uint64_t>(count) > refs_.size())
      return base::bad_input("node {}: its blocks are missing", file_.nodes.size());
    for (const RefRecord ref : refs_.first(static_cast<size_t>(count))) {
      if (ref >= file_.contents.size() || file_.contents[ref].kind_idx != kind_idx) {
        return base::bad_input("node {}: expected a block of kind {}, got block {}",
                               file_.nodes.size(), kind_idx, ref);
      }
      out->push_back(ref);
    }
    refs_ = refs_.subspan(static_cast<size_t>(count));
    return {};
  }

  std::span<const PrefixFileKind> kinds_;
  std::span<const RefRecord> refs_;
  PrefixFile& file_;
};

// Contents stand one after the other up to the end.
Result<void> place_contents(std::span<const PrefixFileKind> kinds, uint64_t begin,
                            uint64_t file_bytes, std::span<const ContentRecord> records,
                            std::vector<PrefixFileContent>* contents) {
  for (const ContentRecord& record : records) {
    if (record.kind_idx >= kinds.size()) {
      return base::bad_input("block {}: expected one of {} kinds, got {}", contents->size(),
                             kinds.size(), record.kind_idx);
    }
    const uint64_t size_bytes = kinds[record.kind_idx].block_bytes;
    if (begin > file_bytes || size_bytes > file_bytes - begin)
      return base::bad_input("block {}: stands beyond the end", contents->size());
    contents->push_back({static_cast<uint32_t>(record.kind_idx), record.hash, begin});
    begin += size_bytes;
  }
  if (begin == file_bytes) return {};
  return base::bad_input("size: expected {} bytes, got {}", begin, file_bytes);
}

std::vector<std::byte> table_of(const PrefixFile& file, Header* header) {
  std::vector<NodeRecord> nodes;
  std::vector<RefRecord> refs;
  std::vector<ContentRecord> contents;
  for (const PrefixFileNode& node : file.nodes) {
    nodes.push_back({node.parent, node.is_border ? 1U : 0U, node.last_use, node.ids});
  }
  for (const PrefixFileContent& content : file.contents) {
    contents.push_back({content.hash, content.kind_idx});
  }
  for (const PrefixFileNode& node : file.nodes) {
    refs.insert(refs.end(), node.blocks.begin(), node.blocks.end());
    refs.insert(refs.end(), node.windows.begin(), node.windows.end());
  }
  header->num_nodes = nodes.size();
  header->num_refs = refs.size();
  header->num_contents = contents.size();
  std::vector<std::byte> bytes;
  for (const auto part : {std::as_bytes(std::span(nodes)), std::as_bytes(std::span(contents)),
                          std::as_bytes(std::span(refs))}) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

}  // namespace

Result<uint64_t> prefix_table_bytes(std::span<const std::byte> header_bytes, uint64_t file_bytes,
                                    const PrefixFileKey& key) {
  MB_ASSIGN(const Header header, read_header(header_bytes, file_bytes, key));
  const uint64_t bytes = table_bytes(header);
  if (file_bytes < sizeof header || bytes > file_bytes - sizeof header) {
    return base::bad_input("table: expected {} nodes with {} blocks within {} bytes",
                           header.num_nodes, header.num_contents, file_bytes);
  }
  return sizeof header + bytes;
}

Result<PrefixFile> parse_prefix_table(std::span<const std::byte> bytes, uint64_t file_bytes,
                                      const PrefixFileKey& key,
                                      std::span<const PrefixFileKind> kinds,
                                      TableChecksum checksum) {
  MB_ASSIGN(const uint64_t end, prefix_table_bytes(bytes, file_bytes, key));
  if (bytes.size() < end)
    return base::bad_input("table: expected {} bytes, got {}", end, bytes.size());
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::span<const std::byte> rest = bytes.first(end).subspan(sizeof header);
  if (checksum == TableChecksum::kChecked && hash_of(header, rest) != header.hash)
    return base::bad_input("table: its checksum does not hold");
  Table table(rest);
  const auto nodes = table.take<NodeRecord>(header.num_nodes);
  const auto contents = table.take<ContentRecord>(header.num_contents);
  const auto refs = table.take<RefRecord>(header.num_refs);
  PrefixFile file;
  MB_TRY(place_contents(kinds, end, file_bytes, contents, &file.contents));
  Builder builder(kinds, refs, &file);
  for (const NodeRecord& node : nodes) MB_TRY(builder.add(node));
  MB_TRY(builder.finish());
  return file;
}

Result<void> write_prefix_file(
    const std::string& path, const PrefixFileKey& key, std::span<const PrefixFileKind> kinds,
    PrefixFile file,
    base::FunctionRef<void(size_t content_idx, std::span<std::byte>)> read_content) {
  std::vector<std::byte> content;
  const auto write = [&](int fd) {
    Header header = {};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.version = kVersion;
    header.block_tokens = static_cast<uint32_t>(ops::kKvBlockTokens);
    header.key = key;
    // The table's size is known before the checksums that stand in it.
    uint64_t end = sizeof header + table_of(file, &header).size();
    for (size_t i = 0; i < file.contents.size(); ++i) {
      content.resize(kinds[file.contents[i].kind_idx].block_bytes);
      read_content(i, content);
      file.contents[i].hash = content_hash(content);
      if (!write_fully(fd, content, end)) return false;
      end += content.size();
    }
    header.file_bytes = end;
    const std::vector<std::byte> table = table_of(file, &header);
    header.hash = hash_of(header, table);
    return write_fully(fd, table, sizeof header) &&
           write_fully(fd, std::as_bytes(std::span(&header, 1)), 0);
  };
  const FileKind kind = {{kMagic, sizeof kMagic}, "a file of kept prefixes"};
  MB_ASSIGN(const bool written, write_file_of_kind(path, kind, write));
  if (!written) return base::failed("{}: another process is writing it", path);
  return {};
}

}  // namespace markbase::runtime
