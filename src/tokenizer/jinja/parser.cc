#include "tokenizer/jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <unordered_map>

#include "base/error.h"
#include "tokenizer/jinja/builtins.h"
#include "tokenizer/jinja/lexer.h"

namespace markbase::tokenizer::jinja {
namespace {

// Brackets and statements inside one another.
constexpr int kMaxNesting = 150;
// A step is charged for so many nodes of an expression.
constexpr int32_t kNodesPerStep = 4;

using Statements = std::vector<Statement*>;

// After the first error every token is the end, so all loops stop by themselves.
class Parser {
 public:
  Parser(Tree& tree, std::vector<Token> tokens) : tree_(tree), tokens_(std::move(tokens)) {}

  Result<void> run() {
    tree_.loop_name = name_number("loop");
    tree_.body = parse_body({});
    if (!error_.empty()) return base::bad_input("{}", error_);
    return {};
  }

 private:
  // Tokens.
  const Token& now() const { return tokens_[position_]; }
  const Token& peek() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  Token next() {
    Token token = now();
    if (position_ + 1 < tokens_.size()) ++position_;
    return token;
  }
  static bool is(const Token& token, TokenType type, std::string_view text) {
    return token.type == type && token.text == text;
  }
  bool is_op(std::string_view op) const { return is(now(), TokenType::kOperator, op); }
  bool is_word(std::string_view word) const { return is(now(), TokenType::kName, word); }
  bool take_op(std::string_view op) { return is_op(op) && (next(), true); }
  bool take_word(std::string_view word) { return is_word(word) && (next(), true); }
  void expect_op(std::string_view op) {
    if (!take_op(op)) fail(fmt::format("expected '{}', got {}", op, shown(now())));
  }
  std::string expect_name() {
    if (now().type == TokenType::kName) return next().text;
    fail(fmt::format("expected a name, got {}", shown(now())));
    return {};
  }
  void expect(TokenType type, std::string_view what) {
    if (now().type == type) {
      next();
    } else {
      fail(fmt::format("expected {}, got {}", what, shown(now())));
    }
  }
  static std::string shown(const Token& token) {
    switch (token.type) {
      case TokenType::kEnd:
        return "the end of the template";
      case TokenType::kData:
        return "text";
      case TokenType::kVariableBegin:
        return "'{{'";
      case TokenType::kVariableEnd:
        return "'}}'";
      case TokenType::kBlockBegin:
        return "'{%'";
      case TokenType::kBlockEnd:
        return "'%}'";
      case TokenType::kString:
        return "a text";
      default:
        return fmt::format("'{}'", token.text);
    }
  }
  void fail(const std::string& what) { fail_at(now().offset, what); }
  void fail_at(size_t offset, const std::string& what) {
    if (!error_.empty()) return;
    error_ = fmt::format("{}: {}", place_of(tree_.source, offset), what);
    position_ = tokens_.size() - 1;
  }
  bool failed() const { return !error_.empty(); }

