#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/data/template/evaluator.hpp"
#include "src/data/template/text_functions.hpp"

namespace trireme::data::jinja {
namespace {

/// Returns "dict object", the name of a value's type in Jinja's messages.
std::string object_name(const Value& value) {
  if (value.is_none()) return "None";
  if (value.if_namespace()) return "jinja2.utils.Namespace object";
  if (value.if_loop()) return "jinja2.runtime.LoopContext object";
  return fmt::format("{} object", value.type_name());
}

Value no_attribute(const Value& value, const std::string& name) {
  return Value::undefined(fmt::format("'{}' has no attribute '{}'", object_name(value), name));
}

void check_defined(const Value& value) {
  if (const Undefined* undefined = value.if_undefined()) throw DataError("{}", *undefined->reason);
}

std::optional<Value> loop_member(const Loop& loop, std::string_view name) {
  const auto size = std::ssize(loop.values), index = static_cast<std::ptrdiff_t>(loop.index);
  const auto neighbour = [&](std::ptrdiff_t at, const char* reason) {
    return at >= 0 && at < size ? loop.values[static_cast<std::size_t>(at)] : Value::undefined(reason);
  };
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(size - index);
  if (name == "revindex0") return Value::integer(size - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == size);
  if (name == "length") return Value::integer(size);
  if (name == "previtem") return neighbour(index - 1, "there is no previous item");
  if (name == "nextitem") return neighbour(index + 1, "there is no next item");
  TRIREME_CHECK(name != "cycle" && name != "changed" && name != "depth" && name != "depth0", DataError,
                "'loop.{}' is not supported", name);
  return std::nullopt;
}

/// Returns the result of an operation on integers that may need more than 64 bits.
template <class Operation>
Value checked(std::int64_t left, std::int64_t right, const Operation& operation) {
  std::int64_t result = 0;
  TRIREME_CHECK(!operation(left, right, &result), DataError, "integers of more than 64 bits are not supported");
  return Value::integer(result);
}

std::int64_t floor_quotient(std::int64_t left, std::int64_t right) {
  const std::int64_t quotient = left / right;
  return quotient - (left % right != 0 && (left < 0) != (right < 0) ? 1 : 0);
}

Value power(std::int64_t base, std::int64_t exponent) {
  Value result = Value::integer(1);
  const bool is_constant = base >= -1 && base <= 1;
  for (std::int64_t i = is_constant ? exponent % 2 + 2 * (exponent > 1 ? 1 : 0) : exponent; i > 0; --i) {
    result =
        checked(*result.if_integer(), base, [](auto a, auto b, auto* c) { return __builtin_mul_overflow(a, b, c); });
  }
  return result;
}

Value integer_arithmetic(std::int64_t x, const std::string& sign, std::int64_t y) {
  constexpr auto lowest = std::numeric_limits<std::int64_t>::min();
  if (sign == "+") return checked(x, y, [](auto a, auto b, auto* c) { return __builtin_add_overflow(a, b, c); });
  if (sign == "-") return checked(x, y, [](auto a, auto b, auto* c) { return __builtin_sub_overflow(a, b, c); });
  if (sign == "*") return checked(x, y, [](auto a, auto b, auto* c) { return __builtin_mul_overflow(a, b, c); });
  if (sign == "**")
    return y >= 0 ? power(x, y) : Value::number(std::pow(static_cast<double>(x), static_cast<double>(y)));
  TRIREME_CHECK(y != 0, DataError, "{}", sign == "/" ? "division by zero" : "integer division or modulo by zero");
  if (sign == "/") return Value::number(static_cast<double>(x) / static_cast<double>(y));
  TRIREME_CHECK(x != lowest || y != -1, DataError, "integers of more than 64 bits are not supported");
  return Value::integer(sign == "//" ? floor_quotient(x, y) : x - y * floor_quotient(x, y));
}

Value float_arithmetic(double x, const std::string& sign, double y) {
  if (sign == "+") return Value::number(x + y);
  if (sign == "-") return Value::number(x - y);
  if (sign == "*") return Value::number(x * y);
  if (sign == "**") return Value::number(std::pow(x, y));
  TRIREME_CHECK(y != 0, DataError, "float division by zero");
  if (sign == "/") return Value::number(x / y);
  return Value::number(sign == "//" ? std::floor(x / y) : x - y * std::floor(x / y));
}

/// Returns `value`, a text or sequence, `count` times.
Value repeated(const Value& value, std::int64_t count) {
  count = std::max<std::int64_t>(count, 0);
  const auto times = static_cast<std::size_t>(count);
  TRIREME_CHECK(count == 0 || value.weight() <= max_weight / times, DataError, "a value takes more than {} bytes",
                max_weight);
  if (const std::string* text = value.if_text()) {
    std::string result;
    for (std::size_t i = 0; i < times; ++i) result += *text;
    return Value::text(std::move(result));
  }
  Values values;
  for (std::size_t i = 0; i < times; ++i) {
    values.insert(values.end(), value.if_sequence()->values.begin(), value.if_sequence()->values.end());
  }
  return Value::sequence(value.if_sequence()->kind, std::move(values));
}

bool is_list(const Value& value) { return value.if_sequence() && value.if_sequence()->kind <= Sequence::Kind::tuple; }

/// Returns the index that Python uses, counted from the end if it is negative; -1 if there is no such element.
std::ptrdiff_t position(std::int64_t index, std::ptrdiff_t size) {
  const std::int64_t at = index < 0 ? index + size : index;
  return at >= 0 && at < size ? at : -1;
}

}  // namespace

Value arithmetic(const Value& left, const std::string& sign, const Value& right) {
  check_defined(left);
  if (sign == "%" && left.if_text()) return Value::text(formatted(*left.if_text(), right));
  check_defined(right);
  const auto *x = left.if_integer(), *y = right.if_integer();
  if (x && y) return integer_arithmetic(*x, sign, *y);
  if (left.is_number() && right.is_number()) return float_arithmetic(left.as_double(), sign, right.as_double());
  const bool is_sequence = left.if_text() || is_list(left), is_right = right.if_text() || is_list(right);
  if (sign == "*" && is_sequence && y) return repeated(left, *y);
  if (sign == "*" && is_right && x) return repeated(right, *x);
  if (sign == "+" && left.if_text() && right.if_text()) {
    TextBuilder text;
    text += *left.if_text();
    text += *right.if_text();
    return Value::text(text.take());
  }
  if (sign == "+" && is_list(left) && is_list(right) && left.if_sequence()->kind == right.if_sequence()->kind) {
    Values values = left.if_sequence()->values;
    values.insert(values.end(), right.if_sequence()->values.begin(), right.if_sequence()->values.end());
    return Value::sequence(left.if_sequence()->kind, std::move(values));
  }
  TRIREME_CHECK(sign != "+" || !left.if_text(), DataError, "can only concatenate str (not \"{}\") to str",
                right.type_name());
  throw DataError("unsupported operand type(s) for {}: '{}' and '{}'", sign, left.type_name(), right.type_name());
}

std::string formatted(const std::string& text, const Value& value) {
  const Sequence* tuple = value.if_sequence();
  const bool is_tuple = tuple != nullptr && tuple->kind == Sequence::Kind::tuple;
  std::size_t used = 0;
  TextBuilder result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      result += text.substr(i, 1);
      continue;
    }
    std::size_t end = i + 1;
    while (end < text.size() && std::string_view("0123456789.+- ").find(text[end]) != std::string_view::npos) ++end;
    const char kind = end < text.size() ? text[end] : ' ';
    const std::string form = text.substr(i + 1, end - i - 1);
    i = end;
    if (kind == '%') {
      result += "%";
      continue;
    }
    TRIREME_CHECK(used < (is_tuple ? tuple->values.size() : 1), DataError, "not enough arguments for format string");
    const Value& argument = is_tuple ? tuple->values[used] : value;
    ++used;
    const bool is_plain = form.empty();
    const std::size_t dot = form.find('.');
    const auto precision = parse_number<int>(dot == form.npos ? "6" : form.substr(dot + 1));
    if (kind == 's' && is_plain) {
      result += text_of(argument);
    } else if (kind == 'r' && is_plain) {
      result += representation(argument);
    } else if ((kind == 'd' || kind == 'i') && is_plain && argument.is_number()) {
      result += fmt::format(
          "{}", argument.if_integer() ? *argument.if_integer() : static_cast<std::int64_t>(argument.as_double()));
    } else if (kind == 'f' && (is_plain || dot == 0) && precision && *precision <= 100 && argument.is_number()) {
      result += fmt::format("{:.{}f}", argument.as_double(), *precision);
    } else {
      throw DataError("the format '%{}{}' of a {} is not supported", form, kind, argument.type_name());
    }
  }
  TRIREME_CHECK(!is_tuple || used == tuple->values.size(), DataError,
                "not all arguments converted during string formatting");
  return result.take();
}

