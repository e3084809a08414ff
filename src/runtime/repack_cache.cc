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
// What is written at a time, at multiples of it: the page cache keeps such pieces as huge pages,
// and the weights are streamed from those pages when the file is mapped.
constexpr size_t kWriteBytes = size_t{2} << 20;
// What one thread hashes at a time.
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

// Appends to a file, in pieces of kWriteBytes whatever the borders of the contents are.
class Appender {
 public:
  explicit Appender(int fd) : fd_(fd), piece_(kWriteBytes) {}

  uint64_t end() const { return written_bytes_ + filled_bytes_; }
  bool append(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const size_t count = std::min(bytes.size(), piece_.size() - filled_bytes_);
      std::memcpy(piece_.data() + filled_bytes_, bytes.data(), count);
      filled_bytes_ += count;
      bytes = bytes.subspan(count);
      if (filled_bytes_ == piece_.size() && !flush()) return false;
    }
    return true;
  }
  bool append_zeros(uint64_t count) { return append(std::vector<std::byte>(count)); }
  bool flush() {
    if (!write_fully(fd_, std::span(piece_).first(filled_bytes_), written_bytes_)) return false;
    written_bytes_ += std::exchange(filled_bytes_, 0);
    return true;
  }

 private:
  int fd_;
  std::vector<std::byte> piece_;
  size_t filled_bytes_ = 0;
  uint64_t written_bytes_ = 0;
};

// For each content the hash of the hashes of its pieces. All pieces are shared out at once, so that
// no thread waits at the end of a content; `on_hashed` is told on this thread how many bytes are
// done.
std::vector<uint64_t> hashes_of(std::span<const std::span<const std::byte>> contents,
                                base::ThreadPool& pool,
                                base::FunctionRef<void(uint64_t)> on_hashed) {
  std::vector<std::span<const std::byte>> pieces;
  for (const std::span<const std::byte> content : contents) {
    for (uint64_t begin = 0; begin < content.size(); begin += kPieceBytes)
      pieces.push_back(content.subspan(begin, std::min(kPieceBytes, content.size() - begin)));
  }
  std::vector<uint64_t> piece_hashes(pieces.size());
  std::atomic<uint64_t> done_bytes{0};
  pool.run(static_cast<int64_t>(pieces.size()), [&](int64_t piece, int thread) {
    const std::span<const std::byte> bytes = pieces[static_cast<size_t>(piece)];
    piece_hashes[static_cast<size_t>(piece)] = content_hash(bytes);
    const uint64_t done = done_bytes.fetch_add(bytes.size(), std::memory_order_relaxed);
    if (thread == 0) on_hashed(done + bytes.size());
  });
  std::vector<uint64_t> hashes;
  std::span<const uint64_t> rest = piece_hashes;
  for (const std::span<const std::byte> content : contents) {
    const size_t count = (content.size() + kPieceBytes - 1) / kPieceBytes;
    hashes.push_back(content_hash(std::as_bytes(rest.first(count))));
    rest = rest.subspan(count);
  }
  return hashes;
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
  Appender file(fd);
  // Room for header and table, which are known at the end.
  if (::ftruncate(fd, 0) != 0 ||
      !file.append_zeros(sizeof(Header) + contents.size() * sizeof(RepackEntry))) {
    return false;
  }
  for (const NamedContent& content : contents) {
    RepackEntry entry;
    entry.name_hash = name_hash_of(content.name);
    entry.offset = (file.end() + kAlignment - 1) / kAlignment * kAlignment;
    entry.size_bytes = content.bytes.size();
    entry.content_hash = hashes_of(std::span(&content.bytes, 1), pool, [](uint64_t) {}).front();
    if (!file.append_zeros(entry.offset - file.end()) || !file.append(content.bytes)) return false;
    entries.push_back(entry);
    on_written(written_bytes += entry.size_bytes);
  }
  if (!file.flush()) return false;
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.num_entries = static_cast<uint32_t>(entries.size());
  header.key = key;
  header.file_bytes = file.end();
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
    if (entry.offset % kAlignment != 0)
      return base::bad_input("table: expected contents at multiples of {}, got {}", kAlignment,
                             entry.offset);
  }
  return entries;
}

Result<RepackCache> RepackCache::open(const std::string& path, const RepackKey& key) {
  MB_ASSIGN(base::MappedFile file, base::MappedFile::open(path));
  file.prefer_huge_pages();
  const std::span<const std::byte> bytes = file.bytes();
  Result<std::vector<RepackEntry>> entries =
      parse_repack_table(bytes.first(std::min(kMostTableBytes, bytes.size())), bytes.size(), key);
  MB_TRY(file.check_intact());
  if (!entries.ok()) return base::bad_input("{}: {}", path, entries.error().message);
  return RepackCache(std::move(file), *std::move(entries));
}

Result<std::span<const std::byte>> RepackCache::find(const Wanted& wanted,
                                                     uint64_t* content_hash) const {
  const auto entry =
      std::ranges::find(entries_, name_hash_of(wanted.name), &RepackEntry::name_hash);
  if (entry == entries_.end())
    return base::bad_input("{}: {}: is not there", file_.path(), wanted.name);
  if (entry->size_bytes != wanted.size_bytes) {
    return base::bad_input("{}: {}: expected {} bytes, got {}", file_.path(), wanted.name,
                           wanted.size_bytes, entry->size_bytes);
  }
  *content_hash = entry->content_hash;
  return file_.bytes().subspan(entry->offset, entry->size_bytes);
}

Result<std::vector<std::span<const std::byte>>> RepackCache::contents(
    std::span<const Wanted> wanted, base::ThreadPool& pool,
    base::FunctionRef<void(uint64_t)> on_checked) const {
  std::vector<std::span<const std::byte>> found;
  std::vector<uint64_t> expected(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    MB_ASSIGN(const std::span<const std::byte> content, find(wanted[i], &expected[i]));
    found.push_back(content);
  }
  const std::vector<uint64_t> hashes = hashes_of(found, pool, on_checked);
  MB_TRY(file_.check_intact());
  const auto damaged = std::ranges::mismatch(hashes, expected).in1 - hashes.begin();
  if (damaged == std::ssize(hashes)) return found;
  return base::bad_input("{}: {}: its checksum does not hold", file_.path(),
                         wanted[static_cast<size_t>(damaged)].name);
}

Result<bool> write_repack_cache(const std::string& path, const RepackKey& key,
                                std::span<const NamedContent> contents, base::ThreadPool& pool,
                                base::FunctionRef<void(uint64_t)> on_written) {
  return write_whole_file(
      path, [&](int fd) { return write_contents(fd, key, contents, pool, on_written); });
}

}  // namespace markbase::runtime
