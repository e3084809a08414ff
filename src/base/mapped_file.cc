#include "base/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "base/error.h"

namespace markbase::base {
namespace {

// The one process-wide state of the project: a signal handler can reach nothing else. It only holds
// the address ranges of open mappings; slots are claimed and freed with atomics, since the handler
// reads them.
constexpr int kMaxMappings = 4096;

struct Slot {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> faulted{false};
};

Slot g_slots[kMaxMappings];
struct sigaction g_previous_action;
std::once_flag g_install_once;

void on_sigbus(int signal, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Slot& slot : g_slots) {
    const uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= slot.end.load(std::memory_order_acquire))
      continue;
    const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    void* page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
    slot.faulted.store(true, std::memory_order_release);
    if (mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
        MAP_FAILED) {
      errno = saved_errno;
      return;
    }
  }
  // Not ours: whoever was there before decides.
  if ((g_previous_action.sa_flags & SA_SIGINFO) != 0 && g_previous_action.sa_sigaction != nullptr) {
    g_previous_action.sa_sigaction(signal, info, context);
  } else if (g_previous_action.sa_handler != SIG_DFL && g_previous_action.sa_handler != SIG_IGN) {
    g_previous_action.sa_handler(signal);
  } else {
    ::signal(SIGBUS, SIG_DFL);
    raise(SIGBUS);
  }
}

void install_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &g_previous_action);
}

Slot* claim_slot(uintptr_t begin, uintptr_t end) {
  std::call_once(g_install_once, install_handler);
  for (Slot& slot : g_slots) {
    uintptr_t expected = 0;
    if (slot.begin.load(std::memory_order_relaxed) != 0) continue;
    if (!slot.begin.compare_exchange_strong(expected, begin)) continue;
    // The handler passes the slot over until `end` is set.
    slot.faulted.store(false, std::memory_order_relaxed);
    slot.end.store(end, std::memory_order_release);
    return &slot;
  }
  return nullptr;
}

void free_slot(Slot* slot) {
  slot->end.store(0, std::memory_order_release);
  slot->begin.store(0, std::memory_order_release);
}

FileIdentity identity_of(const struct stat& status) {
  constexpr int64_t kSecond = 1'000'000'000;
  return {.inode = status.st_ino,
          .size_bytes = static_cast<uint64_t>(status.st_size),
          .modified_ns = status.st_mtim.tv_sec * kSecond + status.st_mtim.tv_nsec,
          .changed_ns = status.st_ctim.tv_sec * kSecond + status.st_ctim.tv_nsec};
}

}  // namespace

struct MappedFile::State {
  std::string path;
  const std::byte* data = nullptr;
  size_t size_bytes = 0;
  FileIdentity identity;
  Slot* slot = nullptr;
  int fd = -1;  // kept to ask for the size of this very file, whatever its name stands for by then

  ~State() {
    if (slot != nullptr) free_slot(slot);
    if (data != nullptr) munmap(const_cast<std::byte*>(data), size_bytes);
    if (fd >= 0) ::close(fd);
  }
};

MappedFile::MappedFile() : state_(std::make_unique<State>()) {}
MappedFile::MappedFile(MappedFile&&) noexcept = default;
MappedFile& MappedFile::operator=(MappedFile&&) noexcept = default;
MappedFile::~MappedFile() = default;

Result<MappedFile> MappedFile::open(const std::string& path) {
  // A pipe under the name must not hold up the opening: it is refused below.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return bad_input("{}: cannot be opened: {}", path, std::strerror(errno));
  MappedFile file;
  file.state_->fd = fd;
  file.state_->path = path;
  struct stat status = {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    return bad_input("{}: expected a regular file, got {}", path,
                     S_ISDIR(status.st_mode) ? "a directory" : "something else");
  }
  file.state_->size_bytes = static_cast<size_t>(status.st_size);
  file.state_->identity = identity_of(status);
  if (file.state_->size_bytes == 0) return file;
  void* memory = mmap(nullptr, file.state_->size_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (memory == MAP_FAILED) {
    return failed("{}: cannot be mapped ({} bytes): {}", path, status.st_size,
                  std::strerror(errno));
  }
  file.state_->data = static_cast<const std::byte*>(memory);
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t end =
      (begin + file.state_->size_bytes + page_bytes - 1) / page_bytes * page_bytes;
  file.state_->slot = claim_slot(begin, end);
  if (file.state_->slot == nullptr) {
    return failed("{}: more than {} files are mapped at once", path, kMaxMappings);
  }
  return file;
}

const std::string& MappedFile::path() const { return state_->path; }
FileIdentity MappedFile::identity() const { return state_->identity; }

std::span<const std::byte> MappedFile::bytes() const { return {state_->data, state_->size_bytes}; }

namespace {

// The whole pages inside `part`: a page shared with a neighbour is left alone. Nothing where `part`
// is no part of `all`: dropping foreign pages would lose data.
std::span<std::byte> inner_pages(std::span<const std::byte> part, std::span<const std::byte> all) {
  if (part.empty() || part.data() < all.data() ||
      part.data() + part.size() > all.data() + all.size())
    return {};
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin =
      (reinterpret_cast<uintptr_t>(part.data()) + page_bytes - 1) / page_bytes * page_bytes;
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page_bytes * page_bytes;
  if (begin >= end) return {};
  return {reinterpret_cast<std::byte*>(begin), end - begin};
}

// All pages that hold a byte of `part`; nothing where `part` is no part of `all`.
std::span<std::byte> outer_pages(std::span<const std::byte> part, std::span<const std::byte> all) {
  if (part.empty() || part.data() < all.data() ||
      part.data() + part.size() > all.data() + all.size())
    return {};
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(part.data()) / page_bytes * page_bytes;
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size());
  return {reinterpret_cast<std::byte*>(begin), end - begin};
}

}  // namespace

void MappedFile::prefer_huge_pages() const {
  if (state_->data == nullptr) return;
  madvise(const_cast<std::byte*>(state_->data), state_->size_bytes, MADV_HUGEPAGE);
}

void MappedFile::prefetch(std::span<const std::byte> part) const {
  const std::span<std::byte> pages = outer_pages(part, bytes());
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_WILLNEED);
}

void MappedFile::release(std::span<const std::byte> part) const {
  const std::span<std::byte> pages = inner_pages(part, bytes());
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

Result<void> MappedFile::check_intact() const {
  if (state_->slot == nullptr) return {};
  // A page that was met and gone is remembered; a file cut inside its last page shows in its size
  // alone, and one that was written over in its time of modification alone. The time of change does
  // not count: a new file under the name changes it, and this one stays as it was.
  struct stat status = {};
  const bool known = fstat(state_->fd, &status) == 0;
  const FileIdentity now = identity_of(status);
  const bool shorter = !known || now.size_bytes < state_->size_bytes;
  if (shorter || state_->slot->faulted.load(std::memory_order_acquire)) {
    return bad_input(
        "{}: was truncated while in use: expected {} bytes as when it was opened, got {}",
        state_->path, state_->size_bytes, known ? static_cast<int64_t>(now.size_bytes) : -1);
  }
  if (now.modified_ns == state_->identity.modified_ns) return {};
  return bad_input("{}: was written to while in use: expected it as when it was opened",
                   state_->path);
}

}  // namespace markbase::base
