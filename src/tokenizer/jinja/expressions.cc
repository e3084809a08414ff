// The expressions of a template.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "tokenizer/jinja/evaluator.h"
#include "tokenizer/jinja/text.h"

namespace markbase::tokenizer::jinja {
namespace {

constexpr int64_t kValueBytes = 16;

std::string_view symbol(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    default:
      return "**";
  }
}

double as_double(const Value& value) {
  return value.is_integer() ? static_cast<double>(value.as_integer()) : value.real;
}

double float_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest == 0 ? std::copysign(0.0, b) : rest;
}

// base ** exponent, nothing on overflow.
std::optional<int64_t> integer_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return std::nullopt;
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return std::nullopt;
  }
  return result;
}

bool is_sequence(const Value& value) {
  return value.is_string() || value.is(Type::kList) || value.is(Type::kTuple);
}

}  // namespace

std::vector<int64_t> slice_indices(int64_t size, std::optional<int64_t> start,
                                   std::optional<int64_t> stop, int64_t step) {
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? size : size - 1;
  const auto clamp = [&](int64_t bound) {
    if (bound < 0) bound = bound < -size ? low : bound + size;
    return std::clamp(bound, low, high);
  };
  int64_t at = start ? clamp(*start) : (step > 0 ? low : high);
  const int64_t end = stop ? clamp(*stop) : (step > 0 ? high : low);
  std::vector<int64_t> indices;
  while (step > 0 ? at < end : at > end) {
    indices.push_back(at);
    // One more step could leave 64 bits; it leaves the sequence long before.
    if (step > size || step < -size) break;
    at += step;
  }
  return indices;
}

Value Evaluator::evaluate_name(const Expr& expr) {
  for (const Frame* frame = frame_; frame != nullptr; frame = frame->parent) {
    budget_.spend_steps(static_cast<int64_t>(frame->variables.size()) / kLooksPerStep);
    for (const auto& [name, value] : frame->variables) {
      if (name == expr.name) return value;
    }
  }
  const Value& value = globals_[static_cast<size_t>(expr.name)];
  return value.is(Type::kMissing) ? Value::undefined(&expr) : value;
}

Value Evaluator::evaluate(const Expr& expr) {
  if (expr.kind == ExprKind::kConst) return expr.constant;
  if (expr.kind == ExprKind::kName) return evaluate_name(expr);
  const DepthGuard guard(*this);
  if (!enter(expr.offset)) return {};
  switch (expr.kind) {
    case ExprKind::kList:
    case ExprKind::kTuple:
      return evaluate_list(expr);
    case ExprKind::kDict:
      return evaluate_dict(expr);
    case ExprKind::kAttribute: {
      const Value object = evaluate(*expr.args[0]);
      return failed() ? Value() : get_attribute(expr, object, expr.text->bytes);
    }
    case ExprKind::kItem: {
      const Value object = evaluate(*expr.args[0]);
      const Value key = evaluate(*expr.args[1]);
      return failed() ? Value() : get_item(expr, object, key);
    }
    case ExprKind::kSlice:
      return evaluate_slice(expr);
    case ExprKind::kCall:
      return evaluate_call(expr);
    case ExprKind::kFilter: {
      const Value input = evaluate(*expr.args[0]);
      return failed() ? Value() : evaluate_filter(expr, input);
    }
    case ExprKind::kTest:
      return evaluate_test(expr);
    case ExprKind::kNegative:
    case ExprKind::kPositive:
      return evaluate_sign(expr);
    case ExprKind::kNot:
      return Value::of(!is_true(evaluate(*expr.args[0])));
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      const Value left = evaluate(*expr.args[0]);
      if (failed() || is_true(left) == (expr.kind == ExprKind::kOr)) return left;
      return evaluate(*expr.args[1]);
    }
    case ExprKind::kIf:
      return evaluate_if(expr);
    case ExprKind::kCompare:
      return evaluate_compare(expr);
    case ExprKind::kBinary:
      return evaluate_binary(expr);
    default:
      return evaluate_concat(expr);
  }
}

Value Evaluator::evaluate_if(const Expr& expr) {
  const bool yes = is_true(evaluate(*expr.args[0]));
  if (failed()) return {};
  const Expr* chosen = yes ? expr.args[1] : expr.args[2];
  return chosen != nullptr ? evaluate(*chosen) : Value::undefined(&expr);
}

