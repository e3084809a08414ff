// Where the answers of a batch go: stdout, or a file that an interrupted batch goes on with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "cli/batch_record.h"
#include "markbase/result.h"

namespace markbase::cli {

uint64_t hash_of(std::string_view text);

class BatchOutput {
 public:
  // path: empty for stdout. A file that holds answers is read into `record`, and a last line that
  // was being written is cut off: one that could be the begin of a line of ours. Errors: kBadInput
  // for a file that holds anything else (it stays as it is), kFailed where it cannot be written or
  // another batch is writing it.
  static Result<BatchOutput> open(const std::string& path, BatchRecord* record);
  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&&) = delete;
  ~BatchOutput();

  // Appends a line, whole or not at all; a pipe whose reader goes away or stops reading may have
  // its begin. Errors: kFailed, kCancelled (interrupted while there was no room).
  Result<void> write(const std::string& line);

 private:
  BatchOutput(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}
  Result<void> take_up(BatchRecord* record);

  int fd_;
  std::string name_;
};

// {"id","line","request","error":{"code","message"}}
std::string fault_line(const base::Json& id, size_t line, uint64_t hash, const Error& error);
std::string hash_json(uint64_t hash);

}  // namespace markbase::cli
