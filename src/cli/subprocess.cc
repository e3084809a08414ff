#include "cli/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
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

// Feeds and drains both pipes until the program closes its stdout. False: killed, by Ctrl-C or for
// writing too much.
bool exchange(std::string_view input, size_t most_bytes, Fd* to, Fd* from, std::string* output) {
  ::fcntl(to->get(), F_SETFL, O_NONBLOCK);
  while (!interrupted()) {
    if (input.empty()) to->close();
    // A negative descriptor is passed over.
    pollfd fds[2] = {{from->get(), POLLIN, 0}, {to->get(), POLLOUT, 0}};
    if (::poll(fds, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return false;
    }
    if (fds[1].revents != 0) {
      const ssize_t n = ::write(to->get(), input.data(), input.size());
      if (n > 0) input.remove_prefix(static_cast<size_t>(n));
      // It need not read what it is told.
      if (n < 0 && errno != EAGAIN && errno != EINTR) input = {};
    }
    if (fds[0].revents == 0) continue;
    char buffer[65536];
    const ssize_t n = ::read(from->get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    output->append(buffer, static_cast<size_t>(n));
    if (output->size() > most_bytes) return false;
  }
  return false;
}

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
  const bool complete = exchange(input, most_bytes, &to_child, &from_child, &result.output);
  to_child.close();
  if (!complete) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) break;
    if (interrupted()) ::kill(pid, SIGKILL);
  }
  if (interrupted()) return Error{ErrorCode::kCancelled, "interrupted"};
  if (!complete) {
    result.error = fmt::format("the command wrote more than {} bytes", most_bytes);
    result.output.clear();
  } else {
    result.error = status_text(status);
  }
  return result;
}

}  // namespace markbase::cli
