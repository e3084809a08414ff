#include "cli/batch_record.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "base/any_json.h"
#include "base/error.h"

namespace markbase::cli {
namespace {

constexpr size_t kHashDigits = 16;
constexpr size_t kMostDigits = 20;  // of a number of 64 bits, with its sign

// The begin of a line that may hold anything.
std::string shown(std::string_view text) {
  constexpr size_t kMostBytes = 60;
  return base::dump_json(base::Json(text.substr(0, kMostBytes)));
}

std::optional<uint64_t> hash_in(const base::Json& line) {
  const auto found = line.find("request");
  if (found == line.end() || !found->is_string()) return {};
  const std::string& text = found->get_ref<const std::string&>();
  uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (error != std::errc() || end != text.data() + text.size() || text.size() != kHashDigits)
    return {};
  return hash;
}

bool is_answer(const base::Json& line) {
  const auto id = line.find("id");
  const bool named = id != line.end() && (id->is_string() || id->is_number_integer());
  return named && (line.contains("finish_reason") || line.contains("answers"));
}

int64_t integer_in(const base::Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

// The room that an answer of a line, or the line itself, needs: what ended it, other than its
// length, was sampled at the place behind its last token.
int64_t room_of(const base::Json& answer) {
  if (!answer.is_object() || !answer.contains("timings")) return 0;
  const base::Json& timings = answer["timings"];
  const int64_t generated = integer_in(timings, "generated_tokens");
  const bool by_length = answer.value("finish_reason", base::Json()) == "length";
  return integer_in(timings, "prompt_tokens") +
         (by_length ? std::max<int64_t>(generated - 1, 0) : generated);
}

// Takes everything, and remembers where a text ceases to be JSON.
class FaultPlace : public base::AnyJson {
 public:
  size_t byte() const { return byte_; }  // the first is 1; the end is one past the last

  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception&) override {
    byte_ = byte;
    return false;
  }

 private:
  size_t byte_ = 0;
};

// The library takes a NUL for the end of a text.
bool has_nul(std::string_view text) { return text.find('\0') != text.npos; }

bool is_json_so_far(std::string_view text) {
  if (has_nul(text)) return false;
  FaultPlace fault;
  return base::Json::sax_parse(text.begin(), text.end(), &fault) || fault.byte() > text.size();
}

// A text that is compared piece by piece and may end anywhere: what lies behind its end agrees.
class Cut {
 public:
  explicit Cut(std::string_view text) : rest_(text) {}

  bool one_of(std::initializer_list<std::string_view> choices) {
    for (const std::string_view choice : choices) {
      const size_t size = std::min(choice.size(), rest_.size());
      if (rest_.substr(0, size) != choice.substr(0, size)) continue;
      rest_.remove_prefix(size);
      return true;
    }
    return false;
  }
  // From `least` to `most` of these characters.
  bool some_of(std::string_view characters, size_t least, size_t most) {
    const size_t size = std::min(rest_.find_first_not_of(characters), rest_.size());
    if ((size < least && size < rest_.size()) || size > most) return false;
    rest_.remove_prefix(size);
    return true;
  }
  // A JSON string.
  bool text() {
    if (!one_of({"\""})) return false;
    size_t end = 0;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    return true;
  }
  bool id() {
    if (rest_.empty() || rest_.front() == '"') return text();
    return rest_.front() == 'n' ? one_of({"null"}) : some_of("-0123456789", 1, kMostDigits);
  }

  size_t left() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

// Up to the last digit of the hash.
bool take_head(Cut& cut) {
  return cut.one_of({"{\"id\":"}) && cut.id() && cut.one_of({",\"line\":"}) &&
         cut.some_of("0123456789", 1, kMostDigits) && cut.one_of({",\"request\":\""}) &&
         cut.some_of("0123456789abcdef", kHashDigits, kHashDigits);
}

}  // namespace

bool begins_batch_line(std::string_view text) {
  Cut cut(text);
  return take_head(cut) &&
         cut.one_of(
             {"\",\"text\":\"", "\",\"answers\":[{\"index\":", "\",\"error\":{\"code\":\""}) &&
         is_json_so_far(text);
}

Error not_of_a_batch(std::string_view text, size_t file_line) {
  return base::bad_input("line {}: expected an answer of a batch, got {}", file_line, shown(text));
}

Result<void> BatchRecord::add(std::string_view text, size_t file_line) {
  const Result<base::Json> line = base::parse_json(text, "line");
  const std::optional<uint64_t> hash =
      line.ok() && line->is_object() && !has_nul(text) ? hash_in(*line) : std::nullopt;
  if (hash && is_answer(*line)) {
    Answer answer{*hash, file_line, integer_in(*line, "context"), room_of(*line)};
    if (line->contains("answers")) {
      for (const base::Json& one : (*line)["answers"]) {
        answer.room_tokens = std::max(answer.room_tokens, room_of(one));
      }
    }
    answers_[base::dump_json((*line)["id"])] = answer;
    return {};
  }
  const auto error = hash ? line->find("error") : base::Json::const_iterator();
  if (hash && error != line->end() && error->is_object() && line->contains("line") &&
      (*line)["line"].is_number_unsigned()) {
    faults_[(*line)["line"].get<size_t>()] = *hash;
    return {};
  }
  return not_of_a_batch(text, file_line);
}

Result<void> BatchRecord::add_begin(std::string_view text, size_t file_line) {
  Cut cut(text);
  if (!begins_batch_line(text) || !take_head(cut)) return not_of_a_batch(text, file_line);
  // The rest is what it was when it was written: the head alone says whose answer it is.
  const bool is_fault = cut.one_of({"\",\"error\""});
  std::string head(text.substr(0, text.size() - cut.left()));
  head += (is_fault ? R"(:{}})" : R"(","answers":[]})");
  return add(head, file_line);
}

const BatchRecord::Answer* BatchRecord::answer_of(const base::Json& id) const {
  const auto found = answers_.find(base::dump_json(id));
  return found == answers_.end() ? nullptr : &found->second;
}

bool BatchRecord::has_fault(size_t input_line, uint64_t hash) const {
  const auto found = faults_.find(input_line);
  return found != faults_.end() && found->second == hash;
}

}  // namespace markbase::cli