  // Nodes.
  Expr* make(ExprKind kind, size_t offset) {
    Expr& expr = tree_.exprs.emplace_back();
    expr.kind = kind;
    expr.offset = static_cast<uint32_t>(offset);
    return &expr;
  }
  Expr* make(ExprKind kind, size_t offset, std::vector<Expr*> args) {
    Expr* expr = make(kind, offset);
    expr->args = std::move(args);
    return expr;
  }
  Expr* constant(const Value& value, size_t offset) {
    Expr* expr = make(ExprKind::kConst, offset);
    expr->constant = value;
    return expr;
  }
  const Text* word(std::string_view text) {
    return tree_.constants.string(text, Origin::kTemplate).text;
  }
  int32_t name_number(const std::string& name) {
    const auto [place, is_new] =
        numbers_.try_emplace(name, static_cast<int32_t>(tree_.names.size()));
    if (is_new) tree_.names.push_back(name);
    return place->second;
  }
  Expr* name_expr(const Token& token) {
    Expr* expr = make(ExprKind::kName, token.offset);
    expr->name = name_number(token.text);
    expr->text = word(token.text);
    if (!macros_.empty()) {
      MacroDefinition& macro = *macros_.back();
      if (token.text == "varargs") macro.varargs = expr->name;
      if (token.text == "kwargs") macro.kwargs = expr->name;
      if (token.text == "caller") macro.caller = expr->name;
    }
    return expr;
  }

  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting)
        parser_.fail(fmt::format("nested deeper than {} levels", kMaxNesting));
    }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ~Nesting() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  // Statements. `ends` are the words that end the body; the ending word is left to be read.
  Statements parse_body(std::initializer_list<std::string_view> ends) {
    const Nesting nesting(*this);
    const size_t begin = now().offset;
    Statements body;
    while (now().type != TokenType::kEnd) {
      const Token token = next();
      if (token.type == TokenType::kData) {
        Statement* text = statement(StatementKind::kText, token);
        text->text = tree_.constants.string(token.text, Origin::kTemplate);
        body.push_back(text);
      } else if (token.type == TokenType::kVariableBegin) {
        body.push_back(parse_print(token));
      } else if (token.type == TokenType::kBlockBegin) {
        for (const std::string_view end : ends) {
          if (is_word(end)) return body;
        }
        if (Statement* parsed = parse_statement()) body.push_back(parsed);
        expect(TokenType::kBlockEnd, "'%}'");
      }
    }
    if (ends.size() > 0)
      fail_at(begin, fmt::format("expected {{% {} %}}, got the end", *(ends.end() - 1)));
    return body;
  }
  // The rest of the opening tag, the body, and the closing word.
  Statements parse_block(std::initializer_list<std::string_view> ends) {
    take_op(":");
    expect(TokenType::kBlockEnd, "'%}'");
    return parse_body(ends);
  }
  Statements parse_whole_block(std::string_view end) {
    Statements body = parse_block({end});
    next();
    return body;
  }

  Statement* statement(StatementKind kind, const Token& token) {
    Statement& made = tree_.statements.emplace_back();
    made.kind = kind;
    made.offset = token.offset;
    return &made;
  }
  static int32_t steps_of(size_t num_nodes) {
    return 1 + static_cast<int32_t>(num_nodes) / kNodesPerStep;
  }
  // Charges the statement for the nodes made since `first`.
  void charge(Statement* made, size_t first) { made->cost = steps_of(tree_.exprs.size() - first); }

  Statement* parse_print(const Token& token) {
    Statement* print = statement(StatementKind::kPrint, token);
    const size_t first = tree_.exprs.size();
    print->expr = parse_tuple(true);
    charge(print, first);
    expect(TokenType::kVariableEnd, "'}}'");
    return print;
  }

  Statement* parse_statement() {
    const Token token = next();
    if (token.type == TokenType::kName) {
      if (token.text == "if") return parse_if(token);
      if (token.text == "for") return parse_for(token);
      if (token.text == "set") return parse_set(token);
      if (token.text == "macro") return parse_macro(token);
      if (token.text == "call") return parse_call_block(token);
      if (token.text == "filter") return parse_filter_block(token);
      if (token.text == "with") return parse_with(token);
      if (token.text == "generation") return parse_generation(token);
      if (token.text == "break" || token.text == "continue") return parse_jump(token);
    }
    fail_at(token.offset,
            fmt::format("expected a statement (if, for, set, macro, call, filter, with, break, "
                        "continue, generation), got {}",
                        shown(token)));
    return nullptr;
  }

  Statement* parse_if(const Token& token) {
    const Nesting nesting(*this);
    Statement* made = statement(StatementKind::kIf, token);
    const size_t first = tree_.exprs.size();
    made->expr = parse_tuple(false);
    charge(made, first);
    made->body = parse_block({"elif", "else", "endif"});
    const Token end = next();
    if (end.text == "elif") {
      made->otherwise.push_back(parse_if(end));
    } else if (end.text == "else") {
      made->otherwise = parse_whole_block("endif");
    }
    return made;
  }

