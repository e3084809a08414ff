#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "cli/cli.h"

namespace markbase::cli {
namespace {

// A signal handler can reach nothing but globals; these flags are all there is.
volatile sig_atomic_t g_interrupted = 0;
volatile sig_atomic_t g_work_ends_itself = 0;

void on_interrupt(int /*signal*/) {
  if (g_work_ends_itself != 0 && g_interrupted == 0) {
    g_interrupted = 1;
    return;
  }
  constexpr char kText[] = "markbase: interrupted\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
  _exit(static_cast<int>(ErrorCode::kCancelled));
}

}  // namespace

void install_interrupt_handler() {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  // No SA_RESTART: a read from the terminal ends with EINTR.
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  // A closed pipe is an error from write, with a message, not a silent death.
  signal(SIGPIPE, SIG_IGN);
  // So is a file that may not grow any more.
  signal(SIGXFSZ, SIG_IGN);
}

GracefulInterrupt::GracefulInterrupt() { g_work_ends_itself = 1; }
GracefulInterrupt::~GracefulInterrupt() { g_work_ends_itself = 0; }

bool interrupted() { return g_interrupted != 0; }
void clear_interrupt() { g_interrupted = 0; }

}  // namespace markbase::cli
