// The values of a template and the memory they live in.
//
// A text remembers who wrote each stretch of it. Values are small and copied freely; what they
// point to belongs to an Arena and lives until that goes, so cycles and deep nesting cost nothing.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace markbase::tokenizer::jinja {

// Who wrote a stretch of text. kMark is what the caller hides in a message to find it again in the
// output; nothing that a message or a template says has it.
enum class Origin : uint8_t { kTemplate, kMessage, kMark };

// A stretch that ends at byte `end`; it begins where the one before ends.
struct Run {
  size_t end = 0;
  Origin origin = Origin::kMessage;
};

// UTF-8; bytes of a message that are none are carried along. Neighbouring runs differ in origin; an
// empty text has none.
struct Text {
  std::string bytes;
  std::vector<Run> runs;
};

// What a text takes, in bytes: one of many short runs is far larger than its letters.
int64_t weight(const Text& text);

enum class Type : uint8_t {
  kMissing,    // no value at all: a variable that was never set
  kUndefined,  // Jinja's: prints as nothing, most uses are errors
  kNone,
  kBool,
  kInt,
  kBigInt,  // beyond 64 bits: carried along and printed, no arithmetic
  kFloat,
  kString,
  kList,
  kTuple,
  kView,       // what dict.items(), keys(), values() give: a list that cannot be indexed
  kGenerator,  // what map, select, ... give: can be walked once
  kRange,
  kDict,
  kNamespace,
  kMacro,
  kFunction,
  kMethod,
  kLoop,
};

struct Expr;
struct List;
struct Range;
struct Dict;
struct Namespace;
struct Macro;
struct Method;
struct Loop;
enum class Function : uint8_t;

struct Value {
  Type type = Type::kUndefined;
  union {
    bool boolean;
    int64_t integer = 0;
    double real;
    const Text* text;  // kString; the digits of a kBigInt
    List* list;        // kList, kTuple, kView, kGenerator
    const Range* range;
    Dict* dict;
    Namespace* names;
    const Macro* macro;
    Function function;
    const Method* method;
    Loop* loop;
    const Expr* source;  // kUndefined: the expression that came to nothing, or null
  };

  static Value none() { return of(Type::kNone); }
  static Value missing() { return of(Type::kMissing); }
  static Value undefined(const Expr* source) {
    Value v;
    v.source = source;
    return v;
  }
  static Value of(bool b) {
    Value v = of(Type::kBool);
    v.boolean = b;
    return v;
  }
  static Value of(int64_t i) {
    Value v = of(Type::kInt);
    v.integer = i;
    return v;
  }
  static Value of(double d) {
    Value v = of(Type::kFloat);
    v.real = d;
    return v;
  }
  static Value of(const Text* t) {
    Value v = of(Type::kString);
    v.text = t;
    return v;
  }
  static Value of(Type type) {
    Value v;
    v.type = type;
    return v;
  }

  bool is(Type t) const { return type == t; }
  bool is_undefined() const { return type == Type::kUndefined; }
  bool is_string() const { return type == Type::kString; }
  bool is_integer() const { return type == Type::kInt || type == Type::kBool; }
  bool is_number() const { return is_integer() || type == Type::kFloat || type == Type::kBigInt; }
  bool is_callable() const {
    return type == Type::kMacro || type == Type::kFunction || type == Type::kMethod;
  }
  std::string_view view() const { return text->bytes; }
  // Of a kInt or kBool.
  int64_t as_integer() const { return type == Type::kBool ? boolean : integer; }
};

struct List {
  std::vector<Value> items;
  std::string_view view_name;  // of a kView: "dict_items", ...
};

struct Range {
  int64_t start = 0, stop = 0, step = 1;
  int64_t size() const;
};

// In order of insertion. Keys are compared as Python does (1, 1.0 and True are one key).
struct Dict {
  std::vector<std::pair<Value, Value>> items;

  const Value* find(std::string_view key) const;
  // Adds or replaces; a replaced key keeps its place.
  void set(const Value& key, const Value& value);

 private:
  // Long ones only: text keys to their place.
  std::unordered_map<std::string_view, size_t> index_;
  size_t place_of(const Value& key) const;
};

struct Namespace {
  std::vector<std::pair<const Text*, Value>> items;
  Value* find(std::string_view name);
};

struct Method {
  Value receiver;
  std::string_view name;
};

// The state of a for loop, as its body sees it.
struct Loop {
  const std::vector<Value>* items = nullptr;  // null: it goes over `range`
  const Range* range = nullptr;
  size_t index = 0;
  int64_t depth = 1;
  std::vector<Value> changed;  // what loop.changed() last saw
  bool has_changed = false;

  size_t size() const;
  Value item(size_t at) const;  // `at` below size()
};

// Owns what values point to. Not thread safe.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Value string(Text text);
  Value string(std::string_view bytes, Origin origin);
  Value big_int(std::string_view digits);
  Value list(std::vector<Value> items, Type type = Type::kList);
  Value view(std::vector<Value> items, std::string_view name);
  Value dict();
  Value range(Range range);
  Value names();
  Value method(const Value& receiver, std::string_view name);
  Loop* loop();

  // What it holds, in bytes, about; without what was added to lists and dictionaries later.
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_ = 0;
  std::deque<Text> texts_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Range> ranges_;
  std::deque<Namespace> namespaces_;
  std::deque<Method> methods_;
  std::deque<Loop> loops_;
};

}  // namespace markbase::tokenizer::jinja
