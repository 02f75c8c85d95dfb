#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/data/template/value.hpp"

namespace trireme::data::jinja {

class Evaluator;

/// Arguments as a template writes them.
struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Call of a builtin: its subject (the filtered or tested value, or the method's object) and its arguments.
class Call {
 public:
  /// Binds `arguments` to the parameters. Throws DataError if they do not fit.
  Call(Evaluator& evaluator, const Builtin& builtin, Value self, Arguments arguments);

  Evaluator& evaluator;
  const Builtin& builtin;
  Value self;
  /// Arguments of a builtin that takes any.
  Arguments any;

  bool has(std::size_t at) const { return values_[at].has_value(); }
  const Value& operator[](std::size_t at) const { return *values_[at]; }
  Value value_or(std::size_t at, Value other) const { return has(at) ? *values_[at] : std::move(other); }
  bool truth_or(std::size_t at, bool other) const { return has(at) ? static_cast<bool>(*values_[at]) : other; }
  /// Throws DataError unless the argument is an integer or a text. A text that is None is missing.
  std::int64_t integer_or(std::size_t at, std::int64_t other) const;
  std::optional<std::string> text_if(std::size_t at) const;
  std::string text(std::size_t at) const;
  /// The subject, which must be a text.
  const std::string& subject() const;

 private:
  std::vector<std::optional<Value>> values_;
};

/// Filter, test, function or method. `parameters` lists names, those in brackets are optional; "*" takes any.
struct Builtin {
  std::string_view name;
  std::string_view parameters;
  Value (*call)(Call& call);
};

/// Returns null if there is none of this name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_function(std::string_view name);
/// Returns a method of the value's type. Throws DataError for a method of Python that is not supported.
const Builtin* find_method(const Value& value, std::string_view name);

/// Returns whether Python's method of this name changes the value: a template may not call it.
bool changes_value(const Value& value, std::string_view name);

/// Returns the one of this name in a table.
const Builtin* find_in(std::span<const Builtin> table, std::string_view name);

}  // namespace trireme::data::jinja
