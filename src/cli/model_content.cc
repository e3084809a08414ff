#include "cli/model_content.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cli/batch_output.h"

namespace markbase::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;
// From one word of progress to the next.
constexpr uint64_t kRunBytes = 128 * kChunkBytes;

// "NAME-" and "-of-00007.gguf" of "NAME-00003-of-00007.gguf"; the whole name of another file.
struct SetName {
  explicit SetName(const std::string& name) : begin(name) {
    constexpr size_t kDigits = 5;
    const size_t of = name.rfind("-of-");
    if (of == name.npos || of < kDigits) return;
    begin = name.substr(0, of - kDigits);
    end = name.substr(of);
  }
  std::string begin;
  std::string end;
};

std::vector<fs::path> files_of(const fs::path& model) {
  std::error_code error;
  const bool is_folder = fs::is_directory(model, error);
  const SetName set(model.filename().string());
  if (!is_folder && set.end.empty()) return {model};
  const fs::path parent = model.has_parent_path() ? model.parent_path() : fs::path(".");
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(is_folder ? model : parent, error)) {
    const fs::path& path = entry.path();
    const std::string extension = path.extension().string();
    const SetName name(path.filename().string());
    const bool belongs =
        is_folder ? extension == ".safetensors" || extension == ".json" || extension == ".jinja"
                  : name.begin == set.begin && name.end == set.end;
    if (belongs && fs::is_regular_file(path, error)) files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Zero: all of it is read; else why not.
int hash_chunk(int fd, uint64_t at, uint64_t size, uint64_t* hash) {
  const auto buffer = std::make_unique_for_overwrite<char[]>(size);
  for (uint64_t done = 0; done < size;) {
    const ssize_t n = ::pread(fd, buffer.get() + done, size - done, static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    done += static_cast<uint64_t>(n);
  }
  *hash = hash_of({buffer.get(), size});
  return 0;
}

Result<uint64_t> file_hash(const fs::path& path, base::ThreadPool& pool,
                           const std::function<void(uint64_t)>& on_read) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status = {};
  if (fd < 0 || ::fstat(fd, &status) != 0) {
    const int reason = errno;
    if (fd >= 0) ::close(fd);
    return base::bad_input("{}: cannot be read: {}", path.string(), std::strerror(reason));
  }
  const auto size = static_cast<uint64_t>(status.st_size);
  std::vector<uint64_t> hashes((size + kChunkBytes - 1) / kChunkBytes + 1, size);
  std::atomic<int> fault = 0;
  for (uint64_t begin = 0; begin < size && fault == 0; begin += kRunBytes) {
    const uint64_t length = std::min(kRunBytes, size - begin);
    const auto chunks = static_cast<int64_t>((length + kChunkBytes - 1) / kChunkBytes);
    pool.run(chunks, [&](int64_t chunk, int) {
      const uint64_t at = begin + static_cast<uint64_t>(chunk) * kChunkBytes;
      const int failed =
          hash_chunk(fd, at, std::min(kChunkBytes, size - at), &hashes[at / kChunkBytes]);
      if (failed != 0) fault = failed;
    });
    on_read(length);
  }
  ::close(fd);
  if (fault != 0) {
    return base::bad_input("{}: cannot be read: {}", path.string(), std::strerror(fault));
  }
  return hash_of({reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof(uint64_t)});
}

}  // namespace

Result<uint64_t> model_content_hash(const std::string& path, int threads,
                                    const std::function<void(uint64_t, uint64_t)>& on_progress) {
  base::ThreadPool pool(threads > 0 ? threads : base::default_num_threads());
  const bool is_folder = fs::is_directory(path);
  const std::vector<fs::path> files = files_of(path);
  uint64_t done = 0;
  uint64_t total = 0;
  for (const fs::path& file : files) {
    std::error_code error;
    const uint64_t size = fs::file_size(file, error);
    if (!error) total += size;
  }
  const auto on_read = [&](uint64_t bytes) { on_progress(done += bytes, total); };
  std::string text;
  for (const fs::path& file : files) {
    MB_ASSIGN(const uint64_t hash, file_hash(file, pool, on_read));
    text += fmt::format("{}:{:016x}\n", is_folder ? file.filename().string() : "", hash);
  }
  return hash_of(text);
}

}  // namespace markbase::cli
