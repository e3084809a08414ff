#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "cli/cli.h"

namespace markbase::cli {
namespace {

// A signal handler can reach nothing but a global; this flag is all there is.
volatile sig_atomic_t g_interrupted = 0;

void on_interrupt(int /*signal*/) {
  if (g_interrupted != 0) _exit(static_cast<int>(ErrorCode::kCancelled));
  g_interrupted = 1;
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
}

bool interrupted() { return g_interrupted != 0; }
void clear_interrupt() { g_interrupted = 0; }

}  // namespace markbase::cli
