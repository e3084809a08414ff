#include "tokenizer/jinja/evaluator.h"

#include <algorithm>

#include "base/error.h"
#include "tokenizer/jinja/lexer.h"
#include "tokenizer/jinja/text.h"

namespace markbase::tokenizer::jinja {
namespace {

// Expressions, statements and macros inside one another while running. Each level takes some
// hundred bytes of the thread's stack.
constexpr int kMaxDepth = 2500;
// What a variable or a list entry is charged, in bytes.
constexpr int64_t kValueBytes = 16;
constexpr int64_t kFrameBytes = 128;
constexpr std::string_view kTooMuch =
    "the template takes more time or memory than a chat template may";

}  // namespace

Evaluator::Evaluator(const Tree& tree, const Limits& limits)
    : tree_(tree), budget_(limits.max_steps, limits.max_bytes), max_arena_bytes_(limits.max_bytes) {
  globals_.reserve(tree.names.size());
  for (const std::string& name : tree.names) globals_.push_back(find_function(name));
}

void Evaluator::define(std::string_view name, const Value& value) {
  for (size_t i = 0; i < tree_.names.size(); ++i) {
    if (tree_.names[i] == name) globals_[i] = value;
  }
}

Result<Text> Evaluator::run() {
  Text out;
  out_ = &out;
  execute(tree_.body);
  out_ = nullptr;
  if (error_) return *std::move(error_);
  return out;
}

void Evaluator::set_error(uint32_t offset, ErrorCode code, const std::string& what) {
  if (error_) return;
  error_ = Error{code, fmt::format("{}: {}", place_of(tree_.source, offset), what)};
}

Value Evaluator::fail(const Expr& at, const std::string& what) {
  set_error(at.offset, ErrorCode::kUsage, what);
  return {};
}

Value Evaluator::refuse(const Expr& at, std::string_view what) {
  set_error(at.offset, ErrorCode::kUsage, fmt::format("the template says: {}", what));
  return {};
}

bool Evaluator::spend(const Expr& at, int64_t steps, int64_t bytes) {
  if (budget_.spend_steps(steps) && budget_.spend_bytes(bytes)) return !failed();
  set_error(at.offset, ErrorCode::kBadInput, std::string(kTooMuch));
  return false;
}

bool Evaluator::spend_lookup(const Expr& at, const Value& container, const Value& key) {
  if (container.is(Type::kNamespace))
    return spend(at, static_cast<int64_t>(container.names->items.size()) / kLooksPerStep);
  if (key.is_string()) return spend(at, static_cast<int64_t>(key.view().size()) / kBytesPerStep);
  // Only texts are found by their hash.
  return spend(at, static_cast<int64_t>(container.dict->items.size()) / kLooksPerStep);
}

// Whatever makes a value comes through here, so what it made is counted by the next expression.
bool Evaluator::enter(uint32_t offset) {
  if (depth_ > kMaxDepth)
    set_error(offset, ErrorCode::kBadInput, "the template calls itself, or nests, too deep");
  if (arena_.bytes() > max_arena_bytes_)
    set_error(offset, ErrorCode::kBadInput, std::string(kTooMuch));
  return !failed();
}

Frame* Evaluator::new_frame(Frame* parent) {
  budget_.spend_bytes(kFrameBytes);
  Frame& frame = frames_.emplace_back();
  frame.parent = parent;
  return &frame;
}

Value Evaluator::new_macro(const MacroDefinition& definition) {
  budget_.spend_bytes(kFrameBytes);
  Value value = Value::of(Type::kMacro);
  value.macro = &macros_.emplace_back(Macro{&definition, frame_});
  return value;
}

void Evaluator::set_variable(int32_t name, const Value& value) {
  if (frame_ == nullptr) {
    globals_[static_cast<size_t>(name)] = value;
    return;
  }
  auto& variables = frame_->variables;
  budget_.spend_steps(static_cast<int64_t>(variables.size()) / kLooksPerStep);
  for (auto& [known, old] : variables) {
    if (known == name) {
      old = value;
      return;
    }
  }
  // A vector that is full takes twice its size.
  if (variables.size() == variables.capacity())
    budget_.spend_bytes(static_cast<int64_t>((variables.size() + 1) * sizeof(variables[0])));
  variables.emplace_back(name, value);
}

void Evaluator::assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::kName) return set_variable(target.name, value);
  if (target.kind == ExprKind::kAttribute) {
    const Value object = evaluate(*target.args[0]);
    if (failed()) return;
    if (!object.is(Type::kNamespace)) {
      fail(target, "only a namespace has attributes that can be set");
    } else if (target.text->bytes.starts_with('_')) {
      fail(target, fmt::format("'{}': an attribute must not begin with '_'", target.text->bytes));
    } else if (!spend_lookup(target, object, {})) {
      return;
    } else if (Value* place = object.names->find(target.text->bytes)) {
      *place = value;
    } else if (spend(target, 1, kValueBytes)) {
      object.names->items.emplace_back(target.text, value);
    }
    return;
  }
  const std::vector<Value>& items = items_of(target, value);
  if (failed()) return;
  if (items.size() != target.args.size()) {
    fail(target,
         fmt::format("expected {} values to unpack, got {}", target.args.size(), items.size()));
    return;
  }
  if (!spend(target, static_cast<int64_t>(items.size()) / kLooksPerStep)) return;
  for (size_t i = 0; i < items.size() && !failed(); ++i) assign(*target.args[i], items[i]);
}

