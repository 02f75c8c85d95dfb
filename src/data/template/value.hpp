#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace trireme::data::jinja {

class Value;
using Values = std::vector<Value>;
using Entries = std::vector<std::pair<Value, Value>>;

/// Largest size of a value, as text and with all that it contains, and deepest nesting. Both are bounded when a value
/// is made, so that operations on it are, too.
inline constexpr std::size_t max_weight = std::size_t{1} << 26;
inline constexpr int max_value_depth = 200;

/// Name that a template does not define, or a member that a value does not have. Most uses of it throw the reason.
struct Undefined {
  std::shared_ptr<const std::string> reason;
};

struct None {};

/// Sequence of Python: its kinds differ in their tests, texts and operations.
struct Sequence {
  enum class Kind { list, tuple, view, generator };
  Sequence(Kind kind, Values values);
  Kind kind;
  Values values;
  std::size_t weight = 1;
  int depth = 1;
  mutable bool consumed = false;  ///< a generator has been read
};

/// Python's dict, in the order of insertion.
struct Mapping {
  explicit Mapping(Entries entries);
  const Value* find(const Value& key) const;
  Entries entries;
  std::size_t weight = 1;
  int depth = 1;
};

/// Object of `namespace()`: the only value that changes.
struct Namespace {
  std::map<std::string, Value, std::less<>> members;
};

/// State of a loop, the variable `loop`.
struct Loop {
  Values values;
  std::size_t index = 0;
  std::int64_t depth = 1;
};

struct Macro;
struct Builtin;

/// Function, method of a value or macro.
struct Callable {
  const Builtin* builtin = nullptr;
  const Macro* macro = nullptr;
  std::shared_ptr<const Value> self;
};

/// Value of an expression. Copies share their content, which does not change. Namespaces, loops and macros belong to
/// the evaluator.
class Value {
 public:
  using Text = std::shared_ptr<const std::string>;
  using Content =
      std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<const Sequence>,
                   std::shared_ptr<const Mapping>, Namespace*, const Loop*, std::shared_ptr<const Callable>>;

  Value() : content_(None{}) {}
  explicit Value(Content content) : content_(std::move(content)) {}
  static Value undefined(std::string reason) {
    return Value(Content(Undefined{std::make_shared<const std::string>(std::move(reason))}));
  }
  static Value boolean(bool value) { return Value(Content(value)); }
  static Value integer(std::int64_t value) { return Value(Content(value)); }
  static Value number(double value) { return Value(Content(value)); }
  /// Throws DataError for a text that is too large.
  static Value text(std::string value);
  static Value list(Values values) { return sequence(Sequence::Kind::list, std::move(values)); }
  static Value sequence(Sequence::Kind kind, Values values) {
    return Value(Content(std::make_shared<const Sequence>(kind, std::move(values))));
  }
  /// Entries without equal keys.
  static Value mapping(Entries entries) { return Value(Content(std::make_shared<const Mapping>(std::move(entries)))); }

  template <class T>
  const T* get() const {
    if constexpr (std::is_class_v<T>) {
      const auto* found = std::get_if<std::shared_ptr<const T>>(&content_);
      return found == nullptr ? nullptr : found->get();
    } else {
      return std::get_if<T>(&content_);
    }
  }
  const Undefined* if_undefined() const { return std::get_if<Undefined>(&content_); }
  const std::string* if_text() const { return get<std::string>(); }
  const Sequence* if_sequence() const { return get<Sequence>(); }
  const Mapping* if_mapping() const { return get<Mapping>(); }
  Namespace* if_namespace() const {
    const auto* found = std::get_if<Namespace*>(&content_);
    return found == nullptr ? nullptr : *found;
  }
  const Loop* if_loop() const {
    const auto* found = std::get_if<const Loop*>(&content_);
    return found == nullptr ? nullptr : *found;
  }
  bool is_none() const { return std::holds_alternative<None>(content_); }
  bool is_boolean() const { return std::holds_alternative<bool>(content_); }
  /// Returns the integer that Python computes with: that of a boolean, too.
  const std::int64_t* if_integer() const;
  /// Returns whether it is a number or a boolean.
  bool is_number() const { return if_integer() != nullptr || get<double>() != nullptr; }
  double as_double() const;
  /// Returns Python's truth of a value.
  explicit operator bool() const;
  /// Name of Python's type, for messages.
  const char* type_name() const;
  std::size_t weight() const;
  int depth() const;

 private:
  Content content_;
};

/// Returns the text that `{{ value }}` writes, Python's str().
std::string text_of(const Value& value);
/// Returns Python's repr().
std::string representation(const Value& value);
/// Returns Python's repr() of a number.
std::string number_text(double value);

/// Python's ==.
bool equal(const Value& a, const Value& b);
/// Python's <. Throws DataError for values without an order; `sign` is the operator of the message.
bool less(const Value& a, const Value& b, const char* sign = "<");

/// Form of `to_json`.
struct JsonForm {
  bool ascii = false, sorted = false, is_indented = false;
  std::string indent, comma = ", ", colon = ": ";
};
/// Returns json.dumps(value). Throws DataError for a value that JSON lacks.
std::string to_json(const Value& value, const JsonForm& form);

/// Adds or replaces an entry. Throws DataError for a key that Python cannot hash.
void set_entry(Entries& entries, const Value& key, Value value);

/// Text under construction. Throws DataError once it is too large.
class TextBuilder {
 public:
  TextBuilder& operator+=(std::string_view more);
  std::string take() { return std::move(text_); }
  std::size_t size() const { return text_.size(); }

 private:
  std::string text_;
};

}  // namespace trireme::data::jinja
