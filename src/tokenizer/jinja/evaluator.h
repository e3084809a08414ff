// Runs a tree. One evaluator is one rendering.
//
// After the first error every expression is undefined and every statement ends at once; the caller
// looks at the error when the body is done.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "markbase/result.h"
#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/python.h"

namespace markbase::tokenizer::jinja {

// Variables of one scope. Macros and call blocks look into the scope that they were written in.
struct Frame {
  Frame* parent = nullptr;  // null: the template's own variables come next
  std::vector<std::pair<int32_t, Value>> variables;
};

struct Macro {
  const MacroDefinition* definition = nullptr;
  Frame* frame = nullptr;
};

struct Limits {
  int64_t max_steps = 0;
  int64_t max_bytes = 0;
};

class Evaluator {
 public:
  Evaluator(const Tree& tree, const Limits& limits);

  // Before run(): a variable of the template.
  void define(std::string_view name, const Value& value);
  // Errors: kUsage where the template refuses its input or cannot deal with it, kBadInput where it
  // breaks a limit.
  Result<Text> run();

  // What the built-ins use.
  Arena& arena() { return arena_; }
  Budget& budget() { return budget_; }
  bool failed() const { return error_.has_value(); }
  // Undefined, so that `return eval.fail(...)` reads well.
  Value fail(const Expr& at, const std::string& what);
  Value refuse(const Expr& at, std::string_view what);  // the template's own raise_exception
  bool spend(const Expr& at, int64_t steps, int64_t bytes = 0);
  // For finding a key in a dict or namespace: hashing a text, looking through all else.
  bool spend_lookup(const Expr& at, const Value& container, const Value& key);
  Value string(std::string_view bytes) { return arena_.string(bytes, Origin::kMessage); }
  // str(value), a text.
  Value text_of(const Expr& at, const Value& value);
  bool equal(const Expr& at, const Value& a, const Value& b);
  // -1, 0, 1; an error where there is no order.
  int order(const Expr& at, const Value& a, const Value& b);
  bool contains(const Expr& at, const Value& container, const Value& value);
  // What a for loop over the value sees; lives as long as the arena.
  const std::vector<Value>& items_of(const Expr& at, const Value& value);
  Value get_item(const Expr& at, const Value& object, const Value& key);
  Value get_attribute(const Expr& at, const Value& object, std::string_view name);
  Value add(const Expr& at, const Value& a, const Value& b);
  Value call(const Expr& at, const Value& callee, Arguments& args);
  // Why a value is undefined: "'x' is undefined".
  static std::string why_undefined(const Value& value);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class DepthGuard {
   public:
    explicit DepthGuard(Evaluator& eval) : eval_(eval) { ++eval_.depth_; }
    DepthGuard(const DepthGuard&) = delete;
    DepthGuard& operator=(const DepthGuard&) = delete;
    ~DepthGuard() { --eval_.depth_; }

   private:
    Evaluator& eval_;
  };

  bool enter(uint32_t offset);
  void set_error(uint32_t offset, ErrorCode code, const std::string& what);

  Flow execute(const std::vector<Statement*>& body);
  Flow execute(const Statement& statement);
  void print(const Statement& statement);
  Flow run_for(const Statement& statement);
  bool begin_loop(const Statement& statement, Loop& loop);
  bool leads_on(const Statement& guard);
  const std::vector<Value>& filtered_items(const Statement& statement);
  void run_set(const Statement& statement);
  void run_call_block(const Statement& statement);
  void run_with(const Statement& statement);
  Value captured(const std::vector<Statement*>& body);
  void assign(const Expr& target, const Value& value);
  void set_variable(int32_t name, const Value& value);
  Frame* new_frame(Frame* parent);
  Value new_macro(const MacroDefinition& definition);

  Value evaluate(const Expr& expr);
  Value evaluate_name(const Expr& expr);
  Value evaluate_if(const Expr& expr);
  Value evaluate_list(const Expr& expr);
  Value evaluate_dict(const Expr& expr);
  Value evaluate_slice(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  Value evaluate_binary(const Expr& expr);
  Value evaluate_concat(const Expr& expr);
  Value evaluate_call(const Expr& expr);
  Value evaluate_filter(const Expr& expr, const Value& input);
  // A chain of filters whose innermost one takes a block's text.
  Value filter_block(const Expr& expr, const Value& text);
  Value evaluate_test(const Expr& expr);
  Value evaluate_sign(const Expr& expr);
  void gather(const Expr& call, Arguments& args);
  bool compare_with(const Expr& expr, Operator op, const Value& a, const Value& b);
  Value arithmetic(const Expr& at, Operator op, const Value& a, const Value& b);
  Value integer_arithmetic(const Expr& at, Operator op, int64_t a, int64_t b);
  Value repeat(const Expr& at, const Value& sequence, int64_t count);
  Value call_macro(const Expr& at, const Macro& macro, Arguments& args);
  bool bind_macro(const Expr& at, const Macro& macro, Arguments& args, std::vector<Value>& bound);

  const Tree& tree_;
  Arena arena_;
  Budget budget_;
  int64_t max_arena_bytes_;
  std::optional<Error> error_;
  std::vector<Value> globals_;  // by name number
  std::deque<Frame> frames_;
  std::deque<Macro> macros_;
  Frame* frame_ = nullptr;  // null: at the top
  Text* out_ = nullptr;
  int depth_ = 0;
};

// Applied to an expression's bounds as Python's slice.indices() does: the indices to take, in
// order.
std::vector<int64_t> slice_indices(int64_t size, std::optional<int64_t> start,
                                   std::optional<int64_t> stop, int64_t step);

}  // namespace markbase::tokenizer::jinja
