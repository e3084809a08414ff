#include "runtime/repack_cache.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.h"
#include "runtime/content_hash.h"

namespace markbase::runtime {
namespace {

constexpr char kMagic[8] = {'M', 'B', 'R', 'E', 'P', 'A', 'C', 'K'};
constexpr uint32_t kVersion = 1;
// Contents begin at page borders.
constexpr uint64_t kAlignment = 4096;
// What one thread reads and hashes at a time.
constexpr uint64_t kPieceBytes = uint64_t{4} << 20;

// As it stands in the file, little-endian like every machine that we run on.
struct Header {
  char magic[8];
  uint32_t version;
  uint32_t num_entries;
  RepackKey key;
  uint64_t file_bytes;
  uint64_t table_hash;  // of the entries
  uint64_t reserved[2];
};
static_assert(sizeof(Header) == 64 && sizeof(RepackEntry) == 32);

uint64_t name_hash_of(std::string_view name) {
  return content_hash(std::as_bytes(std::span(name)));
}
uint64_t pieces_of(uint64_t size_bytes) { return (size_bytes + kPieceBytes - 1) / kPieceBytes; }

// Hash of the hashes of all pieces; `read` brings a piece and says whether it could.
template <class Read>
Result<uint64_t> hash_pieces(uint64_t size_bytes, base::ThreadPool& pool, const Read& read) {
  std::vector<uint64_t> hashes(pieces_of(size_bytes));
  std::atomic<bool> whole{true};
  pool.run(static_cast<int64_t>(hashes.size()), [&](int64_t piece, int) {
    const uint64_t begin = static_cast<uint64_t>(piece) * kPieceBytes;
    const std::span<const std::byte> bytes = read(begin, std::min(kPieceBytes, size_bytes - begin));
    if (bytes.empty()) whole.store(false, std::memory_order_relaxed);
    hashes[static_cast<size_t>(piece)] = content_hash(bytes);
  });
  if (!whole.load()) return base::bad_input("cut off");
  return content_hash(std::as_bytes(std::span(hashes)));
}

// Appends numbers and texts to what is hashed into the key.
class KeyText {
 public:
  void add(std::string_view text) {
    add(static_cast<uint64_t>(text.size()));
    bytes_.append(text);
  }
  void add(uint64_t number) {
    bytes_.append(reinterpret_cast<const char*>(&number), sizeof number);
  }
  RepackKey key() const {
    const XXH128_hash_t hash = XXH3_128bits(bytes_.data(), bytes_.size());
    return {hash.low64, hash.high64};
  }

