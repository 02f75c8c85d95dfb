#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"
#include "src/base/utf8.hpp"
#include "src/data/template/builtins.hpp"
#include "src/data/template/evaluator.hpp"
#include "src/data/template/text_functions.hpp"
#include "src/data/text/unicode.hpp"

namespace trireme::data::jinja {
namespace {

Value generator(Values values) { return Value::sequence(Sequence::Kind::generator, std::move(values)); }

/// Returns an item or attribute by a path: "function.name" or an index.
Value member_of(Evaluator& evaluator, Value value, const Value& path) {
  if (!path.if_text()) return evaluator.item(value, path);
  for (const std::string_view part : split(*path.if_text(), '.')) {
    const auto index = parse_number<std::int64_t>(part);
    value = evaluator.item(value, index ? Value::integer(*index) : Value::text(std::string(part)));
  }
  return value;
}

/// Returns what elements are compared by: the attribute named by an argument, texts in lower case.
Value sort_key(const Call& call, const Value& value, std::size_t attribute, bool is_case_sensitive) {
  const bool has_path = call.has(attribute) && !call[attribute].is_none();
  Value key = has_path ? member_of(call.evaluator, value, call[attribute]) : value;
  return !is_case_sensitive && key.if_text() ? Value::text(lower_case(*key.if_text())) : key;
}

template <std::string (*convert)(std::string_view)>
Value converted(Call& call) {
  return Value::text(convert(text_of(call.self)));
}

Value trim(Call& call) { return Value::text(std::string(stripped(text_of(call.self), Side::both, call.text_if(0)))); }

Value length(Call& call) {
  const Value& value = call.self;
  if (const std::string* text = value.if_text()) return Value::integer(count_characters(*text));
  if (const Mapping* mapping = value.if_mapping()) return Value::integer(std::ssize(mapping->entries));
  const Sequence* sequence = value.if_sequence();
  TRIREME_CHECK(value.if_undefined() || (sequence && sequence->kind != Sequence::Kind::generator), DataError,
                "object of type '{}' has no len()", value.type_name());
  return Value::integer(sequence ? std::ssize(sequence->values) : 0);
}

Value join(Call& call) {
  TextBuilder text;
  const std::string separator = call.has(0) ? text_of(call[0]) : "";
  bool is_first = true;
  for (const Value& value : call.evaluator.elements(call.self)) {
    if (!std::exchange(is_first, false)) text += separator;
    text += text_of(call.has(1) && !call[1].is_none() ? member_of(call.evaluator, value, call[1]) : value);
  }
  return Value::text(text.take());
}

Value tojson(Call& call) {
  JsonForm form;
  form.ascii = call.truth_or(0, false);
  form.sorted = call.truth_or(3, false);
  if (call.has(1) && !call[1].is_none()) {
    form.is_indented = true;
    form.comma = ",";
    form.indent =
        call[1].if_text()
            ? *call[1].if_text()
            : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(call.integer_or(1, 0), 0, 1000)), ' ');
  }
  if (call.has(2) && !call[2].is_none()) {
    const Values both = call.evaluator.elements(call[2]);
    TRIREME_CHECK(both.size() == 2 && both[0].if_text() && both[1].if_text(), DataError,
                  "'separators' of tojson needs two texts");
    form.comma = *both[0].if_text();
    form.colon = *both[1].if_text();
  }
  return Value::text(to_json(call.self, form));
}

Value title(Call& call) {
  std::string text = lower_case(text_of(call.self)), result;
  bool begins = true;
  for_each_character(text, [&](Utf8Character c, std::string_view bytes) {
    result += begins ? upper_case(bytes) : std::string(bytes);
    begins = is_space(c.code_point) || std::string_view("-({[<").find(bytes) != std::string_view::npos;
  });
  return Value::text(std::move(result));
}

Value replace(Call& call) {
  const std::int64_t most = call.has(2) && call[2].is_none() ? -1 : call.integer_or(2, -1);
  return Value::text(replaced(text_of(call.self), text_of(call[0]), text_of(call[1]), most));
}

Value default_value(Call& call) {
  const bool is_missing = call.self.if_undefined() || (call.truth_or(1, false) && !call.self);
  return is_missing ? call.value_or(0, Value::text("")) : call.self;
}