Value Evaluator::evaluate_list(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.args.size());
  for (const Expr* arg : expr.args) items.push_back(evaluate(*arg));
  if (failed() || !spend(expr, 0, static_cast<int64_t>(items.size() + 4) * kValueBytes)) return {};
  return arena_.list(std::move(items), expr.kind == ExprKind::kTuple ? Type::kTuple : Type::kList);
}

Value Evaluator::evaluate_dict(const Expr& expr) {
  Value dict = arena_.dict();
  for (size_t i = 0; i + 1 < expr.args.size(); i += 2) {
    const Value key = evaluate(*expr.args[i]);
    const Value value = evaluate(*expr.args[i + 1]);
    if (failed() || !spend(expr, 0, 4 * kValueBytes)) return {};
    if (!is_hashable(key)) return fail(expr, fmt::format("a {} cannot be a key", type_name(key)));
    if (!spend_lookup(expr, dict, key)) return {};
    dict.dict->set(key, value);
  }
  return dict;
}

Value Evaluator::evaluate_slice(const Expr& expr) {
  const Value object = evaluate(*expr.args[0]);
  std::optional<int64_t> bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expr.args[i + 1] == nullptr) continue;
    const Value bound = evaluate(*expr.args[i + 1]);
    if (failed()) return {};
    if (bound.is(Type::kNone)) continue;
    // Python has a TypeError here, of which Jinja makes an undefined value.
    if (!bound.is_integer()) return Value::undefined(&expr);
    bounds[i] = bound.as_integer();
  }
  if (failed()) return {};
  if (object.is_undefined()) return fail(expr, why_undefined(object));
  const int64_t step = bounds[2].value_or(1);
  if (step == 0) return fail(expr, "a slice cannot have the step 0");
  if (object.is(Type::kList) || object.is(Type::kTuple)) {
    const std::vector<Value>& items = object.list->items;
    const auto size = static_cast<int64_t>(items.size());
    if (!spend(expr, size / 8, size * kValueBytes)) return {};
    std::vector<Value> kept;
    for (const int64_t i : slice_indices(size, bounds[0], bounds[1], step))
      kept.push_back(items[static_cast<size_t>(i)]);
    return arena_.list(std::move(kept), object.type);
  }
  if (!object.is_string()) return Value::undefined(&expr);
  const std::string_view bytes = object.view();
  // Eight bytes for the place of each letter, and its number where it is taken.
  if (!spend(expr, static_cast<int64_t>(bytes.size() / 8),
             weight(*object.text) + static_cast<int64_t>(bytes.size()) * 8))
    return {};
  std::vector<size_t> starts;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if ((static_cast<uint8_t>(bytes[i]) & 0xC0) != 0x80) starts.push_back(i);
  }
  starts.push_back(bytes.size());
  Text out;
  for (const int64_t i :
       slice_indices(static_cast<int64_t>(starts.size()) - 1, bounds[0], bounds[1], step))
    append(out, *object.text, starts[static_cast<size_t>(i)], starts[static_cast<size_t>(i) + 1]);
  return arena_.string(std::move(out));
}

bool Evaluator::compare_with(const Expr& expr, Operator op, const Value& a, const Value& b) {
  const auto is_nan = [](const Value& v) { return v.is(Type::kFloat) && std::isnan(v.real); };
  switch (op) {
    case Operator::kEqual:
      return equal(expr, a, b);
    case Operator::kNotEqual:
      return !equal(expr, a, b);
    case Operator::kIn:
      return contains(expr, b, a);
    case Operator::kNotIn:
      return !contains(expr, b, a);
    default:
      break;
  }
  if ((is_nan(a) && b.is_number()) || (is_nan(b) && a.is_number())) return false;
  const int order_of = order(expr, a, b);
  if (op == Operator::kLess) return order_of < 0;
  if (op == Operator::kLessEqual) return order_of <= 0;
  if (op == Operator::kGreater) return order_of > 0;
  return order_of >= 0;
}

Value Evaluator::evaluate_compare(const Expr& expr) {
  Value left = evaluate(*expr.args[0]);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    const Value right = evaluate(*expr.args[i + 1]);
    if (failed()) return {};
    const bool holds = compare_with(expr, expr.operators[i], left, right);
    if (failed() || !holds) return Value::of(false);
    left = right;
  }
  return Value::of(true);
}