  Statement* parse_for(const Token& token) {
    Statement* made = statement(StatementKind::kFor, token);
    const size_t first = tree_.exprs.size();
    made->target = parse_target(false);
    if (!take_word("in")) fail(fmt::format("expected 'in', got {}", shown(now())));
    made->expr = parse_tuple(false);
    if (take_word("if")) made->condition = parse_expression();
    charge(made, first);
    if (is_word("recursive")) fail("recursive loops are not supported");
    const size_t macros_before = num_closures_;
    ++num_loops_;
    made->body = parse_block({"endfor", "else"});
    --num_loops_;
    made->makes_macros = num_closures_ != macros_before;
    if (!failed()) made->guard = guard_of(*made);
    if (next().text == "else") made->otherwise = parse_whole_block("endfor");
    return made;
  }

  // Whether an expression gives the same each time until some statement runs: nothing in it is
  // called, walked over or changed, and it does not look at the variable `target` or at "loop".
  // Operators in a row nest without brackets, as deep as the source is long: beyond kMaxNesting the
  // answer is no.
  static bool is_steady(const Expr& expr, const Tree& tree, int32_t target, int depth = 0) {
    if (depth > kMaxNesting) return false;
    switch (expr.kind) {
      case ExprKind::kConst:
        return true;
      case ExprKind::kName:
        return expr.name != target && tree.names[static_cast<size_t>(expr.name)] != "loop";
      case ExprKind::kCompare:
        if (std::any_of(expr.operators.begin(), expr.operators.end(), [](Operator op) {
              return op != Operator::kEqual && op != Operator::kNotEqual;
            })) {
          return false;
        }
        [[fallthrough]];
      case ExprKind::kAttribute:
      case ExprKind::kNot:
      case ExprKind::kAnd:
      case ExprKind::kOr:
        return std::all_of(expr.args.begin(), expr.args.end(), [&](const Expr* arg) {
          return is_steady(*arg, tree, target, depth + 1);
        });
      default:
        return false;
    }
  }
  const Statement* guard_of(const Statement& loop) const {
    const bool is_one_if = loop.body.size() == 1 && loop.body[0]->kind == StatementKind::kIf;
    if (!is_one_if || loop.makes_macros || loop.target->kind != ExprKind::kName) return nullptr;
    return is_steady(*loop.body[0]->expr, tree_, loop.target->name) ? loop.body[0] : nullptr;
  }

  Statement* parse_jump(const Token& token) {
    if (num_loops_ == 0) fail_at(token.offset, fmt::format("'{}' outside of a loop", token.text));
    return statement(token.text == "break" ? StatementKind::kBreak : StatementKind::kContinue,
                     token);
  }

  Statement* parse_set(const Token& token) {
    Statement* made = statement(StatementKind::kSet, token);
    const size_t first = tree_.exprs.size();
    made->target = parse_target(true);
    if (take_op("=")) {
      made->expr = parse_tuple(true);
      charge(made, first);
      return made;
    }
    made->kind = StatementKind::kSetBlock;
    while (take_op("|")) made->expr = parse_filter(made->expr);
    charge(made, first);
    made->body = parse_whole_block("endset");
    return made;
  }

