// Where the answers of a batch go: stdout, or a file that an interrupted batch goes on with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"
#include "markbase/result.h"

namespace markbase::cli {

uint64_t hash_of(std::string_view text);

// What a file of answers holds: ids and hashes, some 100 bytes a line.
class BatchRecord {
 public:
  // A line of the file. Errors: kBadInput, it is not one of a batch.
  Result<void> add(std::string_view text, size_t file_line);

  struct Answer {
    uint64_t request = 0;  // hash
    size_t file_line = 0;
  };
  // Null where there is none.
  const Answer* answer_of(const base::Json& id) const;
  // Whether the file says of this line of the input, word for word, that it cannot be answered.
  bool has_fault(size_t input_line, uint64_t hash) const;
  size_t num_answers() const { return answers_.size(); }

 private:
  std::unordered_map<std::string, Answer> answers_;  // by id, as JSON
  std::unordered_map<size_t, uint64_t> faults_;      // by line of the input
};

class BatchOutput {
 public:
  // path: empty for stdout. A file that holds answers is read into `record`, and a last line that
  // was being written is cut off. Errors: kBadInput for a file that holds anything else (it stays
  // as it is), kFailed where it cannot be written or another batch is writing it.
  static Result<BatchOutput> open(const std::string& path, BatchRecord* record);
  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&&) = delete;
  ~BatchOutput();

  // Appends a line, whole or not at all. Errors: kFailed.
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