Value Evaluator::evaluate_concat(const Expr& expr) {
  Text text;
  for (const Expr* arg : expr.args) {
    const Value value = evaluate(*arg);
    if (failed()) return {};
    if (append_value(text, value, false, budget_)) continue;
    if (!spend(expr, 0)) return {};
    return fail(expr, fmt::format("a {} has no text", type_name(value)));
  }
  return arena_.string(std::move(text));
}

Value Evaluator::evaluate_sign(const Expr& expr) {
  const Value value = evaluate(*expr.args[0]);
  if (failed()) return {};
  const bool negative = expr.kind == ExprKind::kNegative;
  if (value.is(Type::kFloat)) return Value::of(negative ? -value.real : value.real);
  if (value.is_integer()) {
    const int64_t number = value.as_integer();
    if (negative && number == std::numeric_limits<int64_t>::min())
      return fail(expr, "a number beyond 64 bits");
    return Value::of(negative ? -number : number);
  }
  if (value.is_undefined()) return fail(expr, why_undefined(value));
  return fail(expr, fmt::format("a {} has no sign", type_name(value)));
}

Value Evaluator::evaluate_binary(const Expr& expr) {
  const Value a = evaluate(*expr.args[0]);
  const Value b = evaluate(*expr.args[1]);
  if (failed()) return {};
  return expr.operators[0] == Operator::kAdd ? add(expr, a, b)
                                             : arithmetic(expr, expr.operators[0], a, b);
}

Value Evaluator::add(const Expr& at, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    if (!spend(at, 0, weight(*a.text) + weight(*b.text))) return {};
    Text text;
    text.bytes.reserve(a.view().size() + b.view().size());
    append(text, *a.text);
    append(text, *b.text);
    return arena_.string(std::move(text));
  }
  if (a.type == b.type && (a.is(Type::kList) || a.is(Type::kTuple))) {
    const size_t size = a.list->items.size() + b.list->items.size();
    if (!spend(at, 0, static_cast<int64_t>(size) * kValueBytes)) return {};
    std::vector<Value> items = a.list->items;
    items.insert(items.end(), b.list->items.begin(), b.list->items.end());
    return arena_.list(std::move(items), a.type);
  }
  return arithmetic(at, Operator::kAdd, a, b);
}

Value Evaluator::repeat(const Expr& at, const Value& sequence, int64_t count) {
  // Copies of one run join.
  const auto weight_of = [](const Text& text) {
    return text.runs.size() > 1 ? weight(text) : static_cast<int64_t>(text.bytes.size());
  };
  const int64_t size = sequence.is_string()
                           ? weight_of(*sequence.text)
                           : static_cast<int64_t>(sequence.list->items.size()) * kValueBytes;
  int64_t total = 0;
  if (count < 0) count = 0;
  if (__builtin_mul_overflow(size + 1, count, &total) || !spend(at, count / 8, total)) {
    spend(at, INT64_MAX / 2);
    return {};
  }
  if (sequence.is_string()) {
    Text text;
    for (int64_t i = 0; i < count && size > 0; ++i) append(text, *sequence.text);
    return arena_.string(std::move(text));
  }
  std::vector<Value> items;
  const std::vector<Value>& part = sequence.list->items;
  for (int64_t i = 0; i < count && size > 0; ++i)
    items.insert(items.end(), part.begin(), part.end());
  return arena_.list(std::move(items), sequence.type);
}

Value Evaluator::integer_arithmetic(const Expr& at, Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kPower: {
      if (b < 0) return Value::of(std::pow(static_cast<double>(a), static_cast<double>(b)));
      const auto power = integer_power(a, b);
      overflow = !power;
      result = power.value_or(0);
      break;
    }
    default: {
      overflow = a == std::numeric_limits<int64_t>::min() && b == -1;
      if (overflow) break;
      const int64_t quotient = a / b;
      const int64_t rest = a % b;
      const bool rounds_down = rest != 0 && (rest < 0) != (b < 0);
      result = op == Operator::kFloorDivide ? quotient - (rounds_down ? 1 : 0)
                                            : rest + (rounds_down ? b : 0);
    }
  }
  return overflow ? fail(at, "a number beyond 64 bits") : Value::of(result);
}