Evaluator::Flow Evaluator::execute(const std::vector<Statement*>& body) {
  for (const Statement* statement : body) {
    const Flow flow = execute(*statement);
    if (flow != Flow::kNext || failed()) return flow;
  }
  return Flow::kNext;
}

Evaluator::Flow Evaluator::execute(const Statement& s) {
  const DepthGuard guard(*this);
  if (!enter(s.offset)) return Flow::kNext;
  if (!budget_.spend_steps(s.cost) || budget_.is_spent()) {
    Expr at;
    at.offset = s.offset;
    spend(at, 0);
    return Flow::kNext;
  }
  switch (s.kind) {
    case StatementKind::kText:
      if (budget_.spend_bytes(static_cast<int64_t>(s.text.view().size())))
        append(*out_, *s.text.text);
      break;
    case StatementKind::kPrint:
      print(s);
      break;
    case StatementKind::kIf: {
      const bool yes = is_true(evaluate(*s.expr));
      if (failed()) break;
      return execute(yes ? s.body : s.otherwise);
    }
    case StatementKind::kFor:
      return run_for(s);
    case StatementKind::kSet:
    case StatementKind::kSetBlock:
      run_set(s);
      break;
    case StatementKind::kMacro:
      set_variable(s.target->name, new_macro(*s.macro));
      break;
    case StatementKind::kCallBlock:
      run_call_block(s);
      break;
    case StatementKind::kFilterBlock: {
      const Value text = captured(s.body);
      const Value filtered = filter_block(*s.expr, text);
      if (!failed()) append_value(*out_, filtered, false, budget_);
      break;
    }
    case StatementKind::kWith:
      run_with(s);
      break;
    case StatementKind::kScope:
      return execute(s.body);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void Evaluator::print(const Statement& s) {
  const Value value = evaluate(*s.expr);
  if (failed() || append_value(*out_, value, false, budget_)) return;
  if (!spend(*s.expr, 0)) return;
  fail(*s.expr, fmt::format("a {} cannot be printed, or is nested too deep", type_name(value)));
}

const std::vector<Value>& Evaluator::filtered_items(const Statement& s) {
  const std::vector<Value>& all = items_of(*s.expr, evaluate(*s.expr));
  if (s.condition == nullptr || failed()) return all;
  std::vector<Value> kept;
  Frame* outer = frame_;
  frame_ = new_frame(outer);
  for (const Value& item : all) {
    if (!spend(*s.condition, s.cost)) break;
    frame_->variables.clear();
    assign(*s.target, item);
    if (is_true(evaluate(*s.condition)) && !failed()) kept.push_back(item);
  }
  frame_ = outer;
  return arena_.list(std::move(kept)).list->items;
}

// Over the numbers of a range, if the value is one, without making a list of them.
bool Evaluator::begin_loop(const Statement& s, Loop& loop) {
  if (s.condition != nullptr) {
    loop.items = &filtered_items(s);
    return !failed();
  }
  const Value value = evaluate(*s.expr);
  if (value.is(Type::kRange)) {
    loop.range = value.range;
  } else {
    loop.items = &items_of(*s.expr, value);
  }
  return !failed();
}

Evaluator::Flow Evaluator::run_for(const Statement& s) {
  Value value = Value::of(Type::kLoop);
  value.loop = arena_.loop();
  Loop& loop = *value.loop;
  if (!begin_loop(s, loop)) return Flow::kNext;
  const size_t size = loop.size();
  Frame* outer = frame_;
  frame_ = new_frame(outer);
  Flow flow = Flow::kNext;
  if (size == 0) flow = execute(s.otherwise);
  for (size_t i = 0; i < size && !failed(); ++i) {
    if (!spend(*s.expr, 1)) break;
    if (s.makes_macros && i > 0) frame_ = new_frame(outer);
    frame_->variables.clear();
    loop.index = i;
    frame_->variables.emplace_back(tree_.loop_name, value);
    assign(*s.target, loop.item(i));
    if (failed()) break;
    if (s.guard != nullptr && !leads_on(*s.guard)) {
      loop.index = size - 1;
      break;
    }
    if (execute(s.body) == Flow::kBreak) break;
  }
  frame_ = outer;
  return size == 0 ? flow : Flow::kNext;
}

// Whether an `if` has something to do now.
bool Evaluator::leads_on(const Statement& guard) {
  const bool yes = is_true(evaluate(*guard.expr));
  return !(yes ? guard.body : guard.otherwise).empty();
}

Value Evaluator::captured(const std::vector<Statement*>& body) {
  Text text;
  Text* outer_out = std::exchange(out_, &text);
  Frame* outer = frame_;
  frame_ = new_frame(outer);
  execute(body);
  frame_ = outer;
  out_ = outer_out;
  return arena_.string(std::move(text));
}

void Evaluator::run_set(const Statement& s) {
  Value value;
  if (s.kind == StatementKind::kSet) {
    value = evaluate(*s.expr);
  } else {
    value = captured(s.body);
    if (s.expr != nullptr && !failed()) value = filter_block(*s.expr, value);
  }
  if (!failed()) assign(*s.target, value);
}

void Evaluator::run_with(const Statement& s) {
  Frame* outer = frame_;
  Frame* inner = new_frame(outer);
  for (size_t i = 0; i + 1 < s.args.size() && !failed(); i += 2) {
    const Value value = evaluate(*s.args[i + 1]);
    frame_ = inner;
    if (!failed()) assign(*s.args[i], value);
    frame_ = outer;
  }
  frame_ = inner;
  if (!failed()) execute(s.body);
  frame_ = outer;
}

void Evaluator::run_call_block(const Statement& s) {
  const Value callee = evaluate(*s.expr->args[0]);
  Arguments args;
  gather(*s.expr, args);
  args.named.emplace_back("caller", new_macro(*s.macro));
  const Value result = failed() ? Value() : call(*s.expr, callee, args);
  if (!failed()) append_value(*out_, result, false, budget_);
}

Value Evaluator::text_of(const Expr& at, const Value& value) {
  if (value.is_string()) return value;
  Text text;
  if (!append_value(text, value, false, budget_) && spend(at, 0))
    return fail(at, fmt::format("a {} has no text", type_name(value)));
  return arena_.string(std::move(text));
}

bool Evaluator::equal(const Expr& at, const Value& a, const Value& b) {
  const bool same = equals(a, b, budget_);
  spend(at, 0);
  return same;
}

int Evaluator::order(const Expr& at, const Value& a, const Value& b) {
  const auto order = compare(a, b, budget_);
  if (order) return *order;
  if (spend(at, 0)) {
    fail(at, a.is_undefined() || b.is_undefined()
                 ? why_undefined(a.is_undefined() ? a : b)
                 : fmt::format("a {} and a {} have no order", type_name(a), type_name(b)));
  }
  return 0;
}

std::string Evaluator::why_undefined(const Value& value) {
  const Expr* source = value.source;
  if (source == nullptr) return "a value is undefined";
  if (source->kind == ExprKind::kName) return fmt::format("'{}' is undefined", source->text->bytes);
  const Expr* key = source->kind == ExprKind::kItem ? source->args[1] : nullptr;
  if (source->kind == ExprKind::kAttribute)
    return fmt::format("there is no '{}'", source->text->bytes);
  if (key != nullptr && key->kind == ExprKind::kConst && key->constant.is_string())
    return fmt::format("there is no '{}'", key->constant.view());
  return "a value is undefined";
}

const std::vector<Value>& Evaluator::items_of(const Expr& at, const Value& value) {
  static const std::vector<Value> none;
  std::vector<Value> items;
  switch (value.type) {
    case Type::kList:
    case Type::kTuple:
    case Type::kView:
      return value.list->items;
    case Type::kGenerator:
      items.swap(value.list->items);  // it is walked once
      break;
    case Type::kMissing:
    case Type::kUndefined:
      return none;
    case Type::kString: {
      const std::string_view bytes = value.view();
      const auto size = static_cast<int64_t>(bytes.size());
      constexpr int64_t kLetterBytes = 112;  // a text of its own
      if (!spend(at, size * 2, size * kLetterBytes)) return none;
      for (size_t begin = 0; begin < bytes.size();) {
        const size_t end = begin + offset_of(bytes.substr(begin), 1);
        items.push_back(arena_.string(sub_text(*value.text, begin, end)));
        begin = end;
      }
      break;
    }
    case Type::kRange: {
      const Range& range = *value.range;
      const int64_t size = range.size();
      if (size > INT32_MAX || !spend(at, size, size * kValueBytes)) {
        spend(at, INT32_MAX);
        return none;
      }
      for (int64_t i = 0; i < size; ++i) items.push_back(Value::of(range.start + i * range.step));
      break;
    }
    case Type::kDict:
      if (!spend(at, 1, static_cast<int64_t>(value.dict->items.size()) * kValueBytes)) return none;
      for (const auto& [key, entry] : value.dict->items) items.push_back(key);
      break;
    default:
      fail(at, fmt::format("a {} cannot be walked over", type_name(value)));
      return none;
  }
  return arena_.list(std::move(items)).list->items;
}

bool Evaluator::contains(const Expr& at, const Value& container, const Value& value) {
  if (container.is_string()) {
    if (!value.is_string()) {
      fail(at, fmt::format("'in' a text takes a text, got a {}", type_name(value)));
      return false;
    }
    spend(at, static_cast<int64_t>(container.view().size() / 64));
    return find_bytes(container.view(), value.view()) != std::string_view::npos;
  }
  if (container.is(Type::kDict)) {
    if (!spend_lookup(at, container, value)) return false;
    if (value.is_string()) return container.dict->find(value.view()) != nullptr;
    for (const auto& [key, entry] : container.dict->items) {
      if (same_key(key, value)) return true;
    }
    return false;
  }
  const std::vector<Value>& items = items_of(at, container);
  for (const Value& item : items) {
    if (equal(at, item, value) && !failed()) return true;
    if (failed()) break;
  }
  return false;
}

Value Evaluator::get_attribute(const Expr& at, const Value& object, std::string_view name) {
  if (object.is_undefined()) return fail(at, why_undefined(object));
  if (object.is(Type::kNamespace)) {
    if (!spend_lookup(at, object, {})) return {};
    const Value* found = object.names->find(name);
    return found != nullptr ? *found : Value::undefined(&at);
  }
  const Value method = find_method(*this, object, name);
  if (!method.is(Type::kMissing)) return method;
  if (object.is(Type::kDict)) {
    if (!spend(at, static_cast<int64_t>(name.size()) / kBytesPerStep)) return {};
    if (const Value* found = object.dict->find(name)) return *found;
  }
  return Value::undefined(&at);
}

Value Evaluator::get_item(const Expr& at, const Value& object, const Value& key) {
  if (object.is_undefined()) return fail(at, why_undefined(object));
  const auto place = [&](int64_t size) {
    const int64_t index = key.as_integer();
    return index < 0 ? index + size : index;
  };
  if (object.is(Type::kDict)) {
    if (!spend_lookup(at, object, key)) return {};
    if (key.is_string()) {
      if (const Value* found = object.dict->find(key.view())) return *found;
    } else {
      for (const auto& [name, value] : object.dict->items) {
        if (same_key(name, key)) return value;
      }
    }
  } else if (key.is_integer()) {
    if (object.is(Type::kList) || object.is(Type::kTuple)) {
      const std::vector<Value>& items = object.list->items;
      const int64_t index = place(static_cast<int64_t>(items.size()));
      if (index >= 0 && index < static_cast<int64_t>(items.size()))
        return items[static_cast<size_t>(index)];
    } else if (object.is(Type::kRange)) {
      const int64_t index = place(object.range->size());
      if (index >= 0 && index < object.range->size())
        return Value::of(object.range->start + index * object.range->step);
    } else if (object.is_string()) {
      const std::string_view bytes = object.view();
      if (!spend(at, static_cast<int64_t>(bytes.size() / 64))) return {};
      const int64_t size = length(bytes);
      const int64_t index = place(size);
      if (index >= 0 && index < size) {
        const size_t begin = offset_of(bytes, index);
        return arena_.string(
            sub_text(*object.text, begin, begin + offset_of(bytes.substr(begin), 1)));
      }
    }
  }
  if (key.is_string()) {
    if (object.is(Type::kNamespace)) return get_attribute(at, object, key.view());
    const Value method = find_method(*this, object, key.view());
    if (!method.is(Type::kMissing)) return method;
  }
  return Value::undefined(&at);
}

Value Evaluator::call(const Expr& at, const Value& callee, Arguments& args) {
  const DepthGuard guard(*this);
  if (!enter(at.offset) || !spend(at, 1)) return {};
  switch (callee.type) {
    case Type::kMacro:
      return call_macro(at, *callee.macro, args);
    case Type::kFunction:
      return call_function(*this, at, callee.function, args);
    case Type::kMethod:
      return call_method(*this, at, *callee.method, args);
    case Type::kMissing:
    case Type::kUndefined:
      return fail(at, why_undefined(callee));
    default:
      return fail(at, fmt::format("a {} cannot be called", type_name(callee)));
  }
}

bool Evaluator::bind_macro(const Expr& at, const Macro& macro, Arguments& args,
                           std::vector<Value>& bound) {
  const MacroDefinition& definition = *macro.definition;
  const size_t count = definition.parameters.size();
  const auto looks = static_cast<int64_t>(args.named.size() * count);
  if (!spend(at, definition.cost + looks / kLooksPerStep)) return false;
  bound.assign(count, Value::missing());
  std::vector<Value> more;
  for (size_t i = 0; i < args.positional.size(); ++i) {
    if (i < count) {
      bound[i] = args.positional[i];
    } else {
      more.push_back(args.positional[i]);
    }
  }
  Value others = arena_.dict();
  for (const auto& [name, value] : args.named) {
    const auto& names = definition.parameter_names;
    const size_t i =
        static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (i < count && bound[i].is(Type::kMissing)) {
      bound[i] = value;
    } else if (i == count && name == "caller" && definition.caller >= 0) {
      set_variable(definition.caller, value);
    } else if (i == count && definition.kwargs >= 0) {
      others.dict->set(string(name), value);
    } else {
      fail(at, fmt::format("the macro '{}' takes no {} '{}'", definition.name,
                           i < count ? "second" : "argument", name));
      return false;
    }
  }
  if (!more.empty() && definition.varargs < 0) {
    fail(at, fmt::format("the macro '{}' takes at most {} arguments, got {}", definition.name,
                         count, args.positional.size()));
    return false;
  }
  if (definition.varargs >= 0)
    set_variable(definition.varargs, arena_.list(std::move(more), Type::kTuple));
  if (definition.kwargs >= 0) set_variable(definition.kwargs, others);
  return true;
}

Value Evaluator::call_macro(const Expr& at, const Macro& macro, Arguments& args) {
  const MacroDefinition& definition = *macro.definition;
  Text text;
  Text* outer_out = std::exchange(out_, &text);
  Frame* outer = frame_;
  frame_ = new_frame(macro.frame);
  std::vector<Value> bound;
  if (bind_macro(at, macro, args, bound)) {
    const size_t first_default = bound.size() - definition.defaults.size();
    for (size_t i = 0; i < bound.size(); ++i) {
      Value value = bound[i];
      if (value.is(Type::kMissing))
        value = i >= first_default ? evaluate(*definition.defaults[i - first_default]) : Value();
      set_variable(definition.parameters[i], value);
    }
    execute(definition.body);
  }
  frame_ = outer;
  out_ = outer_out;
  return arena_.string(std::move(text));
}

}  // namespace markbase::tokenizer::jinja
