// The lines that a batch has written, read again by the batch that goes on with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"
#include "markbase/result.h"

namespace markbase::cli {

// Whether a batch could have written `text` and more behind it, or a line's end: JSON as far as it
// goes, with the members that every line of ours begins with, in their order.
bool begins_batch_line(std::string_view text);
// The error (kBadInput) of a line that is none of a batch.
Error not_of_a_batch(std::string_view text, size_t file_line);

// What a file of answers holds: ids and hashes, some 100 bytes a line.
class BatchRecord {
 public:
  // A line of the file. Errors: kBadInput, it is not one of a batch.
  Result<void> add(std::string_view text, size_t file_line);
  // One that is too long to be held, of which this is the begin. Errors as add.
  Result<void> add_begin(std::string_view text, size_t file_line);

  struct Answer {
    uint64_t request = 0;  // hash
    size_t file_line = 0;
    int64_t context_tokens = 0;  // of the engine where the answer filled it; else 0
    int64_t room_tokens = 0;     // the least context in which it is the same
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

}  // namespace markbase::cli
