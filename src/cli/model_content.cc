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
#include <set>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cli/batch_output.h"
#include "cli/cli.h"
#include "cli/json_fields.h"

namespace markbase::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kChunkBytes = uint64_t{1} << 20;
// From one word of progress to the next.
constexpr uint64_t kRunBytes = 128 * kChunkBytes;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kSingleName = "model.safetensors";
// What is read beside weights, and one more where there is no .jinja: chat_template.json.
constexpr std::string_view kNames[] = {"config.json",    "generation_config.json",
                                       "tokenizer.json", "tokenizer_config.json",
                                       kIndexName,       "chat_template.jinja"};

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

bool has(const fs::path& folder, const char* name) {
  std::error_code ignored;
  return fs::exists(folder / name, ignored);
}

// The weights that the index of a folder names; none where it has none that can be read.
std::set<std::string> indexed_weights(const fs::path& folder) {
  std::set<std::string> names;
  const Result<std::string> text = read_file((folder / kIndexName).string());
  const Result<base::Json> index = text.ok() ? base::parse_json(*text, kIndexName) : text.error();
  const base::Json* map = index.ok() ? JsonFields(*index).find("weight_map") : nullptr;
  if (map == nullptr || !map->is_object()) return names;
  for (const base::Json& name : *map) {
    if (name.is_string()) names.insert(name.get<std::string>());
  }
  return names;
}

// Which files of a folder the model is read from, as the loader chooses them.
class FolderFiles {
 public:
  explicit FolderFiles(const fs::path& folder)
      : holds_gguf_(!has(folder, "config.json") && !has(folder, "tokenizer.json")),
        has_index_(has(folder, kIndexName)),
        has_single_(has(folder, kSingleName)),
        has_jinja_(has(folder, "chat_template.jinja")) {
    if (has_index_) indexed_ = indexed_weights(folder);
  }

  bool hold(const fs::path& name) const {
    if (holds_gguf_) return name.extension() == ".gguf";
    if (indexed_.contains(name.string())) return true;
    if (name.extension() == ".safetensors") {
      return !has_index_ && (!has_single_ || name == kSingleName);
    }
    if (name == "chat_template.json") return !has_jinja_;
    return std::ranges::find(kNames, name.string()) != std::end(kNames);
  }

 private:
  bool holds_gguf_;
  bool has_index_;
  bool has_single_;
  bool has_jinja_;
  std::set<std::string> indexed_;
};

std::vector<fs::path> files_of(const fs::path& model) {
  std::error_code error;
  const bool is_folder = fs::is_directory(model, error);
  const SetName set(model.filename().string());
  if (!is_folder && set.end.empty()) return {model};
  const fs::path parent = model.has_parent_path() ? model.parent_path() : fs::path(".");
  const FolderFiles read(is_folder ? model : parent);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(is_folder ? model : parent, error)) {
    const fs::path& path = entry.path();
    const SetName name(path.filename().string());
    const bool belongs =
        is_folder ? read.hold(path.filename()) : name.begin == set.begin && name.end == set.end;
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

bool is_model_file(const std::string& model, const std::string& file) {
  std::error_code ignored;
  const auto is_file = [&](const fs::path& path) { return fs::equivalent(path, file, ignored); };
  if (std::ranges::any_of(files_of(model), is_file)) return true;
  if (!fs::is_directory(model, ignored)) return false;
  const fs::path folder = fs::absolute(file, ignored).parent_path();
  return fs::equivalent(folder, model, ignored) &&
         FolderFiles(model).hold(fs::path(file).filename());
}

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