  Expr* parse_target(bool with_namespace) {
    Expr* target = parse_one_target(with_namespace);
    if (!is_op(",")) return target;
    Expr* tuple = make(ExprKind::kTuple, target->offset, {target});
    while (take_op(",")) {
      if (now().type != TokenType::kName || is_word("in")) break;
      tuple->args.push_back(parse_one_target(with_namespace));
    }
    return tuple;
  }
  Expr* parse_one_target(bool with_namespace) {
    if (take_op("(")) {
      Expr* inner = parse_target(with_namespace);
      expect_op(")");
      return inner;
    }
    const Token token = now();
    const std::string name = expect_name();
    if (is_constant(name)) fail_at(token.offset, fmt::format("cannot assign to '{}'", name));
    Expr* target = name_expr(token);
    if (!with_namespace || !take_op(".")) return target;
    Expr* attribute = make(ExprKind::kAttribute, token.offset, {target});
    attribute->text = word(expect_name());
    return attribute;
  }
  static bool is_constant(std::string_view name) {
    return name == "true" || name == "True" || name == "false" || name == "False" ||
           name == "none" || name == "None";
  }

  // "(a, b=1)" and the body's words.
  void parse_signature(MacroDefinition& macro) {
    const size_t first = tree_.exprs.size();
    while (!is_op(")") && !failed()) {
      if (!macro.parameters.empty()) expect_op(",");
      const std::string name = expect_name();
      macro.parameters.push_back(name_number(name));
      macro.parameter_names.push_back(word(name)->bytes);
      if (take_op("=")) {
        macro.defaults.push_back(parse_expression());
      } else if (!macro.defaults.empty()) {
        fail("a parameter without a default follows one with a default");
      }
    }
    macro.cost =
        static_cast<int32_t>(macro.parameters.size()) + steps_of(tree_.exprs.size() - first);
    expect_op(")");
  }

  Statement* parse_macro(const Token& token) {
    Statement* made = statement(StatementKind::kMacro, token);
    ++num_closures_;
    MacroDefinition& macro = tree_.macros.emplace_back();
    made->macro = &macro;
    Token name = now();
    name.text = expect_name();
    made->target = name_expr(name);
    macro.name = made->target->text->bytes;
    expect_op("(");
    macros_.push_back(&macro);
    parse_signature(macro);
    const int loops = std::exchange(num_loops_, 0);
    macro.body = parse_whole_block("endmacro");
    num_loops_ = loops;
    macros_.pop_back();
    return made;
  }

  Statement* parse_call_block(const Token& token) {
    Statement* made = statement(StatementKind::kCallBlock, token);
    ++num_closures_;
    MacroDefinition& macro = tree_.macros.emplace_back();
    made->macro = &macro;
    macro.name = "caller";
    const size_t first = tree_.exprs.size();
    if (take_op("(")) parse_signature(macro);
    made->expr = parse_expression();
    if (!failed() && made->expr->kind != ExprKind::kCall)
      fail_at(made->expr->offset, "expected a call");
    charge(made, first);
    macros_.push_back(&macro);
    const int loops = std::exchange(num_loops_, 0);
    macro.body = parse_whole_block("endcall");
    num_loops_ = loops;
    macros_.pop_back();
    return made;
  }

  Statement* parse_filter_block(const Token& token) {
    Statement* made = statement(StatementKind::kFilterBlock, token);
    const size_t first = tree_.exprs.size();
    made->expr = parse_filter(nullptr);
    while (take_op("|")) made->expr = parse_filter(made->expr);
    charge(made, first);
    made->body = parse_whole_block("endfilter");
    return made;
  }

  Statement* parse_with(const Token& token) {
    Statement* made = statement(StatementKind::kWith, token);
    const size_t first = tree_.exprs.size();
    while (now().type != TokenType::kBlockEnd && !failed()) {
      if (!made->args.empty()) expect_op(",");
      made->args.push_back(parse_target(false));
      expect_op("=");
      made->args.push_back(parse_expression());
    }
    charge(made, first);
    made->body = parse_whole_block("endwith");
    return made;
  }

  // transformers' mark around what the model said; the text inside is printed as it is.
  Statement* parse_generation(const Token& token) {
    Statement* made = statement(StatementKind::kScope, token);
    made->body = parse_whole_block("endgeneration");
    return made;
  }

