// A parsed template.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/jinja/value.h"

namespace markbase::tokenizer::jinja {

class Evaluator;
struct Arguments;
// A filter or test. The value it is applied to comes first among the arguments.
using Callable = Value (*)(Evaluator&, const Expr&, Arguments&);

enum class ExprKind : uint8_t {
  kConst,
  kName,
  kList,
  kTuple,
  kDict,       // args: key, value, key, value, ...
  kAttribute,  // args[0].text
  kItem,       // args[0][args[1]]
  kSlice,      // args[0][args[1]:args[2]:args[3]], each of the last three may be null
  kCall,       // args[0](args[1:], keywords)
  kFilter,     // args[0] is null where a block is filtered
  kTest,
  kNegative,
  kPositive,
  kNot,
  kAnd,
  kOr,
  kIf,       // args: condition, then, else (may be null)
  kCompare,  // args[0] operators[0] args[1] operators[1] ...
  kBinary,   // operators[0]
  kConcat,
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct Keyword {
  std::string_view name;
  Expr* value = nullptr;
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  uint32_t offset = 0;         // in the source
  int32_t name = -1;           // kName: the variable's number
  const Text* text = nullptr;  // the word: a variable, an attribute, a filter or test
  Value constant;
  Callable callable = nullptr;  // kFilter, kTest; null: not known here
  std::vector<Expr*> args;
  std::vector<Keyword> keywords;
  Expr* more_args = nullptr;      // *args
  Expr* more_keywords = nullptr;  // **kwargs
  std::vector<Operator> operators;
};

enum class StatementKind : uint8_t {
  kText,
  kPrint,
  kIf,
  kFor,
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,  // args: target, value, target, value, ...
  kScope,
  kBreak,
  kContinue,
};

struct Statement;

struct MacroDefinition {
  std::string_view name;
  std::vector<int32_t> parameters;
  std::vector<std::string_view> parameter_names;
  std::vector<Expr*> defaults;  // of the last parameters
  int32_t cost = 1;             // steps of a call, by the parameters and their defaults
  std::vector<Statement*> body;
  // The body speaks of these, so it takes what they stand for.
  int32_t varargs = -1, kwargs = -1, caller = -1;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  uint32_t offset = 0;
  int32_t cost = 1;  // steps, by the size of the expressions
  Value text;
  Expr* target = nullptr;     // kFor, kSet, kSetBlock: kName, kTuple of them, kAttribute of a name
  Expr* expr = nullptr;       // printed, iterated, assigned, tested, called, or the filters
  Expr* condition = nullptr;  // of a for
  std::vector<Expr*> args;
  std::vector<Statement*> body;
  std::vector<Statement*> otherwise;
  MacroDefinition* macro = nullptr;
  bool makes_macros = false;  // kFor: something may remember the variables of one round
  // kFor: the one `if` that is the whole body, where its condition does not look at the round. Once
  // it leads to nothing, all rounds that are left do nothing.
  const Statement* guard = nullptr;
};

// Owns the tree. Immutable after parsing, so one tree serves any number of renderings at a time.
struct Tree {
  std::string source;  // normalised
  std::vector<Statement*> body;
  std::vector<std::string> names;  // variables, by number
  int32_t loop_name = -1;          // the number of "loop"

  std::deque<Expr> exprs;
  std::deque<Statement> statements;
  std::deque<MacroDefinition> macros;
  Arena constants;
};

}  // namespace markbase::tokenizer::jinja
