#include "src/data/template/builtins.hpp"

#include <algorithm>
#include <atomic>
#include <ctime>

#include "src/base/check.hpp"
#include "src/base/text.hpp"
#include "src/data/template/evaluator.hpp"
#include "src/data/template/text_functions.hpp"
#include "src/data/text/unicode.hpp"

namespace trireme::data::jinja {
namespace {

/// Returns whether the test `name` of two operands holds.
template <bool (*compare)(const Value&, const Value&)>
Value comparison_test(Call& call) {
  return Value::boolean(compare(call.self, call[0]));
}
template <bool (*holds)(const Value&)>
Value simple_test(Call& call) {
  return Value::boolean(holds(call.self));
}

bool is_text(const Value& value) { return value.if_text() != nullptr; }
bool is_mapping(const Value& value) { return value.if_mapping() != nullptr; }
bool is_sequence(const Value& value) {
  const Sequence* sequence = value.if_sequence();
  return is_text(value) || is_mapping(value) || value.if_undefined() ||
         (sequence != nullptr && sequence->kind <= Sequence::Kind::tuple);
}
bool is_iterable(const Value& value) { return is_sequence(value) || value.if_sequence() || value.if_loop(); }
bool is_integer(const Value& value) { return value.get<std::int64_t>() != nullptr; }
bool has_case(const Value& value, std::string (*convert)(std::string_view)) {
  const std::string text = text_of(value), upper = upper_case(text), lower = lower_case(text);
  return upper != lower && convert(text) == text;
}
bool is_same(const Value& a, const Value& b) {
  if (a.is_boolean() != b.is_boolean()) return false;
  if (a.is_boolean() || a.is_none() || b.is_none()) return equal(a, b);
  throw DataError("the test 'sameas' of a {} is not supported", a.type_name());
}
std::int64_t integer_of(const Value& value) {
  TRIREME_CHECK(value.if_integer(), DataError, "the test needs an integer, not {}", value.type_name());
  return *value.if_integer();
}

constexpr auto equals = comparison_test<equal>;
constexpr auto differs = comparison_test<[](const Value& a, const Value& b) { return !equal(a, b); }>;
constexpr auto is_less = comparison_test<[](const Value& a, const Value& b) { return less(a, b); }>;
constexpr auto is_greater = comparison_test<[](const Value& a, const Value& b) { return less(b, a, ">"); }>;
constexpr auto at_most =
    comparison_test<[](const Value& a, const Value& b) { return less(a, b, "<=") || equal(a, b); }>;
constexpr auto at_least =
    comparison_test<[](const Value& a, const Value& b) { return less(b, a, ">=") || equal(a, b); }>;

Value is_in(Call& call) { return Value::boolean(contains(call.evaluator, call.self, call[0])); }

Value divides(Call& call) {
  const std::int64_t divisor = integer_of(call[0]);
  TRIREME_CHECK(divisor != 0, DataError, "integer division or modulo by zero");
  return Value::boolean(divisor == -1 || integer_of(call.self) % divisor == 0);
}

constexpr Builtin tests[] = {
    {"defined", "", simple_test<[](const Value& v) { return !v.if_undefined(); }>},
    {"undefined", "", simple_test<[](const Value& v) { return v.if_undefined() != nullptr; }>},
    {"none", "", simple_test<[](const Value& v) { return v.is_none(); }>},
    {"string", "", simple_test<is_text>},
    {"mapping", "", simple_test<is_mapping>},
    {"iterable", "", simple_test<is_iterable>},
    {"sequence", "", simple_test<is_sequence>},
    {"number", "", simple_test<[](const Value& v) { return v.is_number(); }>},
    {"integer", "", simple_test<is_integer>},
    {"float", "", simple_test<[](const Value& v) { return v.get<double>() != nullptr; }>},
    {"boolean", "", simple_test<[](const Value& v) { return v.is_boolean(); }>},
    {"true", "", simple_test<[](const Value& v) { return v.is_boolean() && v; }>},
    {"false", "", simple_test<[](const Value& v) { return v.is_boolean() && !v; }>},
    {"callable", "", simple_test<[](const Value& v) { return v.get<Callable>() != nullptr; }>},
    {"odd", "", simple_test<[](const Value& v) { return integer_of(v) % 2 != 0; }>},
    {"even", "", simple_test<[](const Value& v) { return integer_of(v) % 2 == 0; }>},
    {"lower", "", simple_test<[](const Value& v) { return has_case(v, lower_case); }>},
    {"upper", "", simple_test<[](const Value& v) { return has_case(v, upper_case); }>},
    {"divisibleby", "num", divides},
    {"in", "seq", is_in},
    {"sameas", "other", comparison_test<is_same>},
    {"eq", "other", equals},
    {"equalto", "other", equals},
    {"==", "other", equals},
    {"ne", "other", differs},
    {"!=", "other", differs},
    {"lt", "other", is_less},
    {"lessthan", "other", is_less},
    {"<", "other", is_less},
    {"gt", "other", is_greater},
    {"greaterthan", "other", is_greater},
    {">", "other", is_greater},
    {"le", "other", at_most},
    {"<=", "other", at_most},
    {"ge", "other", at_least},
    {">=", "other", at_least},
};

Value range(Call& call) {
  std::int64_t begin = 0, end = call.integer_or(0, 0);
  if (call.has(1)) begin = std::exchange(end, call.integer_or(1, 0));
  const std::int64_t step = call.integer_or(2, 1);
  TRIREME_CHECK(step != 0, DataError, "range() arg 3 must not be zero");
  Values values;
  constexpr std::size_t max_range = 100000;  // that of Jinja's sandbox
  for (std::int64_t at = begin; step > 0 ? at < end : at > end;) {
    values.push_back(Value::integer(at));
    TRIREME_CHECK(values.size() <= max_range, DataError, "Range too big. The sandbox blocks ranges larger than {}.",
                  max_range);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return Value::list(std::move(values));
}

Entries entries_of(Call& call) {
  Entries entries;
  TRIREME_CHECK(call.any.positional.size() <= 1, DataError, "{} expected at most 1 argument, got {}", call.builtin.name,
                call.any.positional.size());
  if (!call.any.positional.empty()) {
    const Value& first = call.any.positional[0];
    if (const Mapping* mapping = first.if_mapping()) {
      entries = mapping->entries;
    } else {
      for (const Value& pair : call.evaluator.elements(first)) {
        const Values both = call.evaluator.elements(pair);
        TRIREME_CHECK(both.size() == 2, DataError, "an element of the argument of {} is no pair", call.builtin.name);
        set_entry(entries, both[0], both[1]);
      }
    }
  }
  for (const auto& [name, value] : call.any.named) set_entry(entries, Value::text(name), value);
  return entries;
}

Value make_namespace(Call& call) {
  Namespace names;
  for (const auto& [key, value] : entries_of(call)) names.members[text_of(key)] = value;
  return call.evaluator.make_namespace(std::move(names));
}

Value raise_exception(Call& call) { throw DataError("the template refuses the conversation: {}", text_of(call[0])); }

std::atomic<std::time_t> rendering_time = std::time(nullptr);

Value strftime_now(Call& call) {
  const std::string format = call.text(0);
  TRIREME_CHECK(format.size() <= 1000, DataError, "the format of strftime_now is longer than 1000 bytes");
  const std::time_t time = rendering_time;
  std::tm parts{};
  localtime_r(&time, &parts);
  std::string text(64 * (format.size() + 1), '\0');
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &parts));
  return Value::text(std::move(text));
}

constexpr Builtin functions[] = {
    {"range", "start [stop] [step]", range},
    {"dict", "*", [](Call& call) { return Value::mapping(entries_of(call)); }},
    {"namespace", "*", make_namespace},
    {"raise_exception", "message", raise_exception},
    {"strftime_now", "format", strftime_now},
};

}  // namespace