  // Expressions, from the loosest operator to the tightest.
  Expr* parse_tuple(bool with_if) {
    const auto parse = [&] { return with_if ? parse_expression() : parse_or(); };
    const size_t offset = now().offset;
    Expr* first = parse();
    if (!is_op(",")) return first;
    Expr* tuple = make(ExprKind::kTuple, offset, {first});
    while (take_op(",")) {
      if (at_tuple_end()) break;
      tuple->args.push_back(parse());
    }
    return tuple;
  }
  bool at_tuple_end() const {
    return now().type == TokenType::kVariableEnd || now().type == TokenType::kBlockEnd ||
           now().type == TokenType::kEnd || is_op(")") || is_word("recursive");
  }

  Expr* parse_expression() {
    const Nesting nesting(*this);
    Expr* then = parse_or();
    while (is_word("if")) {
      const size_t offset = next().offset;
      Expr* condition = parse_or();
      Expr* otherwise = take_word("else") ? parse_expression() : nullptr;
      then = make(ExprKind::kIf, offset, {condition, then, otherwise});
    }
    return then;
  }
  Expr* parse_or() {
    Expr* left = parse_and();
    while (is_word("or")) {
      const size_t offset = next().offset;
      left = make(ExprKind::kOr, offset, {left, parse_and()});
    }
    return left;
  }
  Expr* parse_and() {
    Expr* left = parse_not();
    while (is_word("and")) {
      const size_t offset = next().offset;
      left = make(ExprKind::kAnd, offset, {left, parse_not()});
    }
    return left;
  }
  Expr* parse_not() {
    if (!is_word("not")) return parse_compare();
    const Nesting nesting(*this);
    const size_t offset = next().offset;
    return make(ExprKind::kNot, offset, {parse_not()});
  }
  std::optional<Operator> take_comparison() {
    constexpr std::pair<std::string_view, Operator> kOperators[] = {
        {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
        {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual},
    };
    for (const auto& [text, op] : kOperators) {
      if (take_op(text)) return op;
    }
    if (take_word("in")) return Operator::kIn;
    if (is_word("not") && is(peek(), TokenType::kName, "in")) {
      next();
      next();
      return Operator::kNotIn;
    }
    return std::nullopt;
  }
  Expr* parse_compare() {
    const size_t offset = now().offset;
    Expr* left = parse_sum();
    Expr* compare = nullptr;
    while (const auto op = take_comparison()) {
      if (compare == nullptr) compare = make(ExprKind::kCompare, offset, {left});
      compare->operators.push_back(*op);
      compare->args.push_back(parse_sum());
    }
    return compare != nullptr ? compare : left;
  }
  Expr* binary(Operator op, size_t offset, Expr* left, Expr* right) {
    Expr* made = make(ExprKind::kBinary, offset, {left, right});
    made->operators.push_back(op);
    return made;
  }
  Expr* parse_sum() {
    Expr* left = parse_concat();
    while (is_op("+") || is_op("-")) {
      const Token token = next();
      const Operator op = token.text == "+" ? Operator::kAdd : Operator::kSubtract;
      left = binary(op, token.offset, left, parse_concat());
    }
    return left;
  }
  Expr* parse_concat() {
    const size_t offset = now().offset;
    Expr* left = parse_product();
    if (!is_op("~")) return left;
    Expr* concat = make(ExprKind::kConcat, offset, {left});
    while (take_op("~")) concat->args.push_back(parse_product());
    return concat;
  }
  Expr* parse_product() {
    Expr* left = parse_power();
    while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
      const Token token = next();
      const Operator op = token.text == "*"    ? Operator::kMultiply
                          : token.text == "/"  ? Operator::kDivide
                          : token.text == "//" ? Operator::kFloorDivide
                                               : Operator::kModulo;
      left = binary(op, token.offset, left, parse_power());
    }
    return left;
  }
  Expr* parse_power() {
    Expr* left = parse_unary(true);
    while (is_op("**")) {
      const size_t offset = next().offset;
      left = binary(Operator::kPower, offset, left, parse_unary(true));
    }
    return left;
  }
  Expr* parse_unary(bool with_filters) {
    const Nesting nesting(*this);
    Expr* expr = nullptr;
    if (is_op("-") || is_op("+")) {
      const Token token = next();
      const ExprKind kind = token.text == "-" ? ExprKind::kNegative : ExprKind::kPositive;
      expr = make(kind, token.offset, {parse_unary(false)});
    } else {
      expr = parse_primary();
    }
    expr = parse_postfix(expr);
    return with_filters ? parse_filters(expr) : expr;
  }