bool contains(Evaluator& evaluator, const Value& item, const Value& container) {
  if (const std::string* text = container.if_text()) {
    check_defined(item);
    TRIREME_CHECK(item.if_text(), DataError, "'in' with a text requires a text on its left, not {}", item.type_name());
    return text->find(*item.if_text()) != text->npos;
  }
  if (const Mapping* mapping = container.if_mapping()) return mapping->find(item) != nullptr;
  TRIREME_CHECK(container.if_sequence() || container.if_undefined(), DataError, "argument of type '{}' is not iterable",
                container.type_name());
  const Values values = evaluator.elements(container);
  return std::ranges::any_of(values, [&](const Value& other) { return equal(item, other); });
}

Values Evaluator::elements(const Value& value) {
  Values values;
  if (value.if_undefined()) return values;
  if (const Sequence* sequence = value.if_sequence()) {
    if (sequence->kind == Sequence::Kind::generator && std::exchange(sequence->consumed, true)) return values;
    values = sequence->values;
  } else if (const Mapping* mapping = value.if_mapping()) {
    for (const auto& entry : mapping->entries) values.push_back(entry.first);
  } else if (const std::string* text = value.if_text()) {
    for (std::string& character : characters_of(*text)) values.push_back(Value::text(std::move(character)));
  } else {
    throw DataError("'{}' object is not iterable", value.type_name());
  }
  steps_ += std::ssize(values) / 8;
  bytes_ += std::ssize(values) * 32;
  return values;
}

