#include "formats/safetensors/safetensors_header.h"

#include <optional>
#include <unordered_set>

#include "base/json.h"
#include "base/json_fault.h"
#include "formats/broken.h"

namespace markbase::formats {
namespace {

using base::Json;

// What a JSON value is to the handlers below. Containers are told apart from scalars by the events.
enum class Token { kString, kUnsigned, kOther, kBeginObject, kEndObject, kBeginArray, kEndArray };

std::string_view token_name(Token token) {
  switch (token) {
    case Token::kString:
      return "a string";
    case Token::kUnsigned:
      return "a non-negative integer";
    case Token::kOther:
      return "another JSON value";
    case Token::kBeginObject:
      return "an object";
    case Token::kBeginArray:
      return "an array";
    case Token::kEndObject:
    case Token::kEndArray:
      return "an end";
  }
  return "?";
}

// Turns the events of the JSON library into tokens; on_token and on_key return false after fail().
class Handler : public Json::json_sax_t {
 public:
  explicit Handler(const std::string& path) : path_(path) {}

  bool null() override { return on_token(Token::kOther); }
  bool boolean(bool) override { return on_token(Token::kOther); }
  bool number_integer(number_integer_t) override { return on_token(Token::kOther); }
  bool number_unsigned(number_unsigned_t value) override {
    number_ = value;
    return on_token(Token::kUnsigned);
  }
  bool number_float(number_float_t, const string_t&) override { return on_token(Token::kOther); }
  bool string(string_t& value) override {
    text_ = value;
    return on_token(Token::kString);
  }
  bool binary(binary_t&) override { return on_token(Token::kOther); }
  bool start_object(std::size_t) override { return on_token(Token::kBeginObject); }
  bool key(string_t& value) override { return on_key(value); }
  bool end_object() override { return on_token(Token::kEndObject); }
  bool start_array(std::size_t) override { return on_token(Token::kBeginArray); }
  bool end_array() override { return on_token(Token::kEndArray); }
  bool parse_error(std::size_t position, const std::string&, const Json::exception& e) override {
    error_ = base::bad_input("{}: {}: expected valid JSON, got an error at byte {}: {}", path_,
                             where_, position, base::json_fault(e.what()));
    return false;
  }

  Result<void> run(std::string_view json, const char* where) {
    where_ = where;
    if (Json::sax_parse(json.begin(), json.end(), this)) return {};
    if (error_) return *error_;
    return broken(path_, where_, "valid JSON", "an error");
  }

 protected:
  virtual bool on_token(Token token) = 0;
  virtual bool on_key(const std::string& key) = 0;

  bool fail(std::string_view what, std::string_view expected, std::string_view got) {
    error_ = broken(path_, what, expected, got);
    return false;
  }

  const std::string& path_;
  std::string where_;
  uint64_t number_ = 0;
  std::string text_;

 private:
  std::optional<Error> error_;
};

class HeaderHandler final : public Handler {
 public:
  using Handler::Handler;
  SafetensorsHeader take() { return std::move(header_); }

 private:
  enum class State { kStart, kTop, kMetadata, kTensor, kShape, kOffsets };

  bool on_key(const std::string& key) override {
    key_ = key;
    if (state_ == State::kTop) return on_name(key);
    if (state_ == State::kMetadata) {
      if (header_.metadata.contains(key))
        return fail(tensor(), "each key once", "a second " + shown(key));
      return true;
    }
    bool* seen = key == "dtype"          ? &has_dtype_
                 : key == "shape"        ? &has_shape_
                 : key == "data_offsets" ? &has_offsets_
                                         : nullptr;
    if (seen == nullptr)
      return fail(tensor(), "dtype, shape and data_offsets", "a key " + shown(key));
    if (*seen) return fail(tensor(), "each key once", "a second " + shown(key));
    *seen = true;
    return true;
  }

  bool on_name(const std::string& name) {
    if (!names_.insert(name).second) {
      return fail("tensor " + shown(name), "each name once in the header", "a second one");
    }
    has_dtype_ = has_shape_ = has_offsets_ = false;
    entry_ = {};
    entry_.name = name;
    return true;
  }

  std::string tensor() const { return "tensor " + shown(entry_.name); }

  bool unexpected(std::string_view expected, Token token) {
    return fail(state_ == State::kStart ? "header" : tensor(), expected, token_name(token));
  }