  Expr* parse_primary() {
    const Token token = next();
    switch (token.type) {
      case TokenType::kName:
        if (token.text == "true" || token.text == "True")
          return constant(Value::of(true), token.offset);
        if (token.text == "false" || token.text == "False")
          return constant(Value::of(false), token.offset);
        if (token.text == "none" || token.text == "None")
          return constant(Value::none(), token.offset);
        return name_expr(token);
      case TokenType::kString: {
        std::string text = token.text;
        while (now().type == TokenType::kString) text += next().text;
        return constant(tree_.constants.string(text, Origin::kTemplate), token.offset);
      }
      case TokenType::kInteger:
        return integer(token);
      case TokenType::kFloat:
        return constant(Value::of(std::strtod(token.text.c_str(), nullptr)), token.offset);
      case TokenType::kOperator:
        if (token.text == "(") return parse_parentheses(token);
        if (token.text == "[") return parse_list(token);
        if (token.text == "{") return parse_dict(token);
        break;
      default:
        break;
    }
    fail_at(token.offset, fmt::format("expected an expression, got {}", shown(token)));
    return constant(Value::none(), token.offset);
  }
  Expr* integer(const Token& token) {
    std::string_view digits = token.text;
    int base = 10;
    if (digits.size() > 1 && digits[0] == '0' && digits[1] > '9') {
      base = digits[1] == 'x' ? 16 : digits[1] == 'o' ? 8 : 2;
      digits.remove_prefix(2);
    }
    int64_t value = 0;
    const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (end.ec != std::errc()) fail_at(token.offset, "a number beyond 64 bits");
    return constant(Value::of(value), token.offset);
  }
  Expr* parse_parentheses(const Token& token) {
    if (take_op(")")) return make(ExprKind::kTuple, token.offset);
    Expr* inner = parse_tuple(true);
    expect_op(")");
    return inner;
  }
  Expr* parse_list(const Token& token) {
    Expr* list = make(ExprKind::kList, token.offset);
    while (!is_op("]") && !failed()) {
      list->args.push_back(parse_expression());
      if (!take_op(",")) break;
    }
    expect_op("]");
    return list;
  }
  Expr* parse_dict(const Token& token) {
    Expr* dict = make(ExprKind::kDict, token.offset);
    while (!is_op("}") && !failed()) {
      dict->args.push_back(parse_expression());
      expect_op(":");
      dict->args.push_back(parse_expression());
      if (!take_op(",")) break;
    }
    expect_op("}");
    return dict;
  }

  Expr* parse_postfix(Expr* expr) {
    while (!failed()) {
      if (is_op(".")) {
        expr = parse_attribute(expr);
      } else if (is_op("[")) {
        expr = parse_item(expr);
      } else if (is_op("(")) {
        expr = parse_call(expr);
      } else {
        break;
      }
    }
    return expr;
  }
  Expr* parse_attribute(Expr* object) {
    const size_t offset = next().offset;
    const Token token = next();
    if (token.type == TokenType::kInteger)
      return make(ExprKind::kItem, offset, {object, integer(token)});
    if (token.type != TokenType::kName) {
      fail_at(token.offset,
              fmt::format("expected a name or number after '.', got {}", shown(token)));
      return object;
    }
    Expr* attribute = make(ExprKind::kAttribute, offset, {object});
    attribute->text = word(token.text);
    return attribute;
  }
  Expr* parse_item(Expr* object) {
    const size_t offset = next().offset;
    Expr* first = is_op(":") ? nullptr : parse_expression();
    Expr* item = make(ExprKind::kItem, offset, {object, first});
    if (take_op(":")) {
      item->kind = ExprKind::kSlice;
      item->args.push_back(is_op(":") || is_op("]") ? nullptr : parse_expression());
      item->args.push_back(take_op(":") && !is_op("]") ? parse_expression() : nullptr);
    }
    if (is_op(",")) fail("an index of several parts is not supported");
    expect_op("]");
    return item;
  }