 private:
  std::string bytes_;
};

// Everything but the name.
bool write_contents(int fd, const RepackKey& key, std::span<const NamedContent> contents,
                    base::ThreadPool& pool, base::FunctionRef<void(uint64_t)> on_written) {
  std::vector<RepackEntry> entries;
  uint64_t written_bytes = 0;
  uint64_t end = sizeof(Header) + contents.size() * sizeof(RepackEntry);
  for (const NamedContent& content : contents) {
    RepackEntry entry;
    entry.name_hash = name_hash_of(content.name);
    entry.offset = (end + kAlignment - 1) / kAlignment * kAlignment;
    entry.size_bytes = content.bytes.size();
    entry.content_hash = *hash_pieces(entry.size_bytes, pool, [&](uint64_t begin, uint64_t count) {
      return content.bytes.subspan(begin, count);
    });
    if (!write_fully(fd, content.bytes, entry.offset)) return false;
    end = entry.offset + entry.size_bytes;
    entries.push_back(entry);
    on_written(written_bytes += entry.size_bytes);
  }
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.num_entries = static_cast<uint32_t>(entries.size());
  header.key = key;
  header.file_bytes = end;
  header.table_hash = content_hash(std::as_bytes(std::span(entries)));
  return write_fully(fd, std::as_bytes(std::span(entries)), sizeof header) &&
         write_fully(fd, std::as_bytes(std::span(&header, 1)), 0);
}

}  // namespace

RepackKey repack_key(const formats::WeightSource& source, const model::WeightMap& map,
                     std::string_view layout) {
  KeyText text;
  text.add(layout);
  for (const base::FileIdentity& file : source.identities()) {
    text.add(file.inode);
    text.add(file.size_bytes);
    text.add(static_cast<uint64_t>(file.modified_ns));
    text.add(static_cast<uint64_t>(file.changed_ns));
  }
  for (const model::MappedWeight& weight : map.weights) {
    text.add(weight.name);
    text.add(weight.source_name);
    text.add(static_cast<uint64_t>(weight.view.format));
    text.add(static_cast<uint64_t>(weight.view.rows));
    text.add(static_cast<uint64_t>(weight.view.cols));
    text.add(static_cast<uint64_t>(weight.view.bits));
    text.add(static_cast<uint64_t>(weight.view.group_size));
    text.add(static_cast<uint64_t>(weight.view.scale_dtype));
  }
  return text.key();
}

std::string repack_path(const formats::WeightSource& source, std::string_view layout) {
  return source.files().front() + "." + std::string(layout) + ".repacked";
}

Result<std::vector<RepackEntry>> parse_repack_table(std::span<const std::byte> bytes,
                                                    uint64_t file_bytes, const RepackKey& key) {
  Header header;
  if (bytes.size() < sizeof header)
    return base::bad_input("header: expected {} bytes, got {}", sizeof header, bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return base::bad_input("header: expected the magic MBREPACK");
  if (header.version != kVersion)
    return base::bad_input("header: expected version {}, got {}", kVersion, header.version);
  if (header.key != key) return base::bad_input("header: made from another model or layout");
  if (header.file_bytes != file_bytes)
    return base::bad_input("size: expected {} bytes, got {}", header.file_bytes, file_bytes);
  const std::span<const std::byte> rest = bytes.subspan(sizeof header);
  if (header.num_entries > rest.size() / sizeof(RepackEntry))
    return base::bad_input("table: expected {} entries, got bytes for {}", header.num_entries,
                           rest.size() / sizeof(RepackEntry));
  std::vector<RepackEntry> entries(header.num_entries);
  const std::span<const std::byte> table = rest.first(entries.size() * sizeof(RepackEntry));
  if (content_hash(table) != header.table_hash)
    return base::bad_input("table: its checksum does not hold");
  if (!table.empty()) std::memcpy(entries.data(), table.data(), table.size());
  for (const RepackEntry& entry : entries) {
    if (entry.offset > file_bytes || entry.size_bytes > file_bytes - entry.offset) {
      return base::bad_input("table: expected contents within {} bytes, got {} bytes at {}",
                             file_bytes, entry.size_bytes, entry.offset);
    }
  }
  return entries;
}

Result<RepackCache> RepackCache::open(const std::string& path, const RepackKey& key) {
  MB_ASSIGN(OpenedFile opened, open_plain_file(path));
  RepackCache cache(path, std::move(opened.file));
  std::vector<std::byte> table(std::min<uint64_t>(kMostTableBytes, opened.size_bytes));
  if (!read_fully(cache.file_.fd(), table, 0)) return base::bad_input("{}: cut off", path);
  Result<std::vector<RepackEntry>> entries = parse_repack_table(table, opened.size_bytes, key);
  if (!entries.ok()) return base::bad_input("{}: {}", path, entries.error().message);
  cache.entries_ = *std::move(entries);
  return cache;
}

Result<void> RepackCache::read(std::string_view name, std::span<std::byte> out,
                               base::ThreadPool& pool) const {
  const uint64_t wanted = name_hash_of(name);
  const auto entry = std::ranges::find(entries_, wanted, &RepackEntry::name_hash);
  if (entry == entries_.end()) return base::bad_input("{}: {}: is not there", path_, name);
  if (entry->size_bytes != out.size()) {
    return base::bad_input("{}: {}: expected {} bytes, got {}", path_, name, out.size(),
                           entry->size_bytes);
  }
  const Result<uint64_t> hash = hash_pieces(out.size(), pool, [&](uint64_t begin, uint64_t count) {
    const std::span<std::byte> piece = out.subspan(begin, count);
    const bool there = read_fully(file_.fd(), piece, entry->offset + begin);
    return there ? std::span<const std::byte>(piece) : std::span<const std::byte>();
  });
  if (!hash.ok()) return base::bad_input("{}: {}: {}", path_, name, hash.error().message);
  if (*hash != entry->content_hash)
    return base::bad_input("{}: {}: its checksum does not hold", path_, name);
  return {};
}

Result<bool> write_repack_cache(const std::string& path, const RepackKey& key,
                                std::span<const NamedContent> contents, base::ThreadPool& pool,
                                base::FunctionRef<void(uint64_t)> on_written) {
  return write_whole_file(
      path, [&](int fd) { return write_contents(fd, key, contents, pool, on_written); });
}

}  // namespace markbase::runtime