template <bool is_first>
Value end_of(Call& call) {
  const Values values = call.evaluator.elements(call.self);
  if (!values.empty()) return is_first ? values.front() : values.back();
  return Value::undefined(is_first ? "No first item, sequence was empty." : "No last item, sequence was empty.");
}

Value list(Call& call) { return Value::list(call.evaluator.elements(call.self)); }

/// Moves the first argument, a name, out of the arguments. Returns the filter or test of this name.
const Builtin& take_builtin(Call& call, const Builtin* (*find)(std::string_view)) {
  Values& positional = call.any.positional;
  TRIREME_CHECK(!positional.empty() && positional[0].if_text(), DataError, "'{}' needs the name of a filter or test",
                call.builtin.name);
  const std::string name = *positional[0].if_text();
  const Builtin* found = find(name);
  TRIREME_CHECK(found != nullptr, DataError, "the filter or test '{}' is not supported", name);
  positional.erase(positional.begin());
  return *found;
}

Value map(Call& call) {
  if (!static_cast<bool>(call.self)) return generator({});  // as jinja2, also for none
  Values result;
  const auto named = [&](const char* name) -> const Value* {
    const auto found = std::ranges::find(call.any.named, name, &std::pair<std::string, Value>::first);
    return found == call.any.named.end() ? nullptr : &found->second;
  };
  const Values values = call.evaluator.elements(call.self);
  if (const Value* path = named("attribute"); path && call.any.positional.empty()) {
    const Value* other = named("default");
    for (const Value& value : values) {
      const Value member = member_of(call.evaluator, value, *path);
      result.push_back(other && member.if_undefined() ? *other : member);
    }
  } else {
    const Builtin& filter = take_builtin(call, find_filter);
    for (const Value& value : values) result.push_back(call.evaluator.call(filter, value, call.any));
  }
  return generator(std::move(result));
}

template <bool kept, bool by_attribute>
Value select(Call& call) {
  Value path;
  if (by_attribute) {
    TRIREME_CHECK(!call.any.positional.empty(), DataError, "'{}' needs the name of an attribute", call.builtin.name);
    path = call.any.positional[0];
    call.any.positional.erase(call.any.positional.begin());
  }
  const Builtin* test = call.any.positional.empty() ? nullptr : &take_builtin(call, find_test);
  if (!static_cast<bool>(call.self)) return generator({});
  Values result;
  for (const Value& value : call.evaluator.elements(call.self)) {
    const Value tested = by_attribute ? member_of(call.evaluator, value, path) : value;
    if (static_cast<bool>(test ? call.evaluator.call(*test, tested, call.any) : tested) == kept)
      result.push_back(value);
  }
  return generator(std::move(result));
}

Values pairs_of(const Mapping& mapping) {
  Values pairs;
  for (const auto& [key, value] : mapping.entries) {
    pairs.push_back(Value::sequence(Sequence::Kind::tuple, {key, value}));
  }
  return pairs;
}

Value items(Call& call) {
  if (call.self.if_undefined()) return generator({});
  TRIREME_CHECK(call.self.if_mapping(), DataError, "Can only get item pairs from a mapping.");
  return generator(pairs_of(*call.self.if_mapping()));
}

/// Sorts by keys, in the order of equal ones.
Value sorted_by(Values values, const std::function<Value(const Value&)>& key_of, bool is_reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& value : values) keyed.emplace_back(key_of(value), value);
  std::ranges::stable_sort(keyed, [&](const auto& a, const auto& b) {
    return is_reverse ? less(b.first, a.first) : less(a.first, b.first);
  });
  Values result;
  for (auto& [key, value] : keyed) result.push_back(std::move(value));
  return Value::list(std::move(result));
}

Value dictsort(Call& call) {
  TRIREME_CHECK(call.self.if_mapping(), DataError, "'dictsort' needs a mapping, not {}", call.self.type_name());
  const std::string by = call.has(1) ? call.text(1) : "key";
  TRIREME_CHECK(by == "key" || by == "value", DataError, "You can only sort by either \"key\" or \"value\"");
  const auto key_of = [&](const Value& pair) {
    const Value& key = pair.if_sequence()->values[by == "key" ? 0 : 1];
    return !call.truth_or(0, false) && key.if_text() ? Value::text(lower_case(*key.if_text())) : key;
  };
  return sorted_by(pairs_of(*call.self.if_mapping()), key_of, call.truth_or(2, false));
}