  // "(1, *more, name=2, **others)" into the call, filter or test.
  void parse_arguments(Expr& call) {
    expect_op("(");
    while (!is_op(")") && !failed()) {
      if (take_op("*")) {
        call.more_args = parse_expression();
      } else if (take_op("**")) {
        call.more_keywords = parse_expression();
      } else if (now().type == TokenType::kName && is(peek(), TokenType::kOperator, "=")) {
        const std::string_view name = word(next().text)->bytes;
        next();
        call.keywords.push_back({name, parse_expression()});
      } else if (!call.keywords.empty() || call.more_args != nullptr) {
        fail("an argument without a name follows one with a name");
      } else {
        call.args.push_back(parse_expression());
      }
      if (!take_op(",")) break;
    }
    expect_op(")");
  }
  Expr* parse_call(Expr* callee) {
    Expr* call = make(ExprKind::kCall, now().offset, {callee});
    parse_arguments(*call);
    return call;
  }

  Expr* parse_filters(Expr* expr) {
    while (!failed()) {
      if (take_op("|")) {
        expr = parse_filter(expr);
      } else if (is_word("is")) {
        expr = parse_test(expr);
      } else if (is_op("(")) {
        expr = parse_call(expr);
      } else {
        break;
      }
    }
    return expr;
  }
  Expr* parse_filter(Expr* input) {
    Expr* filter = make(ExprKind::kFilter, now().offset, {input});
    filter->text = word(expect_name());
    filter->callable = find_filter(filter->text->bytes);
    if (is_op("(")) parse_arguments(*filter);
    return filter;
  }
  Expr* parse_test(Expr* input) {
    next();
    const bool negated = take_word("not");
    Expr* test = make(ExprKind::kTest, now().offset, {input});
    test->text = word(expect_name());
    test->callable = find_test(test->text->bytes);
    if (is_op("(")) {
      parse_arguments(*test);
    } else if (begins_operand()) {
      if (is_word("is")) fail("tests cannot be chained with 'is'");
      test->args.push_back(parse_postfix(parse_primary()));
    }
    return negated ? make(ExprKind::kNot, test->offset, {test}) : test;
  }
  bool begins_operand() const {
    switch (now().type) {
      case TokenType::kName:
        return !is_word("else") && !is_word("or") && !is_word("and");
      case TokenType::kString:
      case TokenType::kInteger:
      case TokenType::kFloat:
        return true;
      default:
        return is_op("[") || is_op("{");
    }
  }

  Tree& tree_;
  std::vector<Token> tokens_;
  size_t position_ = 0;
  std::string error_;
  int nesting_ = 0;
  int num_loops_ = 0;
  size_t num_closures_ = 0;
  std::vector<MacroDefinition*> macros_;
  std::unordered_map<std::string, int32_t> numbers_;
};

}  // namespace

Result<std::unique_ptr<Tree>> parse(std::string_view source) {
  auto tree = std::make_unique<Tree>();
  tree->source = normalize_source(source);
  MB_ASSIGN(std::vector<Token> tokens, tokenize(tree->source));
  MB_TRY(Parser(*tree, std::move(tokens)).run());
  return tree;
}

}  // namespace markbase::tokenizer::jinja
