// The tests: what stands after "is".
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/text.h"

namespace markbase::tokenizer::jinja {
namespace {

template <class Predicate>
Value test(Evaluator& eval, const Expr& at, const Arguments& args, Predicate predicate) {
  if (args.positional.size() != 1 || !args.named.empty())
    return eval.fail(at, fmt::format("the test '{}' takes no argument", at.text->bytes));
  return Value::of(predicate(args.positional[0]));
}

// The second operand of a test that has one.
const Value* operand(Evaluator& eval, const Expr& at, const Arguments& args) {
  if (args.positional.size() == 2 && args.named.empty()) return &args.positional[1];
  eval.fail(at, fmt::format("the test '{}' takes one argument", at.text->bytes));
  return nullptr;
}

#define MB_TEST(name, condition)                                                     \
  Value name(Evaluator& eval, const Expr& at, Arguments& args) {                     \
    return test(eval, at, args, [](const Value& v) -> bool { return (condition); }); \
  }

bool is_iterable(const Value& v) {
  switch (v.type) {
    case Type::kUndefined:
    case Type::kString:
    case Type::kList:
    case Type::kTuple:
    case Type::kView:
    case Type::kGenerator:
    case Type::kRange:
    case Type::kDict:
    case Type::kLoop:
      return true;
    default:
      return false;
  }
}
bool is_sequence(const Value& v) {
  return is_iterable(v) && !v.is(Type::kView) && !v.is(Type::kGenerator) && !v.is(Type::kLoop);
}

MB_TEST(test_defined, !v.is_undefined())
MB_TEST(test_undefined, v.is_undefined())
MB_TEST(test_none, v.is(Type::kNone))
MB_TEST(test_string, v.is_string())
MB_TEST(test_number, v.is_number())
MB_TEST(test_integer, v.is(Type::kInt) || v.is(Type::kBigInt))
MB_TEST(test_float, v.is(Type::kFloat))
MB_TEST(test_boolean, v.is(Type::kBool))
MB_TEST(test_true, v.is(Type::kBool) && v.boolean)
MB_TEST(test_false, v.is(Type::kBool) && !v.boolean)
MB_TEST(test_mapping, v.is(Type::kDict))
MB_TEST(test_iterable, is_iterable(v))
MB_TEST(test_sequence, is_sequence(v))
MB_TEST(test_callable, v.is_callable())

// str.islower(): some letter with case, and none of the other case.
bool has_only(const Text& text, Case wanted) {
  const Case other = wanted == Case::kLower ? Case::kUpper : Case::kLower;
  return to_case(text, wanted).bytes == text.bytes && to_case(text, other).bytes != text.bytes;
}
Value test_case(Evaluator& eval, const Expr& at, Arguments& args, Case wanted) {
  const Value text = eval.text_of(at, args.positional[0]);
  if (eval.failed() || !eval.spend(at, static_cast<int64_t>(text.view().size()))) return {};
  return Value::of(has_only(*text.text, wanted));
}
Value test_lower(Evaluator& eval, const Expr& at, Arguments& args) {
  return test_case(eval, at, args, Case::kLower);
}
Value test_upper(Evaluator& eval, const Expr& at, Arguments& args) {
  return test_case(eval, at, args, Case::kUpper);
}

// value % divisor as Jinja computes it for odd, even and divisibleby.
Value test_remainder(Evaluator& eval, const Expr& at, const Value& value, int64_t divisor,
                     int64_t wanted) {
  if (value.is(Type::kFloat)) {
    const double rest = std::fmod(value.real, static_cast<double>(divisor));
    return Value::of((rest < 0 ? rest + static_cast<double>(divisor) : rest) ==
                     static_cast<double>(wanted));
  }
  if (!value.is_integer())
    return eval.fail(at, fmt::format("the test '{}' takes a number, got a {}", at.text->bytes,
                                     type_name(value)));
  if (divisor == 0) return eval.fail(at, "division by zero");
  if (divisor == -1) return Value::of(wanted == 0);
  const int64_t rest = value.as_integer() % divisor;
  return Value::of((rest < 0 ? rest + divisor : rest) == wanted);
}
Value test_odd(Evaluator& eval, const Expr& at, Arguments& args) {
  return test_remainder(eval, at, args.positional[0], 2, 1);
}
Value test_even(Evaluator& eval, const Expr& at, Arguments& args) {
  return test_remainder(eval, at, args.positional[0], 2, 0);
}
Value test_divisible(Evaluator& eval, const Expr& at, Arguments& args) {
  const Value* divisor = operand(eval, at, args);
  if (divisor == nullptr) return {};
  if (!divisor->is_integer()) return eval.fail(at, "'divisibleby' takes an integer");
  return test_remainder(eval, at, args.positional[0], divisor->as_integer(), 0);
}

Value test_equal(Evaluator& eval, const Expr& at, Arguments& args) {
  const Value* other = operand(eval, at, args);
  return other != nullptr ? Value::of(eval.equal(at, args.positional[0], *other)) : Value();
}
Value test_not_equal(Evaluator& eval, const Expr& at, Arguments& args) {
  const Value* other = operand(eval, at, args);
  return other != nullptr ? Value::of(!eval.equal(at, args.positional[0], *other)) : Value();
}
template <class Holds>
Value test_order(Evaluator& eval, const Expr& at, const Arguments& args, Holds holds) {
  const Value* other = operand(eval, at, args);
  return other != nullptr ? Value::of(holds(eval.order(at, args.positional[0], *other))) : Value();
}
Value test_less(Evaluator& eval, const Expr& at, Arguments& args) {
  return test_order(eval, at, args, [](int order) { return order < 0; });
}
Value test_less_equal(Evaluator& eval, const Expr& at, Arguments& args) {
  return test_order(eval, at, args, [](int order) { return order <= 0; });
}
Value test_greater(Evaluator& eval, const Expr& at, Arguments& args) {
  return test_order(eval, at, args, [](int order) { return order > 0; });
}
Value test_greater_equal(Evaluator& eval, const Expr& at, Arguments& args) {
  return test_order(eval, at, args, [](int order) { return order >= 0; });
}
Value test_in(Evaluator& eval, const Expr& at, Arguments& args) {
  const Value* container = operand(eval, at, args);
  return container != nullptr ? Value::of(eval.contains(at, *container, args.positional[0]))
                              : Value();
}

// Python's "is". Small values have no identity of their own here: none, booleans and what is one
// object are the same.
Value test_same(Evaluator& eval, const Expr& at, Arguments& args) {
  const Value* other = operand(eval, at, args);
  if (other == nullptr) return {};
  const Value& value = args.positional[0];
  return Value::of(value.type == other->type && eval.equal(at, value, *other));
}

Value test_filter(Evaluator& eval, const Expr& at, Arguments& args) {
  const Value name = eval.text_of(at, args.positional[0]);
  return eval.failed() ? Value() : Value::of(find_filter(name.view()) != nullptr);
}
Value test_test(Evaluator& eval, const Expr& at, Arguments& args) {
  const Value name = eval.text_of(at, args.positional[0]);
  return eval.failed() ? Value() : Value::of(find_test(name.view()) != nullptr);
}

struct Entry {
  std::string_view name;
  Callable callable;
};
constexpr Entry kTests[] = {
    {"defined", test_defined},
    {"undefined", test_undefined},
    {"none", test_none},
    {"string", test_string},
    {"number", test_number},
    {"integer", test_integer},
    {"float", test_float},
    {"boolean", test_boolean},
    {"true", test_true},
    {"false", test_false},
    {"mapping", test_mapping},
    {"iterable", test_iterable},
    {"sequence", test_sequence},
    {"callable", test_callable},
    {"lower", test_lower},
    {"upper", test_upper},
    {"odd", test_odd},
    {"even", test_even},
    {"divisibleby", test_divisible},
    {"eq", test_equal},
    {"equalto", test_equal},
    {"==", test_equal},
    {"ne", test_not_equal},
    {"!=", test_not_equal},
    {"lt", test_less},
    {"lessthan", test_less},
    {"<", test_less},
    {"le", test_less_equal},
    {"<=", test_less_equal},
    {"gt", test_greater},
    {"greaterthan", test_greater},
    {">", test_greater},
    {"ge", test_greater_equal},
    {">=", test_greater_equal},
    {"in", test_in},
    {"sameas", test_same},
    {"filter", test_filter},
    {"test", test_test},
};

}  // namespace

Callable find_test(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [name](const Entry& entry) { return entry.name == name; });
  return found != std::end(kTests) ? found->callable : nullptr;
}

}  // namespace markbase::tokenizer::jinja
