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

// The one process-wide state of the project: a signal handler can reach nothing else. It only holds the
// address ranges of open mappings; slots are claimed and freed with atomics, since the handler reads them.
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
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Slot& slot : g_slots) {
    const uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    if (begin == 0 || address < begin || address >= slot.end.load(std::memory_order_acquire)) continue;
    const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    void* page = reinterpret_cast<void*>(address / page_bytes * page_bytes);
    slot.faulted.store(true, std::memory_order_release);
    if (mmap(page, page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) return;
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
    slot.faulted.store(false);
    if (!slot.begin.compare_exchange_strong(expected, begin)) continue;
    slot.end.store(end, std::memory_order_release);
    return &slot;
  }
  return nullptr;
}

void free_slot(Slot* slot) {
  slot->end.store(0, std::memory_order_release);
  slot->begin.store(0, std::memory_order_release);
}

}  // namespace

struct MappedFile::State {
  std::string path;
  const std::byte* data = nullptr;
  size_t size_bytes = 0;
  Slot* slot = nullptr;

  ~State() {
    if (slot != nullptr) free_slot(slot);
    if (data != nullptr) munmap(const_cast<std::byte*>(data), size_bytes);
  }
};

MappedFile::MappedFile() : state_(std::make_unique<State>()) {}
MappedFile::MappedFile(MappedFile&&) noexcept = default;
MappedFile& MappedFile::operator=(MappedFile&&) noexcept = default;
MappedFile::~MappedFile() = default;

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return bad_input("{}: cannot be opened: {}", path, std::strerror(errno));
  struct stat status = {};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd);
    return bad_input("{}: expected a regular file, got {}", path,
                     S_ISDIR(status.st_mode) ? "a directory" : "something else");
  }
  MappedFile file;
  file.state_->path = path;
  file.state_->size_bytes = static_cast<size_t>(status.st_size);
  if (file.state_->size_bytes > 0) {
    void* memory = mmap(nullptr, file.state_->size_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    const int mmap_errno = errno;
    if (memory == MAP_FAILED) {
      ::close(fd);
      return failed("{}: cannot be mapped ({} bytes): {}", path, status.st_size, std::strerror(mmap_errno));
    }
    file.state_->data = static_cast<const std::byte*>(memory);
    const auto begin = reinterpret_cast<uintptr_t>(memory);
    const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t end = (begin + file.state_->size_bytes + page_bytes - 1) / page_bytes * page_bytes;
    file.state_->slot = claim_slot(begin, end);
    if (file.state_->slot == nullptr) {
      ::close(fd);
      return failed("{}: more than {} files are mapped at once", path, kMaxMappings);
    }
  }
  ::close(fd);
  return file;
}

const std::string& MappedFile::path() const { return state_->path; }

std::span<const std::byte> MappedFile::bytes() const { return {state_->data, state_->size_bytes}; }

namespace {

// The whole pages inside `part`: a page shared with a neighbour is left alone.
std::span<std::byte> inner_pages(std::span<const std::byte> part) {
  const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(part.data()) + page_bytes - 1) / page_bytes * page_bytes;
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page_bytes * page_bytes;
  if (begin >= end) return {};
  return {reinterpret_cast<std::byte*>(begin), end - begin};
}

}  // namespace

void MappedFile::prefetch(std::span<const std::byte> part) const {
  const std::span<std::byte> pages = inner_pages(part);
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_WILLNEED);
}

void MappedFile::release(std::span<const std::byte> part) const {
  const std::span<std::byte> pages = inner_pages(part);
  if (!pages.empty()) madvise(pages.data(), pages.size(), MADV_DONTNEED);
}

Result<void> MappedFile::check_intact() const {
  if (state_->slot == nullptr || !state_->slot->faulted.load(std::memory_order_acquire)) return {};
  struct stat status = {};
  const long long now = ::stat(state_->path.c_str(), &status) == 0 ? static_cast<long long>(status.st_size) : -1;
  return bad_input("{}: was truncated while in use: expected {} bytes as when it was opened, got {}",
                   state_->path, state_->size_bytes, now);
}

}  // namespace markbase::base