Value Evaluator::attribute(const Value& value, const std::string& name) {
  check_defined(value);
  TRIREME_CHECK(!name.starts_with("__"), DataError, "access to attribute '{}' of '{}' object is unsafe.", name,
                value.type_name());
  if (changes_value(value, name)) {
    return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, value.type_name()));
  }
  if (const Builtin* method = find_method(value, name)) {
    const Callable callable{method, nullptr, std::make_shared<const Value>(value)};
    Value result(Value::Content(std::make_shared<const Callable>(callable)));
    TRIREME_CHECK(result.depth() <= max_value_depth, DataError, "a value nests deeper than {} levels", max_value_depth);
    return result;
  }
  if (const Mapping* mapping = value.if_mapping()) {
    if (const Value* found = mapping->find(Value::text(name))) return *found;
  } else if (const Namespace* names = value.if_namespace()) {
    if (const auto found = names->members.find(name); found != names->members.end()) return found->second;
  } else if (const Loop* loop = value.if_loop()) {
    if (std::optional<Value> member = loop_member(*loop, name)) return *std::move(member);
  }
  return no_attribute(value, name);
}

Value Evaluator::item(const Value& value, const Value& key) {
  check_defined(value);
  if (const Mapping* mapping = value.if_mapping()) {
    steps_ += std::ssize(mapping->entries) / 64;
    if (const Value* found = mapping->find(key)) return *found;
  } else if (const auto* index = key.if_integer()) {
    if (const std::string* text = value.if_text()) {
      const std::vector<std::string> characters = characters_of(*text);
      count(value);
      if (const auto at = position(*index, std::ssize(characters)); at >= 0) {
        return Value::text(characters[static_cast<std::size_t>(at)]);
      }
    } else if (is_list(value)) {
      const Values& values = value.if_sequence()->values;
      if (const auto at = position(*index, std::ssize(values)); at >= 0) return values[static_cast<std::size_t>(at)];
    }
  }
  if (key.if_text()) return attribute(value, *key.if_text());
  return Value::undefined(
      fmt::format("{} has no element {}", object_name(value), key.if_undefined() ? "Undefined" : representation(key)));
}

Value Evaluator::evaluate_slice(const Value& subject, const Expression& bounds, const ScopePointer& scope) {
  std::optional<std::int64_t> values[3];
  for (std::size_t i = 0; i < 3; ++i) {
    const Value value = evaluate(bounds.parts[i], scope);
    TRIREME_CHECK(value.is_none() || value.if_integer(), DataError, "slice indices must be integers or None, not {}",
                  value.type_name());
    if (!value.is_none()) values[i] = *value.if_integer();
  }
  check_defined(subject);
  const std::int64_t step = values[2].value_or(1);
  TRIREME_CHECK(step != 0, DataError, "slice step cannot be zero");
  count(subject);
  if (const std::string* text = subject.if_text()) return Value::text(sliced(*text, values[0], values[1], step));
  if (!is_list(subject)) return Value::undefined(fmt::format("{} has no element of a slice", object_name(subject)));
  Values result;
  const Values& all = subject.if_sequence()->values;
  for (const std::size_t at : slice_positions(std::ssize(all), values[0], values[1], step)) result.push_back(all[at]);
  return Value::sequence(subject.if_sequence()->kind, std::move(result));
}

}  // namespace trireme::data::jinja
