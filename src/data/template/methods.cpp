#include <algorithm>
#include <array>

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

template <Side side>
Value strip(Call& call) {
  return Value::text(std::string(stripped(call.subject(), side, call.text_if(0))));
}

template <bool from_right>
Value split_method(Call& call) {
  const std::optional<std::string> separator = call.text_if(0);
  TRIREME_CHECK(separator != "", DataError, "empty separator");
  Values parts;
  for (std::string& part : split_text(call.subject(), separator, call.integer_or(1, -1), from_right)) {
    parts.push_back(Value::text(std::move(part)));
  }
  return Value::list(std::move(parts));
}

template <std::string (*convert)(std::string_view)>
Value converted(Call& call) {
  return Value::text(convert(call.subject()));
}

/// Returns the part of the subject between the optional arguments 1 and 2, and its first character.
std::pair<std::string, std::int64_t> part_of(const Call& call) {
  const std::string& text = call.subject();
  if (!call.has(1) && !call.has(2)) return {text, 0};
  const std::int64_t size = count_characters(text), begin = call.integer_or(1, 0);
  std::optional<std::int64_t> end;
  if (call.has(2)) end = call.integer_or(2, 0);
  return {sliced(text, begin, end, 1), std::clamp<std::int64_t>(begin < 0 ? begin + size : begin, 0, size)};
}

template <bool is_prefix>
Value begins(Call& call) {
  const std::string text = part_of(call).first;
  const auto holds = [&](const Value& value) {
    TRIREME_CHECK(value.if_text(), DataError, "{} first arg must be str or a tuple of str, not {}", call.builtin.name,
                  value.type_name());
    return is_prefix ? text.starts_with(*value.if_text()) : text.ends_with(*value.if_text());
  };
  const Sequence* several = call[0].if_sequence();
  return Value::boolean(several && several->kind == Sequence::Kind::tuple ? std::ranges::any_of(several->values, holds)
                                                                          : holds(call[0]));
}

template <bool from_right>
Value find_method_of_text(Call& call) {
  const auto [text, begin] = part_of(call);
  const std::size_t at = from_right ? text.rfind(call.text(0)) : text.find(call.text(0));
  if (at == text.npos) {
    TRIREME_CHECK(!call.builtin.name.ends_with("index"), DataError, "substring not found");
    return Value::integer(-1);
  }
  return Value::integer(begin + count_characters(std::string_view(text).substr(0, at)));
}

Value count_text(Call& call) {
  const std::string text = part_of(call).first, part = call.text(0);
  std::int64_t count = 0;
  for (std::size_t at = text.find(part); at != text.npos;
       at = text.find(part, at + std::max<std::size_t>(part.size(), 1)))
    ++count;
  return Value::integer(part.empty() ? count_characters(text) + 1 : count);
}

Value join(Call& call) {
  TextBuilder text;
  bool is_first = true;
  for (const Value& value : call.evaluator.elements(call[0])) {
    TRIREME_CHECK(value.if_text(), DataError, "sequence item: expected str instance, {} found", value.type_name());
    if (!std::exchange(is_first, false)) text += call.subject();
    text += *value.if_text();
  }
  return Value::text(text.take());
}

Value lines_of(Call& call) {
  Values lines;
  for (std::string& line : split_lines(call.subject(), call.truth_or(0, false))) {
    lines.push_back(Value::text(std::move(line)));
  }
  return Value::list(std::move(lines));
}

template <bool is_prefix>
Value without(Call& call) {
  std::string_view text = call.subject();
  const std::string part = call.text(0);
  if (is_prefix && text.starts_with(part)) text.remove_prefix(part.size());
  if (!is_prefix && text.ends_with(part)) text.remove_suffix(part.size());
  return Value::text(std::string(text));
}

/// Returns whether the text has characters and `holds` for all of them.
template <bool (*holds)(char32_t)>
Value all_characters(Call& call) {
  bool result = !call.subject().empty();
  for_each_character(call.subject(),
                     [&](Utf8Character c, std::string_view) { result = result && holds(c.code_point); });
  return Value::boolean(result);
}

bool is_digit(char32_t c) {
  TRIREME_CHECK(c < 0x80 || category_of(c) != UTF8PROC_CATEGORY_NO, DataError,
                "'isdigit' of digits outside decimal numbers is not supported");
  return category_of(c) == UTF8PROC_CATEGORY_ND;
}

/// str.format with fields "{}", "{0}" and "{name}".
Value format(Call& call) {
  const std::string& form = call.subject();
  TextBuilder text;
  std::size_t next = 0;
  for (std::size_t i = 0; i < form.size(); ++i) {
    const char c = form[i];
    if ((c == '{' || c == '}') && i + 1 < form.size() && form[i + 1] == c) {
      text += form.substr(++i, 1);
      continue;
    }
    TRIREME_CHECK(c != '}', DataError, "Single '}}' encountered in format string");
    if (c != '{') {
      text += form.substr(i, 1);
      continue;
    }
    const std::size_t end = form.find('}', i);
    TRIREME_CHECK(end != form.npos, DataError, "expected '}}' before end of string");
    const std::string field = form.substr(i + 1, end - i - 1);
    const auto number = field.empty() ? std::optional(next++) : parse_number<std::size_t>(field);
    const auto named = std::ranges::find(call.any.named, field, &std::pair<std::string, Value>::first);
    TRIREME_CHECK(number ? *number < call.any.positional.size() : named != call.any.named.end(), DataError,
                  "the field '{{{}}}' of a format has no argument, or its form is not supported", field);
    text += text_of(number ? call.any.positional[*number] : named->second);
    i = end;
  }
  return Value::text(text.take());
}