  bool on_token(Token token) override {
    switch (state_) {
      case State::kStart:
        if (token != Token::kBeginObject) return unexpected("a JSON object", token);
        state_ = State::kTop;
        return true;
      case State::kTop:
        if (token == Token::kEndObject) return true;
        if (token != Token::kBeginObject) return unexpected("an object", token);
        state_ = entry_.name == "__metadata__" ? State::kMetadata : State::kTensor;
        return true;
      case State::kMetadata:
        if (token == Token::kEndObject) {
          state_ = State::kTop;
          return true;
        }
        if (token != Token::kString) return unexpected("strings in __metadata__", token);
        header_.metadata[key_] = text_;
        return true;
      case State::kTensor:
        return on_tensor_token(token);
      case State::kShape:
        if (token == Token::kEndArray) {
          state_ = State::kTensor;
          return true;
        }
        if (token != Token::kUnsigned) return unexpected("a shape of non-negative integers", token);
        entry_.shape.push_back(number_);
        return true;
      case State::kOffsets:
        return on_offset_token(token);
    }
    return false;
  }

  bool on_tensor_token(Token token) {
    if (token == Token::kEndObject) {
      if (!has_dtype_ || !has_shape_ || !has_offsets_) {
        return fail(tensor(), "dtype, shape and data_offsets",
                    fmt::format("no {}", !has_dtype_   ? "dtype"
                                         : !has_shape_ ? "shape"
                                                       : "data_offsets"));
      }
      header_.entries.push_back(std::move(entry_));
      entry_ = {};
      state_ = State::kTop;
      return true;
    }
    if (key_ == "dtype") {
      if (token != Token::kString) return unexpected("a dtype name", token);
      entry_.dtype = text_;
      return true;
    }
    const bool shape = key_ == "shape";
    if (token != Token::kBeginArray)
      return unexpected(shape ? "a shape array" : "two data_offsets", token);
    state_ = shape ? State::kShape : State::kOffsets;
    num_offsets_ = 0;
    return true;
  }

  bool on_offset_token(Token token) {
    const std::string got = fmt::format("{} of them", num_offsets_);
    if (token == Token::kEndArray) {
      if (num_offsets_ != 2) return fail(tensor(), "two data_offsets", got);
      state_ = State::kTensor;
      return true;
    }
    if (token != Token::kUnsigned)
      return unexpected("data_offsets of non-negative integers", token);
    if (num_offsets_ == 2) return fail(tensor(), "two data_offsets", "more of them");
    (num_offsets_ == 0 ? entry_.begin : entry_.end) = number_;
    ++num_offsets_;
    return true;
  }

  State state_ = State::kStart;
  SafetensorsHeader header_;
  std::unordered_set<std::string> names_;
  SafetensorsEntry entry_;
  std::string key_;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  int num_offsets_ = 0;
};

// {"metadata": anything, "weight_map": {tensor: file}}
class IndexHandler final : public Handler {
 public:
  using Handler::Handler;
  WeightMap take() { return std::move(map_); }
  bool has_map() const { return has_map_; }

 private:
  bool on_key(const std::string& key) override {
    if (depth_ == 1) {
      in_map_ = key == "weight_map";
      if (in_map_ && has_map_) return fail("index", "one weight_map", "a second one");
    }
    if (depth_ == 2 && in_map_) {
      name_ = key;
      if (!names_.insert(key).second) {
        return fail("weight_map, tensor " + shown(key), "each name once", "a second one");
      }
    }
    return true;
  }

  bool on_token(Token token) override {
    if (depth_ == 0 && token != Token::kBeginObject) {
      return fail("index", "a JSON object", token_name(token));
    }
    if (depth_ == 1 && in_map_ && token != Token::kEndObject) {
      if (token != Token::kBeginObject) return fail("weight_map", "an object", token_name(token));
      has_map_ = true;
    }
    if (depth_ == 2 && in_map_ && token != Token::kEndObject) {
      if (token != Token::kString) {
        return fail("weight_map, tensor " + shown(name_), "a file name", token_name(token));
      }
      map_.emplace_back(name_, text_);
    }
    if (token == Token::kBeginObject || token == Token::kBeginArray) ++depth_;
    if (token == Token::kEndObject || token == Token::kEndArray) --depth_;
    return true;
  }

  WeightMap map_;
  std::unordered_set<std::string> names_;
  std::string name_;
  int depth_ = 0;
  bool in_map_ = false;
  bool has_map_ = false;
};

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, const std::string& path) {
  if (json.empty() || json[0] != '{') {
    return broken(path, "header at byte 8", "a JSON object that begins with \"{\"",
                  json.empty() ? "no bytes" : shown(json.substr(0, 1)));
  }
  HeaderHandler handler(path);
  MB_TRY(handler.run(json, "header"));
  return handler.take();
}

Result<WeightMap> parse_safetensors_index(std::string_view json, const std::string& path) {
  IndexHandler handler(path);
  MB_TRY(handler.run(json, "index"));
  if (!handler.has_map()) return broken(path, "index", "a weight_map", "none");
  return handler.take();
}

}  // namespace markbase::formats
