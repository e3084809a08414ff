// Runs a program with text on its stdin and takes its stdout.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "markbase/result.h"

namespace markbase::cli {

struct ProcessResult {
  std::string output;
  std::string error;  // why it failed: not found, ended with a status other than 0, wrote too much
};

// argv[0] is looked up in PATH; nothing is interpreted by a shell. Stderr is inherited. Blocks
// until the program has ended, and no longer: what it left running in the background may hold its
// stdout. Errors: kCancelled when Ctrl-C came meanwhile (the program is
// killed), kFailed where the system gives no pipe or process.
Result<ProcessResult> run_process(const std::vector<std::string>& argv, std::string_view input,
                                  size_t most_bytes);

}  // namespace markbase::cli