constexpr Builtin text_methods[] = {
    {"strip", "[chars]", strip<Side::both>},
    {"lstrip", "[chars]", strip<Side::left>},
    {"rstrip", "[chars]", strip<Side::right>},
    {"split", "[sep] [maxsplit]", split_method<false>},
    {"rsplit", "[sep] [maxsplit]", split_method<true>},
    {"splitlines", "[keepends]", lines_of},
    {"startswith", "prefix [start] [end]", begins<true>},
    {"endswith", "suffix [start] [end]", begins<false>},
    {"removeprefix", "prefix", without<true>},
    {"removesuffix", "suffix", without<false>},
    {"replace", "old new [count]",
     [](Call& call) {
       return Value::text(replaced(call.subject(), call.text(0), call.text(1), call.integer_or(2, -1)));
     }},
    {"upper", "", converted<upper_case>},
    {"lower", "", converted<lower_case>},
    {"title", "", converted<title_case>},
    {"capitalize", "", converted<capitalized>},
    {"find", "sub [start] [end]", find_method_of_text<false>},
    {"rfind", "sub [start] [end]", find_method_of_text<true>},
    {"index", "sub [start] [end]", find_method_of_text<false>},
    {"rindex", "sub [start] [end]", find_method_of_text<true>},
    {"count", "sub [start] [end]", count_text},
    {"join", "iterable", join},
    {"format", "*", format},
    {"isdigit", "", all_characters<is_digit>},
    {"isalpha", "", all_characters<is_letter>},
    {"isspace", "", all_characters<is_space>},
};
constexpr std::array<std::string_view, 20> other_text_methods{
    "casefold",  "center",    "encode",     "expandtabs",  "format_map",   "isalnum", "isascii",
    "isdecimal", "islower",   "isnumeric",  "isprintable", "isidentifier", "istitle", "isupper",
    "ljust",     "partition", "rpartition", "rjust",       "swapcase",     "zfill"};

template <bool has_keys, bool has_values>
Value view(Call& call) {
  Values values;
  for (const auto& [key, value] : call.self.if_mapping()->entries) {
    values.push_back(has_keys && has_values ? Value::sequence(Sequence::Kind::tuple, {key, value})
                     : has_keys             ? key
                                            : value);
  }
  return Value::sequence(Sequence::Kind::view, std::move(values));
}

Value get(Call& call) {
  const Value* found = call.self.if_mapping()->find(call[0]);
  return found != nullptr ? *found : call.value_or(1, Value());
}

constexpr Builtin mapping_methods[] = {
    {"items", "", view<true, true>},
    {"keys", "", view<true, false>},
    {"values", "", view<false, true>},
    {"get", "key [default]", get},
    {"copy", "", [](Call& call) { return call.self; }},
};

Value index_of(Call& call) {
  const Values& values = call.self.if_sequence()->values;
  const auto found = std::ranges::find_if(values, [&](const Value& value) { return equal(value, call[0]); });
  TRIREME_CHECK(found != values.end(), DataError, "the value is not in the list");
  return Value::integer(found - values.begin());
}

constexpr Builtin list_methods[] = {
    {"index", "value", index_of},
    {"count", "value",
     [](Call& call) {
       return Value::integer(
           std::ranges::count_if(call.self.if_sequence()->values, [&](const Value& v) { return equal(v, call[0]); }));
     }},
    {"copy", "", [](Call& call) { return call.self; }},
};

constexpr std::array<std::string_view, 5> changing_mapping_methods{"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 8> changing_list_methods{"append", "clear",  "extend",  "insert",
                                                                "pop",    "remove", "reverse", "sort"};

}  // namespace

const Builtin* find_method(const Value& value, std::string_view name) {
  const bool is_list = value.if_sequence() && value.if_sequence()->kind <= Sequence::Kind::tuple;
  const Builtin* found = value.if_text()      ? find_in(text_methods, name)
                         : value.if_mapping() ? find_in(mapping_methods, name)
                         : is_list            ? find_in(list_methods, name)
                                              : nullptr;
  const bool is_other = value.if_text() && std::ranges::find(other_text_methods, name) != other_text_methods.end();
  TRIREME_CHECK(!is_other, DataError, "the method '{}' of a text is not supported", name);
  return found;
}

bool changes_value(const Value& value, std::string_view name) {
  const auto is_in = [&](const auto& names) { return std::ranges::find(names, name) != names.end(); };
  if (value.if_mapping()) return is_in(changing_mapping_methods);
  return value.if_sequence() && value.if_sequence()->kind == Sequence::Kind::list && is_in(changing_list_methods);
}

}  // namespace trireme::data::jinja
