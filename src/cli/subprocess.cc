#include "cli/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "cli/cli.h"

extern char** environ;  // NOLINT: named by POSIX

namespace markbase::cli {
namespace {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { close(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  void reset(int fd) {
    close();
    fd_ = fd;
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

Result<void> make_pipe(Fd* read_end, Fd* write_end) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return base::failed("pipe: {}", std::strerror(errno));
  read_end->reset(ends[0]);
  write_end->reset(ends[1]);
  return {};
}

// The child starts with the signals of any program: ours ignores a closed pipe.
int spawn(const std::vector<std::string>& argv, int input, int output, pid_t* pid) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  sigaddset(&defaults, SIGXFSZ);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  const int failed =
      posix_spawnp(pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return failed;
}

// A descriptor that is readable once the process has ended; -1 where the kernel has none (before
// 5.3).
int open_process(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

// How long the wait goes without a look at interrupted(). No event wakes it for sure: the signal
// may come just before the wait, or be taken by another thread.
constexpr int kLookMs = 50;

// A running program and our ends of its pipes.
class Exchange {
 public:
  Exchange(pid_t pid, Fd* to, Fd* from)
      : pid_(pid), to_(to), from_(from), process_(open_process(pid)) {
    ::fcntl(to->get(), F_SETFL, O_NONBLOCK);
    ::fcntl(from->get(), F_SETFL, O_NONBLOCK);
  }

  // Feeds and drains both pipes until the program has ended. What it left running in the background
  // may hold its stdout: nobody waits for that. False: killed, by Ctrl-C or for writing too much.
  bool run(std::string_view input, size_t most_bytes, std::string* output) {
    while (!ended_ && !interrupted()) {
      if (input.empty()) to_->close();
      // A negative descriptor is passed over.
      pollfd fds[3] = {
          {from_->get(), POLLIN, 0}, {to_->get(), POLLOUT, 0}, {process_.get(), POLLIN, 0}};
      if (::poll(fds, 3, kLookMs) < 0 && errno != EINTR) break;
      feed(&input);
      // First the look, then the draining: all it wrote before its end is there to be read.
      ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
      if (!drain(most_bytes, output)) break;
    }
    if (ended_) return output->size() <= most_bytes;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
    return false;
  }

  int status() const { return status_; }

 private:
  void feed(std::string_view* input) {
    if (to_->get() < 0) return;
    const ssize_t n = ::write(to_->get(), input->data(), input->size());
    if (n > 0) input->remove_prefix(static_cast<size_t>(n));
    // It need not read what it is told.
    if (n < 0 && errno != EAGAIN && errno != EINTR) *input = {};
  }

  // What can be read at once. False: more than `most_bytes`.
  bool drain(size_t most_bytes, std::string* output) {
    char buffer[65536];
    while (from_->get() >= 0) {
      const ssize_t n = ::read(from_->get(), buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EAGAIN) break;
      if (n <= 0) {
        from_->close();
        break;
      }
      output->append(buffer, static_cast<size_t>(n));
      if (output->size() > most_bytes) return false;
    }
    return true;
  }

  pid_t pid_;
  Fd* to_;
  Fd* from_;
  Fd process_;
  bool ended_ = false;
  int status_ = 0;
};

std::string status_text(int status) {
  if (WIFSIGNALED(status)) return fmt::format("the command died of signal {}", WTERMSIG(status));
  const int code = WEXITSTATUS(status);
  return code == 0 ? std::string() : fmt::format("the command ended with status {}", code);
}

}  // namespace

Result<ProcessResult> run_process(const std::vector<std::string>& argv, std::string_view input,
                                  size_t most_bytes) {
  Fd child_input;
  Fd to_child;
  Fd from_child;
  Fd child_output;
  MB_TRY(make_pipe(&child_input, &to_child));
  MB_TRY(make_pipe(&from_child, &child_output));
  ProcessResult result;
  pid_t pid = 0;
  const int failed = spawn(argv, child_input.get(), child_output.get(), &pid);
  if (failed != 0) {
    result.error = fmt::format("{}: {}", argv[0], std::strerror(failed));
    return result;
  }
  child_input.close();
  child_output.close();
  Exchange exchange(pid, &to_child, &from_child);
  const bool complete = exchange.run(input, most_bytes, &result.output);
  if (interrupted()) return Error{ErrorCode::kCancelled, "interrupted"};
  if (!complete) {
    result.error = fmt::format("the command wrote more than {} bytes", most_bytes);
    result.output.clear();
  } else {
    result.error = status_text(exchange.status());
  }
  return result;
}

}  // namespace markbase::cli
