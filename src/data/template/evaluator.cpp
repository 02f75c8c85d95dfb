#include "src/data/template/evaluator.hpp"

#include <algorithm>

#include "src/base/check.hpp"
#include "src/data/template/parser.hpp"
#include "src/data/template/text_functions.hpp"

namespace trireme::data::jinja {
namespace {

using Kind = Expression::Kind;
constexpr int max_depth = 600;
constexpr std::int64_t bytes_per_step = 1024;

bool compare(Evaluator& evaluator, const Value& left, const std::string& sign, const Value& right) {
  if (sign == "==") return equal(left, right);
  if (sign == "!=") return !equal(left, right);
  if (sign == "in") return contains(evaluator, left, right);
  if (sign == "not in") return !contains(evaluator, left, right);
  if (sign == "<") return less(left, right);
  if (sign == ">") return less(right, left, ">");
  const bool is_equal = equal(left, right);  // is_equal alone: values without an order throw below
  return sign == "<=" ? less(left, right, "<=") || is_equal : less(right, left, ">=") || is_equal;
}

}  // namespace

struct Evaluator::Nesting {
  Nesting(Evaluator& evaluator, int line) : level(evaluator.depth_) {
    evaluator.line_ = line;
    TRIREME_CHECK(++evaluator.steps_ <= evaluator.limits_.steps, DataError, "the template takes more than {} steps",
                  evaluator.limits_.steps);
    TRIREME_CHECK(level < max_depth, DataError, "more than {} levels of nested calls and expressions", max_depth);
    ++level;
  }
  ~Nesting() { --level; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  int& level;
};

Evaluator::Evaluator(const Value& variables, const Limits& limits) : limits_(limits) {
  for (const auto& [name, value] : variables.if_mapping()->entries) root_->variables[*name.if_text()] = value;
}

Rendering Evaluator::run(const std::vector<Statement>& statements) {
  TextBuilder out;
  out_ = &out;
  run_body(statements, root_);
  rendering_.text = out.take();
  return std::move(rendering_);
}

void Evaluator::count(const Value& value) {
  const auto weight = static_cast<std::int64_t>(value.weight());
  steps_ += weight / bytes_per_step;
  if (value.if_text()) bytes_ += weight;
  if (const Sequence* sequence = value.if_sequence()) bytes_ += std::ssize(sequence->values) * 32;
  TRIREME_CHECK(bytes_ <= limits_.bytes, DataError, "the template makes more than {} bytes of text", limits_.bytes);
}

Value Evaluator::make_namespace(Namespace members) {
  namespaces_.push_back(std::make_unique<Namespace>(std::move(members)));
  return Value(Value::Content(namespaces_.back().get()));
}

Evaluator::Flow Evaluator::run_body(const std::vector<Statement>& body, const ScopePointer& scope) {
  for (const Statement& statement : body) {
    const Nesting nesting(*this, statement.line);
    if (const Flow flow = run_statement(statement, scope); flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Evaluator::Flow Evaluator::run_statement(const Statement& statement, const ScopePointer& scope) {
  switch (statement.kind) {
    case Statement::Kind::text:
      *out_ += statement.name;
      break;
    case Statement::Kind::print:
      *out_ += text_of(evaluate(statement.expressions[0], scope));
      break;
    case Statement::Kind::set:
      assign(statement.target, evaluate(statement.expressions[0], scope), *scope);
      break;
    case Statement::Kind::set_block:
      assign(statement.target, captured(statement, scope), *scope);
      break;
    case Statement::Kind::choice:
      return run_body(evaluate(statement.expressions[0], scope) ? statement.body : statement.otherwise, scope);
    case Statement::Kind::loop:
      return run_loop(statement, scope);
    case Statement::Kind::macro: {
      macros_.push_back(std::make_unique<Macro>(Macro{statement, scope}));
      const Callable callable{nullptr, macros_.back().get(), nullptr};
      scope->variables[statement.name] = Value(Value::Content(std::make_shared<const Callable>(callable)));
      break;
    }
    case Statement::Kind::generation:
      run_generation(statement, scope);
      break;
    case Statement::Kind::leave:
      return Flow::leave;
    case Statement::Kind::next:
      return Flow::next;
  }
  return Flow::normal;
}

void Evaluator::run_generation(const Statement& statement, const ScopePointer& scope) {
  const std::size_t begin = out_->size();
  run_body(statement.body, std::make_shared<Scope>(Scope{scope, {}}));
  rendering_.generated.emplace_back(begin, out_->size());
}

Evaluator::Flow Evaluator::run_loop(const Statement& statement, const ScopePointer& scope) {
  Values values = elements(evaluate(statement.expressions[0], scope));
  if (statement.expressions.size() > 1) {
    std::erase_if(values, [&](const Value& value) {
      const auto inner = std::make_shared<Scope>(Scope{scope, {}});
      assign(statement.target, value, *inner);
      return !evaluate(statement.expressions[1], inner);
    });
  }
  if (values.empty()) return run_body(statement.otherwise, std::make_shared<Scope>(Scope{scope, {}}));
  loops_.push_back(std::make_unique<Loop>());
  Loop& loop = *loops_.back();
  loop.values = std::move(values);
  for (loop.index = 0; loop.index < loop.values.size(); ++loop.index) {
    const auto inner = std::make_shared<Scope>(Scope{scope, {}});
    inner->variables["loop"] = Value(Value::Content(static_cast<const Loop*>(&loop)));
    assign(statement.target, loop.values[loop.index], *inner);
    if (run_body(statement.body, inner) == Flow::leave) break;
  }
  return Flow::normal;
}

Value Evaluator::captured(const Statement& statement, const ScopePointer& scope) {
  TextBuilder text;
  TextBuilder* const outer = std::exchange(out_, &text);
  const auto inner = std::make_shared<Scope>(Scope{scope, {}});
  run_body(statement.body, inner);
  out_ = outer;
  Value result = Value::text(text.take());
  count(result);
  if (statement.expressions.empty()) return result;
  inner->variables[""] = result;
  return evaluate(statement.expressions[0], inner);
}

void Evaluator::assign(const Target& target, const Value& value, Scope& scope) {
  if (target.is_tuple) {
    const Values values = elements(value);
    TRIREME_CHECK(values.size() >= target.parts.size(), DataError, "not enough values to unpack (expected {}, got {})",
                  target.parts.size(), values.size());
    TRIREME_CHECK(values.size() == target.parts.size(), DataError, "too many values to unpack (expected {})",
                  target.parts.size());
    for (std::size_t i = 0; i < values.size(); ++i) assign(target.parts[i], values[i], scope);
  } else if (target.attribute.empty()) {
    scope.variables[target.name] = value;
  } else {
    Namespace* const names = variable(target.name, &scope).if_namespace();
    TRIREME_CHECK(names != nullptr, DataError, "cannot assign attribute on non-namespace object");
    names->members[target.attribute] = value;
  }
}

Value Evaluator::call_macro(const Macro& macro, Arguments arguments) {
  const Statement& definition = macro.definition;
  const std::vector<std::string>& parameters = definition.parameters;
  TRIREME_CHECK(arguments.positional.size() <= parameters.size(), DataError,
                "macro '{}' takes not more than {} argument(s)", definition.name, parameters.size());
  const auto scope = std::make_shared<Scope>(Scope{macro.scope, {}});
  const auto& named = arguments.named;
  for (const auto& [name, value] : named) {
    TRIREME_CHECK(std::ranges::find(parameters, name) != parameters.end(), DataError,
                  "macro '{}' takes no keyword argument '{}'", definition.name, name);
  }
  const std::size_t first_default = parameters.size() - definition.defaults.size();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto found = std::ranges::find(named, parameters[i], &std::pair<std::string, Value>::first);
    Value& parameter = scope->variables[parameters[i]];
    if (i < arguments.positional.size()) {
      parameter = arguments.positional[i];
    } else if (found != named.end()) {
      parameter = found->second;
    } else {
      parameter = Value::undefined(fmt::format("parameter '{}' was not provided", parameters[i]));
      if (i >= first_default) parameter = evaluate(definition.defaults[i - first_default], scope);
    }
  }
  TextBuilder text;
  TextBuilder* const outer = std::exchange(out_, &text);
  run_body(definition.body, scope);
  out_ = outer;
  return Value::text(text.take());
}

Value Evaluator::evaluate(const Expression& expression, const ScopePointer& scope) {
  const Nesting nesting(*this, expression.line);
  if (expression.kind == Kind::constant) return expression.value;
  if (expression.kind == Kind::variable) return variable(expression.name, scope.get());
  return evaluate_kind(expression, scope);
}

Value Evaluator::evaluate_kind(const Expression& expression, const ScopePointer& scope) {
  const auto part = [&](std::size_t i) { return evaluate(expression.parts[i], scope); };
  switch (expression.kind) {
    case Kind::list:
    case Kind::tuple: {
      Values values;
      for (const Expression& each : expression.parts) values.push_back(evaluate(each, scope));
      Value result = Value::sequence(expression.kind == Kind::list ? Sequence::Kind::list : Sequence::Kind::tuple,
                                     std::move(values));
      count(result);
      return result;
    }
    case Kind::dict:
      return evaluate_dict(expression, scope);
    case Kind::attribute:
      return attribute(part(0), expression.name);
    case Kind::item:
      if (expression.parts[1].kind == Kind::slice) return evaluate_slice(part(0), expression.parts[1], scope);
      return item(part(0), part(1));
    case Kind::call:
      return evaluate_call(expression, scope);
    case Kind::filter:
    case Kind::test: {
      Value subject = part(0);
      return call(*expression.builtin, std::move(subject), arguments_of(expression, scope));
    }
    case Kind::negation:
      return Value::boolean(!part(0));
    case Kind::minus:
    case Kind::plus:
      return arithmetic(Value::integer(0), expression.kind == Kind::minus ? "-" : "+", part(0));
    case Kind::arithmetic: {
      const Value left = part(0);
      Value result = arithmetic(left, expression.name, part(1));
      count(result);
      return result;
    }
    case Kind::comparison:
      return evaluate_comparison(expression, scope);
    case Kind::concat: {
      TextBuilder text;
      for (const Expression& each : expression.parts) text += text_of(evaluate(each, scope));
      Value result = Value::text(text.take());
      count(result);
      return result;
    }
    case Kind::conjunction:
    case Kind::disjunction: {
      Value left = part(0);
      return static_cast<bool>(left) == (expression.kind == Kind::disjunction) ? left : part(1);
    }
    case Kind::conditional:
      if (part(0)) return part(1);
      if (expression.parts.size() > 2) return part(2);
      return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
    default:
      throw DataError("a slice stands outside a subscript");
  }
}

Value Evaluator::variable(const std::string& name, const Scope* scope) const {
  for (; scope != nullptr; scope = scope->outer.get()) {
    if (const auto found = scope->variables.find(name); found != scope->variables.end()) return found->second;
  }
  if (const Builtin* function = find_function(name)) {
    return Value(Value::Content(std::make_shared<const Callable>(Callable{function, nullptr, nullptr})));
  }
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Arguments Evaluator::arguments_of(const Expression& expression, const ScopePointer& scope) {
  Arguments arguments;
  for (std::size_t i = 1; i < expression.parts.size(); ++i) {
    arguments.positional.push_back(evaluate(expression.parts[i], scope));
  }
  for (const auto& [name, value] : expression.keywords) arguments.named.emplace_back(name, evaluate(value, scope));
  line_ = expression.line;
  return arguments;
}

Value Evaluator::evaluate_call(const Expression& expression, const ScopePointer& scope) {
  const Value function = evaluate(expression.parts[0], scope);
  if (const Undefined* undefined = function.if_undefined()) throw DataError("{}", *undefined->reason);
  const auto* callable = function.get<Callable>();
  TRIREME_CHECK(callable != nullptr, DataError, "'{}' object is not callable", function.type_name());
  Arguments arguments = arguments_of(expression, scope);
  Value result = callable->macro
                     ? call_macro(*callable->macro, std::move(arguments))
                     : call(*callable->builtin, callable->self ? *callable->self : Value(), std::move(arguments));
  count(result);
  return result;
}

Value Evaluator::call(const Builtin& builtin, Value self, Arguments arguments) {
  count(self);
  for (const Value& argument : arguments.positional) count(argument);
  Call call(*this, builtin, std::move(self), std::move(arguments));
  Value result = builtin.call(call);
  count(result);
  return result;
}

Value Evaluator::evaluate_comparison(const Expression& expression, const ScopePointer& scope) {
  Value left = evaluate(expression.parts[0], scope);
  for (std::size_t i = 0; i < expression.operators.size(); ++i) {
    Value right = evaluate(expression.parts[i + 1], scope);
    steps_ += static_cast<std::int64_t>(left.weight() + right.weight()) / bytes_per_step;
    if (!compare(*this, left, expression.operators[i], right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate_dict(const Expression& expression, const ScopePointer& scope) {
  Entries entries;
  for (std::size_t i = 0; i < expression.parts.size(); i += 2) {
    const Value key = evaluate(expression.parts[i], scope);
    set_entry(entries, key, evaluate(expression.parts[i + 1], scope));
  }
  Value result = Value::mapping(std::move(entries));
  count(result);
  return result;
}

Template::Template(std::string name, std::string_view source) : name_(std::move(name)) {
  try {
    statements_ = parse_template(source);
  } catch (const DataError& error) {
    throw DataError("{}, {}", name_, error.what());
  }
}

bool Template::marks_generation() const {
  const auto marks = [](const auto& self, const std::vector<Statement>& statements) -> bool {
    return std::ranges::any_of(statements, [&](const Statement& statement) {
      return statement.kind == Statement::Kind::generation || self(self, statement.body) ||
             self(self, statement.otherwise);
    });
  };
  return marks(marks, statements_);
}

Rendering Template::render(const Value& variables, const Limits& limits) const {
  Evaluator evaluator(variables, limits);
  try {
    return evaluator.run(statements_);
  } catch (const DataError& error) {
    throw DataError("{}, line {}: {}", name_, evaluator.line(), error.what());
  }
}

}  // namespace trireme::data::jinja