void set_time(std::time_t time) { rendering_time = time; }

Call::Call(Evaluator& its_evaluator, const Builtin& its_builtin, Value its_self, Arguments arguments)
    : evaluator(its_evaluator), builtin(its_builtin), self(std::move(its_self)) {
  if (builtin.parameters == "*") {
    any = std::move(arguments);
    return;
  }
  std::vector<std::string_view> names;
  if (!builtin.parameters.empty()) names = split(builtin.parameters, ' ');
  values_.resize(names.size());
  TRIREME_CHECK(arguments.positional.size() <= names.size(), DataError, "'{}' takes at most {}, not {}", builtin.name,
                counted(std::ssize(names), "argument"), arguments.positional.size());
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = std::move(arguments.positional[i]);
  for (auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find_if(names, [&](std::string_view each) {
      return each == name || (each.size() == name.size() + 2 && each.substr(1, name.size()) == name);
    });
    TRIREME_CHECK(found != names.end(), DataError, "'{}' takes no keyword argument '{}'", builtin.name, name);
    values_[static_cast<std::size_t>(found - names.begin())] = std::move(value);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    TRIREME_CHECK(values_[i] || names[i].starts_with('['), DataError, "'{}' needs the argument '{}'", builtin.name,
                  names[i]);
  }
}

std::int64_t Call::integer_or(std::size_t at, std::int64_t other) const {
  if (!has(at)) return other;
  const std::int64_t* integer = values_[at]->if_integer();
  TRIREME_CHECK(integer != nullptr, DataError, "'{}' needs an integer, not {}", builtin.name, values_[at]->type_name());
  return *integer;
}

std::optional<std::string> Call::text_if(std::size_t at) const {
  if (!has(at) || values_[at]->is_none()) return std::nullopt;
  return text(at);
}

std::string Call::text(std::size_t at) const {
  TRIREME_CHECK(values_[at]->if_text(), DataError, "'{}' needs a text, not {}", builtin.name, values_[at]->type_name());
  return *values_[at]->if_text();
}

const std::string& Call::subject() const {
  TRIREME_CHECK(self.if_text(), DataError, "'{}' needs a text, not {}", builtin.name, self.type_name());
  return *self.if_text();
}

const Builtin* find_in(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Builtin::name);
  return found == table.end() ? nullptr : &*found;
}

const Builtin* find_test(std::string_view name) { return find_in(tests, name); }
const Builtin* find_function(std::string_view name) { return find_in(functions, name); }

}  // namespace trireme::data::jinja