Value sort(Call& call) {
  const auto key_of = [&](const Value& value) { return sort_key(call, value, 2, call.truth_or(1, false)); };
  TRIREME_CHECK(!call.has(2) || !call[2].if_text() || call[2].if_text()->find(',') == std::string::npos, DataError,
                "'sort' by several attributes is not supported");
  return sorted_by(call.evaluator.elements(call.self), key_of, call.truth_or(0, false));
}

Value unique(Call& call) {
  Values result, keys;
  for (const Value& value : call.evaluator.elements(call.self)) {
    Value key = sort_key(call, value, 1, call.truth_or(0, false));
    call.evaluator.count(Value::list(keys));
    if (std::ranges::any_of(keys, [&](const Value& other) { return equal(key, other); })) continue;
    keys.push_back(std::move(key));
    result.push_back(value);
  }
  return generator(std::move(result));
}

template <bool is_max>
Value extreme(Call& call) {
  Value best = Value::undefined("No aggregated item, sequence was empty."), best_key;
  for (const Value& value : call.evaluator.elements(call.self)) {
    Value key = sort_key(call, value, 1, call.truth_or(0, false));
    if (!best.if_undefined() && !(is_max ? less(best_key, key) : less(key, best_key))) continue;
    best = value;
    best_key = std::move(key);
  }
  return best;
}

Value sum(Call& call) {
  Value total = call.value_or(1, Value::integer(0));
  for (const Value& value : call.evaluator.elements(call.self)) {
    const bool has_path = call.has(0) && !call[0].is_none();
    total = arithmetic(total, "+", has_path ? member_of(call.evaluator, value, call[0]) : value);
    call.evaluator.count(total);
  }
  return total;
}

Value reverse(Call& call) {
  if (const std::string* text = call.self.if_text()) return Value::text(sliced(*text, {}, {}, -1));
  Values values = call.evaluator.elements(call.self);
  std::ranges::reverse(values);
  return generator(std::move(values));
}

Value indent(Call& call) {
  const bool is_text = call.has(0) && call[0].if_text();
  const auto width = static_cast<std::size_t>(is_text ? 0 : std::clamp<std::int64_t>(call.integer_or(0, 4), 0, 1000));
  const std::string indention = is_text ? *call[0].if_text() : std::string(width, ' ');
  TextBuilder result;
  if (call.truth_or(1, false)) result += indention;
  bool is_first = true;
  for (const std::string& line : split_lines(call.subject() + "\n")) {
    if (!is_first) {
      result += "\n";
      if (!line.empty() || call.truth_or(2, false)) result += indention;
    }
    is_first = false;
    result += line;
  }
  return Value::text(result.take());
}

/// Returns the number that Python reads in a text.
template <class T>
std::optional<T> number_in(const std::string& text) {
  std::string digits(stripped(text, Side::both));
  if (digits.starts_with('+')) digits.erase(0, 1);
  std::erase(digits, '_');
  if (digits.find_first_of("xXpP") != digits.npos) return std::nullopt;
  return parse_number<T>(digits);
}

std::optional<double> double_in(const Value& value) {
  if (value.is_number()) return value.as_double();
  return value.if_text() ? number_in<double>(*value.if_text()) : std::nullopt;
}

Value to_integer(Call& call) {
  TRIREME_CHECK(!call.has(1), DataError, "'int' with a base is not supported");
  if (const auto* integer = call.self.if_integer()) return Value::integer(*integer);
  if (call.self.if_text()) {
    if (const auto integer = number_in<std::int64_t>(*call.self.if_text())) return Value::integer(*integer);
  }
  const std::optional<double> number = double_in(call.self);
  if (!number || !std::isfinite(*number)) return call.value_or(0, Value::integer(0));
  TRIREME_CHECK(std::abs(*number) < 9e18, DataError, "integers of more than 64 bits are not supported");
  return Value::integer(static_cast<std::int64_t>(*number));
}

