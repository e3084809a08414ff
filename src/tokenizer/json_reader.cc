#include "tokenizer/json_reader.h"

#include <algorithm>

#include "base/error.h"
#include "base/json_fault.h"
#include "tokenizer/merge_list.h"

namespace markbase::tokenizer {
namespace {

using base::bad_input;
using base::Json;

constexpr size_t kMaxDepth = 32;
// Objects of the JSON type look their keys up one by one; none outside the vocabulary is near this.
constexpr size_t kMaxKeys = 4096;

// The events of the parser; returning false stops it, and error() says why.
class Reader {
 public:
  Reader(TokenizerJson& out, std::string_view source) : out_(out), source_(source) {}
  const std::string& error() const { return error_; }

  bool null() { return value(Json(nullptr)); }
  bool boolean(bool v) { return value(Json(v)); }
  bool number_integer(int64_t v) { return mode_ == Mode::kVocab ? vocab_entry(v) : value(Json(v)); }
  bool number_unsigned(uint64_t v) {
    if (mode_ != Mode::kVocab) return value(Json(v));
    return vocab_entry(static_cast<int64_t>(std::min<uint64_t>(v, INT64_MAX)));
  }
  bool number_float(double v, const std::string&) { return value(Json(v)); }
  bool binary(Json::binary_t&) { return fail("binary value"); }
  bool string(std::string& v) {
    if (mode_ == Mode::kMerges) return merge_string(v);
    if (mode_ == Mode::kMergePair) return merge_part(v);
    return value(Json(std::move(v)));
  }
  bool key(std::string& v) {
    key_ = std::move(v);
    if (mode_ == Mode::kVocab) return true;
    Json& object = *stack_.back();
    if (object.size() >= kMaxKeys)
      return fail(fmt::format("an object has more than {} keys", kMaxKeys));
    if (object.contains(key_)) return fail(fmt::format("key '{}' is there twice", key_));
    return true;
  }
  bool start_object(size_t) {
    if (mode_ != Mode::kDocument) return unexpected("an object");
    if (is_model_key("vocab")) return enter(Mode::kVocab, out_.has_vocab);
    return open(Json::object());
  }
  bool end_object() {
    if (mode_ == Mode::kVocab) {
      mode_ = Mode::kDocument;
    } else {
      stack_.pop_back();
    }
    return true;
  }
  bool start_array(size_t) {
    if (mode_ == Mode::kMerges) {
      mode_ = Mode::kMergePair;
      num_parts_ = 0;
      out_.merges.push_back({static_cast<uint32_t>(out_.pool.size()), 0, 0});
      return true;
    }
    if (mode_ != Mode::kDocument) return unexpected("a list");
    if (is_model_key("merges")) return enter(Mode::kMerges, out_.has_merges);
    if (is_model_key("vocab"))
      return fail("model.vocab is a list, expected the object of a BPE model");
    return open(Json::array());
  }
  bool end_array() {
    if (mode_ == Mode::kMergePair) {
      if (num_parts_ != 2) return fail(merge_shape());
      mode_ = Mode::kMerges;
    } else if (mode_ == Mode::kMerges) {
      mode_ = Mode::kDocument;
    } else {
      stack_.pop_back();
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception& e) {
    return fail(fmt::format("not valid JSON at byte {}: {}", position, base::json_fault(e.what())));
  }

 private:
  enum class Mode { kDocument, kVocab, kMerges, kMergePair };

  bool fail(std::string why) {
    error_ = std::move(why);
    return false;
  }
  bool unexpected(std::string_view got) {
    if (mode_ == Mode::kVocab)
      return fail(fmt::format("model.vocab: '{}' is {}, expected an id", key_, got));
    return fail(merge_shape());
  }
  std::string merge_shape() const {
    const size_t index = out_.merges.size() - (mode_ == Mode::kMergePair ? 1 : 0);
    return fmt::format("model.merges: entry {}: expected \"left right\" or [left, right]", index);
  }
  bool is_model_key(std::string_view name) const {
    return stack_.size() == 2 && in_model_ && key_ == name;
  }
  bool enter(Mode mode, bool& seen) {
    if (seen) return fail(fmt::format("key '{}' is there twice", key_));
    seen = true;
    mode_ = mode;
    return true;
  }
  bool pool_has_room(size_t bytes) {
    if (out_.pool.size() + bytes < UINT32_MAX) return true;
    return fail("more than 4 GiB of pieces");
  }
  bool vocab_entry(int64_t id) {
    if (id < 0 || id > kMaxTokenId) {
      return fail(
          fmt::format("model.vocab: '{}' has id {}, expected 0 to {}", key_, id, kMaxTokenId));
    }
    if (key_.empty()) return fail(fmt::format("model.vocab: id {} has an empty piece", id));
    if (!pool_has_room(key_.size())) return false;
    out_.vocab.push_back({static_cast<uint32_t>(out_.pool.size()),
                          static_cast<uint32_t>(key_.size()), static_cast<int32_t>(id)});
    out_.pool.append(key_);
    return true;
  }
  bool merge_string(const std::string& merge) {
    if (!pool_has_room(merge.size())) return false;
    const auto parts = split_merge(merge, out_.merges.size(), source_);
    if (!parts.ok()) return fail(merge_shape());
    const auto& [left, right] = *parts;
    out_.merges.push_back({static_cast<uint32_t>(out_.pool.size()),
                           static_cast<uint32_t>(left.size()),
                           static_cast<uint32_t>(right.size())});
    out_.pool.append(left).append(right);
    return true;
  }
  bool merge_part(const std::string& part) {
    if (!pool_has_room(part.size())) return false;
    if (part.empty() || num_parts_ == 2) return fail(merge_shape());
    auto& merge = out_.merges.back();
    (num_parts_++ == 0 ? merge.left_length : merge.right_length) =
        static_cast<uint32_t>(part.size());
    out_.pool.append(part);
    return true;
  }
  bool value(Json v) {
    if (mode_ != Mode::kDocument) return unexpected(v.type_name());
    if (is_model_key("vocab") || is_model_key("merges")) {
      return fail(fmt::format("model.{} is {}, expected {}", key_, v.type_name(),
                              key_ == "vocab" ? "an object" : "a list"));
    }
    insert(std::move(v));
    return true;
  }
  Json* insert(Json v) {
    if (stack_.empty()) {
      out_.rest = std::move(v);
      return &out_.rest;
    }
    Json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(v));
      return &parent.back();
    }
    return &(parent[key_] = std::move(v));
  }
  bool open(Json container) {
    if (stack_.size() >= kMaxDepth)
      return fail(fmt::format("nested deeper than {} levels", kMaxDepth));
    // A parent gets no sibling while a child is open, so the pointers stay good.
    if (stack_.size() == 1) in_model_ = key_ == "model" && stack_.back()->is_object();
    stack_.push_back(insert(std::move(container)));
    return true;
  }

  TokenizerJson& out_;
  std::string_view source_;
  std::string error_;
  Mode mode_ = Mode::kDocument;
  std::vector<Json*> stack_;
  std::string key_;
  bool in_model_ = false;
  int num_parts_ = 0;
};

}  // namespace

Result<TokenizerJson> read_tokenizer_json(std::string_view text, std::string_view source) {
  TokenizerJson out;
  Reader reader(out, source);
  try {
    if (!Json::sax_parse(text.begin(), text.end(), &reader))
      return bad_input("{}: {}", source, reader.error());
  } catch (const std::exception& e) {
    return bad_input("{}: JSON could not be read: {}", source, e.what());
  }
  if (!out.rest.is_object()) return bad_input("{}: expected a JSON object", source);
  return out;
}

}  // namespace markbase::tokenizer
