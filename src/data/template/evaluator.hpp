#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/data/template/builtins.hpp"
#include "src/data/template/template.hpp"

namespace trireme::data::jinja {

/// Variables of a part of a template; those of `outer` are visible, too.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::map<std::string, Value, std::less<>> variables;
};
using ScopePointer = std::shared_ptr<Scope>;

/// Macro with the scope of its definition.
struct Macro {
  const Statement& definition;
  ScopePointer scope;
};

/// One rendering of a template.
class Evaluator {
 public:
  Evaluator(const Value& variables, const Limits& limits);

  Rendering run(const std::vector<Statement>& statements);
  /// Line of the latest expression or statement.
  int line() const { return line_; }

  // Operations that builtins use.

  /// Returns the elements that a loop over the value takes. Throws DataError if there are none.
  Values elements(const Value& value);
  Value attribute(const Value& value, const std::string& name);
  Value item(const Value& value, const Value& key);
  Value call(const Builtin& builtin, Value self, Arguments arguments);
  /// Counts work on a value.
  void count(const Value& value);
  Value make_namespace(Namespace members);

 private:
  enum class Flow { normal, leave, next };

  Flow run_body(const std::vector<Statement>& body, const ScopePointer& scope);
  Flow run_statement(const Statement& statement, const ScopePointer& scope);
  Flow run_loop(const Statement& statement, const ScopePointer& scope);
  void run_generation(const Statement& statement, const ScopePointer& scope);
  /// Returns the text of a body, after filters if there are any.
  Value captured(const Statement& statement, const ScopePointer& scope);
  void assign(const Target& target, const Value& value, Scope& scope);
  Value call_macro(const Macro& macro, Arguments arguments);

  Value evaluate(const Expression& expression, const ScopePointer& scope);
  Value evaluate_kind(const Expression& expression, const ScopePointer& scope);
  Value variable(const std::string& name, const Scope* scope) const;
  Value evaluate_call(const Expression& expression, const ScopePointer& scope);
  Value evaluate_comparison(const Expression& expression, const ScopePointer& scope);
  Value evaluate_dict(const Expression& expression, const ScopePointer& scope);
  Value evaluate_slice(const Value& subject, const Expression& bounds, const ScopePointer& scope);
  Arguments arguments_of(const Expression& expression, const ScopePointer& scope);

  /// Level of nested statements, expressions and calls.
  struct Nesting;

  const Limits& limits_;
  std::int64_t steps_ = 0, bytes_ = 0;
  int depth_ = 0;
  int line_ = 1;
  ScopePointer root_ = std::make_shared<Scope>();
  TextBuilder* out_ = nullptr;
  Rendering rendering_;
  // Owners of what values refer to.
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  std::vector<std::unique_ptr<Loop>> loops_;
  std::vector<std::unique_ptr<Macro>> macros_;
};

/// Returns `left sign right`: + - * / // % **.
Value arithmetic(const Value& left, const std::string& sign, const Value& right);
/// Returns `item in container`.
bool contains(Evaluator& evaluator, const Value& item, const Value& container);
/// Returns `text % value`.
std::string formatted(const std::string& text, const Value& value);

}  // namespace trireme::data::jinja