Value to_float(Call& call) {
  const std::optional<double> number = double_in(call.self);
  return number ? Value::number(*number) : call.value_or(0, Value::number(0));
}

Value absolute(Call& call) {
  TRIREME_CHECK(call.self.is_number(), DataError, "bad operand type for abs(): '{}'", call.self.type_name());
  if (!call.self.if_integer()) return Value::number(std::abs(call.self.as_double()));
  return *call.self.if_integer() < 0 ? arithmetic(Value::integer(0), "-", call.self)
                                     : Value::integer(*call.self.if_integer());
}

Value round_number(Call& call) {
  TRIREME_CHECK(call.self.is_number(), DataError, "'round' needs a number, not {}", call.self.type_name());
  const std::int64_t precision = call.integer_or(0, 0);
  const std::string method = call.has(1) ? call.text(1) : "common";
  TRIREME_CHECK(precision >= 0 && precision <= 300, DataError, "'round' to {} digits is not supported", precision);
  TRIREME_CHECK(method == "common" || method == "ceil" || method == "floor", DataError,
                "method must be common, ceil or floor");
  const double value = call.self.as_double(), scale = std::pow(10.0, static_cast<double>(precision));
  if (method != "common") {
    return Value::number((method == "ceil" ? std::ceil(value * scale) : std::floor(value * scale)) / scale);
  }
  if (call.self.if_integer()) return Value::integer(*call.self.if_integer());
  if (!std::isfinite(value)) return call.self;
  return Value::number(std::strtod(fmt::format("{:.{}f}", value, precision).c_str(), nullptr));
}

Value escape(Call& call) {
  std::string text = replaced(text_of(call.self), "&", "&amp;");
  for (const auto& [sign, entity] : {std::pair{"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}}) {
    text = replaced(text, sign, entity);
  }
  return Value::text(std::move(text));
}

Value text_filter(Call& call) { return Value::text(text_of(call.self)); }

Value format(Call& call) {
  TRIREME_CHECK(call.any.named.empty(), DataError, "'format' with keyword arguments is not supported");
  return Value::text(formatted(text_of(call.self), Value::sequence(Sequence::Kind::tuple, call.any.positional)));
}

constexpr Builtin filters[] = {
    {"abs", "", absolute},
    {"capitalize", "", converted<capitalized>},
    {"count", "", length},
    {"d", "[default_value] [boolean]", default_value},
    {"default", "[default_value] [boolean]", default_value},
    {"dictsort", "[case_sensitive] [by] [reverse]", dictsort},
    {"e", "", escape},
    {"escape", "", escape},
    {"first", "", end_of<true>},
    {"float", "[default]", to_float},
    {"format", "*", format},
    {"indent", "[width] [first] [blank]", indent},
    {"int", "[default] [base]", to_integer},
    {"items", "", items},
    {"join", "[d] [attribute]", join},
    {"last", "", end_of<false>},
    {"length", "", length},
    {"list", "", list},
    {"lower", "", converted<lower_case>},
    {"map", "*", map},
    {"max", "[case_sensitive] [attribute]", extreme<true>},
    {"min", "[case_sensitive] [attribute]", extreme<false>},
    {"reject", "*", select<false, false>},
    {"rejectattr", "*", select<false, true>},
    {"replace", "old new [count]", replace},
    {"reverse", "", reverse},
    {"round", "[precision] [method]", round_number},
    {"safe", "", text_filter},
    {"select", "*", select<true, false>},
    {"selectattr", "*", select<true, true>},
    {"sort", "[reverse] [case_sensitive] [attribute]", sort},
    {"string", "", text_filter},
    {"sum", "[attribute] [start]", sum},
    {"title", "", title},
    {"tojson", "[ensure_ascii] [indent] [separators] [sort_keys]", tojson},
    {"trim", "[chars]", trim},
    {"unique", "[case_sensitive] [attribute]", unique},
    {"upper", "", converted<upper_case>},
};

}  // namespace

const Builtin* find_filter(std::string_view name) { return find_in(filters, name); }

}  // namespace trireme::data::jinja