Value Evaluator::arithmetic(const Expr& at, Operator op, const Value& a, const Value& b) {
  if (a.is_undefined() || b.is_undefined())
    return fail(at, why_undefined(a.is_undefined() ? a : b));
  if (op == Operator::kMultiply && is_sequence(a) && b.is_integer())
    return repeat(at, a, b.as_integer());
  if (op == Operator::kMultiply && is_sequence(b) && a.is_integer())
    return repeat(at, b, a.as_integer());
  const auto is_small = [](const Value& v) { return v.is_integer() || v.is(Type::kFloat); };
  if (!is_small(a) || !is_small(b)) {
    return fail(at, fmt::format("'{}' does not take a {} and a {}", symbol(op), type_name(a),
                                type_name(b)));
  }
  const bool divides =
      op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
  const double x = as_double(a);
  const double y = as_double(b);
  if ((divides && y == 0) || (op == Operator::kPower && x == 0 && y < 0))
    return fail(at, "division by zero");
  if (a.is_integer() && b.is_integer() && op != Operator::kDivide)
    return integer_arithmetic(at, op, a.as_integer(), b.as_integer());
  switch (op) {
    case Operator::kAdd:
      return Value::of(x + y);
    case Operator::kSubtract:
      return Value::of(x - y);
    case Operator::kMultiply:
      return Value::of(x * y);
    case Operator::kDivide:
      return Value::of(x / y);
    case Operator::kFloorDivide:
      return Value::of(std::floor((x - float_modulo(x, y)) / y + 0.5));
    case Operator::kModulo:
      return Value::of(float_modulo(x, y));
    default:
      return Value::of(std::pow(x, y));
  }
}

void Evaluator::gather(const Expr& call, Arguments& args) {
  args.positional.reserve(call.args.size());
  for (size_t i = 1; i < call.args.size() && !failed(); ++i)
    args.positional.push_back(evaluate(*call.args[i]));
  for (const Keyword& keyword : call.keywords) {
    if (failed()) return;
    args.named.emplace_back(keyword.name, evaluate(*keyword.value));
  }
  if (call.more_args != nullptr && !failed()) {
    const std::vector<Value>& more = items_of(call, evaluate(*call.more_args));
    if (!spend(call, static_cast<int64_t>(more.size()) / kLooksPerStep)) return;
    args.positional.insert(args.positional.end(), more.begin(), more.end());
  }
  if (call.more_keywords != nullptr && !failed()) {
    const Value more = evaluate(*call.more_keywords);
    if (failed()) return;
    if (!more.is(Type::kDict)) {
      fail(call, fmt::format("'**' takes a dict, got a {}", type_name(more)));
      return;
    }
    if (!spend(call, static_cast<int64_t>(more.dict->items.size()) / 4)) return;
    for (const auto& [key, value] : more.dict->items) {
      if (!key.is_string()) return void(fail(call, "'**' takes a dict with texts for keys"));
      args.named.emplace_back(key.view(), value);
    }
  }
}

Value Evaluator::evaluate_call(const Expr& expr) {
  const Value callee = evaluate(*expr.args[0]);
  if (failed()) return {};
  Arguments args;
  gather(expr, args);
  return failed() ? Value() : call(expr, callee, args);
}

Value Evaluator::evaluate_filter(const Expr& expr, const Value& input) {
  if (expr.callable == nullptr)
    return fail(expr, fmt::format("there is no filter '{}'", expr.text->bytes));
  if (!spend(expr, 1)) return {};
  Arguments args;
  args.positional.push_back(input);
  gather(expr, args);
  return failed() ? Value() : expr.callable(*this, expr, args);
}

Value Evaluator::filter_block(const Expr& expr, const Value& text) {
  const DepthGuard guard(*this);
  if (!enter(expr.offset)) return {};
  const Value input = expr.args[0] == nullptr ? text : filter_block(*expr.args[0], text);
  return failed() ? Value() : evaluate_filter(expr, input);
}

Value Evaluator::evaluate_test(const Expr& expr) {
  const Value input = evaluate(*expr.args[0]);
  if (failed()) return {};
  if (expr.callable == nullptr)
    return fail(expr, fmt::format("there is no test '{}'", expr.text->bytes));
  Arguments args;
  args.positional.push_back(input);
  gather(expr, args);
  return failed() ? Value() : expr.callable(*this, expr, args);
}

}  // namespace markbase::tokenizer::jinja
