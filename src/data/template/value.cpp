#include "src/data/template/value.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "src/base/check.hpp"
#include "src/base/utf8.hpp"
#include "src/data/text/unicode.hpp"

namespace trireme::data::jinja {
namespace {

void check_size(std::size_t weight, int depth) {
  TRIREME_CHECK(weight <= max_weight, DataError, "a value takes more than {} bytes", max_weight);
  TRIREME_CHECK(depth <= max_value_depth, DataError, "a value nests deeper than {} levels", max_value_depth);
}

constexpr std::int64_t truths[] = {0, 1};

/// Returns whether Python's repr() shows the character as it is.
bool is_printable(char32_t c) {
  switch (category_of(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

std::string quoted(const std::string& text) {
  const char quote = text.find('\'') != text.npos && text.find('"') == text.npos ? '"' : '\'';
  std::string result(1, quote);
  for_each_character(text, [&](Utf8Character c, std::string_view bytes) {
    const char32_t code = c.code_point;
    const auto number = static_cast<std::uint32_t>(code);
    if (bytes[0] == quote || bytes[0] == '\\') {
      result += '\\';
      result += bytes;
    } else if (code == '\n' || code == '\r' || code == '\t') {
      result += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
    } else if (is_printable(code)) {
      result += bytes;
    } else {
      result += number < 0x100     ? fmt::format("\\x{:02x}", number)
                : number < 0x10000 ? fmt::format("\\u{:04x}", number)
                                   : fmt::format("\\U{:08x}", number);
    }
  });
  return result + quote;
}

void write_json_text(const std::string& text, bool ascii, TextBuilder& out) {
  out += "\"";
  for_each_character(text, [&](Utf8Character c, std::string_view bytes) {
    constexpr std::string_view escaped = "\"\\\n\r\t\b\f", letters = "\"\\nrtbf";
    const auto code = static_cast<std::uint32_t>(c.code_point);
    if (const std::size_t at = bytes.size() == 1 ? escaped.find(bytes[0]) : escaped.npos; at != escaped.npos) {
      out += std::string{'\\', letters[at]};
    } else if (code < 0x20 || (ascii && code > 0x7E && code < 0x10000)) {
      out += fmt::format("\\u{:04x}", code);
    } else if (ascii && code >= 0x10000) {
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + (code & 0x3FF));
    } else {
      out += bytes;
    }
  });
  out += "\"";
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonForm& form) : form_(form) {}

  void write(const Value& value, int level) {
    if (const auto* text = value.if_text()) return write_json_text(*text, form_.ascii, out_);
    if (const auto* sequence = value.if_sequence(); sequence && sequence->kind <= Sequence::Kind::tuple) {
      return write_all("[", sequence->values, "]", level, [&](const Value& item) { write(item, level + 1); });
    }
    if (const auto* mapping = value.if_mapping()) {
      Entries sorted;
      if (form_.sorted) {
        sorted = mapping->entries;
        std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) { return less(a.first, b.first); });
      }
      return write_all("{", form_.sorted ? sorted : mapping->entries, "}", level, [&](const auto& entry) {
        const Value& key = entry.first;
        TRIREME_CHECK(key.if_text() || key.is_none() || key.is_number(), DataError,
                      "keys must be str, int, float, bool or None, not {}", key.type_name());
        write_json_text(key.if_text() ? *key.if_text() : scalar(key), form_.ascii, out_);
        out_ += form_.colon;
        write(entry.second, level + 1);
      });
    }
    out_ += scalar(value);
  }
  std::string take() { return out_.take(); }

 private:
  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is_boolean()) return value ? "true" : "false";
    const double* number = value.get<double>();
    if (number != nullptr && !std::isfinite(*number)) {
      return std::isnan(*number) ? "NaN" : *number > 0 ? "Infinity" : "-Infinity";
    }
    TRIREME_CHECK(value.is_number(), DataError, "Object of type {} is not JSON serializable", value.type_name());
    return text_of(value);
  }

  template <class Items, class Write>
  void write_all(const char* begin, const Items& items, const char* end, int level, const Write& write_item) {
    out_ += begin;
    bool is_first = true;
    for (const auto& item : items) {
      if (!std::exchange(is_first, false)) out_ += form_.comma;
      new_line(level + 1);
      write_item(item);
    }
    if (!items.empty()) new_line(level);
    out_ += end;
  }
  void new_line(int level) {
    if (!form_.is_indented) return;
    out_ += "\n";
    for (int i = 0; i < level; ++i) out_ += form_.indent;
  }

  const JsonForm& form_;
  TextBuilder out_;
};

void write_representation(const Value& value, TextBuilder& out) {
  if (const auto* text = value.if_text()) {
    out += quoted(*text);
  } else if (const auto* sequence = value.if_sequence()) {
    const bool is_tuple = sequence->kind == Sequence::Kind::tuple;
    TRIREME_CHECK(is_tuple || sequence->kind == Sequence::Kind::list, DataError,
                  "the text of a {} is not supported: add the filter 'list'", value.type_name());
    out += is_tuple ? "(" : "[";
    for (std::size_t i = 0; i < sequence->values.size(); ++i) {
      if (i > 0) out += ", ";
      write_representation(sequence->values[i], out);
    }
    out += is_tuple ? sequence->values.size() == 1 ? ",)" : ")" : "]";
  } else if (const auto* mapping = value.if_mapping()) {
    out += "{";
    for (std::size_t i = 0; i < mapping->entries.size(); ++i) {
      if (i > 0) out += ", ";
      write_representation(mapping->entries[i].first, out);
      out += ": ";
      write_representation(mapping->entries[i].second, out);
    }
    out += "}";
  } else {
    TRIREME_CHECK(!value.if_undefined(), DataError, "the text of a list with an undefined value is not supported");
    out += text_of(value);
  }
}

}  // namespace

Sequence::Sequence(Kind kind_of_values, Values all) : kind(kind_of_values), values(std::move(all)) {
  for (const Value& value : values) {
    weight = std::min(weight + value.weight() + 2, max_weight + 1);
    depth = std::max(depth, value.depth() + 1);
  }
  check_size(weight, depth);
}

Mapping::Mapping(Entries all) : entries(std::move(all)) {
  for (const auto& [key, value] : entries) {
    weight = std::min(weight + key.weight() + value.weight() + 4, max_weight + 1);
    depth = std::max({depth, key.depth() + 1, value.depth() + 1});
  }
  check_size(weight, depth);
}

const Value* Mapping::find(const Value& key) const {
  const auto found = std::ranges::find_if(entries, [&](const auto& entry) { return equal(entry.first, key); });
  return found == entries.end() ? nullptr : &found->second;
}

Value Value::text(std::string value) {
  check_size(value.size(), 1);
  return Value(Content(std::make_shared<const std::string>(std::move(value))));
}

const std::int64_t* Value::if_integer() const {
  if (const bool* truth = get<bool>()) return &truths[*truth ? 1 : 0];
  return get<std::int64_t>();
}

double Value::as_double() const {
  if (const std::int64_t* integer = if_integer()) return static_cast<double>(*integer);
  return *get<double>();
}

Value::operator bool() const {
  if (if_undefined() || is_none()) return false;
  if (const std::int64_t* integer = if_integer()) return *integer != 0;
  if (const double* number = get<double>()) return *number != 0;
  if (const std::string* text = if_text()) return !text->empty();
  if (const Sequence* sequence = if_sequence()) {
    return sequence->kind == Sequence::Kind::generator || !sequence->values.empty();
  }
  if (const Mapping* mapping = if_mapping()) return !mapping->entries.empty();
  return true;
}

const char* Value::type_name() const {
  constexpr std::array<const char*, 11> names{"Undefined", "NoneType", "bool",      "int",         "float",   "str",
                                              "list",      "dict",     "Namespace", "LoopContext", "function"};
  if (const Sequence* sequence = if_sequence()) {
    constexpr std::array<const char*, 4> kinds{"list", "tuple", "dict_items", "generator"};
    return kinds[static_cast<std::size_t>(sequence->kind)];
  }
  return names[content_.index()];
}

std::size_t Value::weight() const {
  if (const std::string* text = if_text()) return text->size() + 1;
  if (const Sequence* sequence = if_sequence()) return sequence->weight;
  if (const Mapping* mapping = if_mapping()) return mapping->weight;
  return 1;
}

int Value::depth() const {
  if (const Sequence* sequence = if_sequence()) return sequence->depth;
  if (const Mapping* mapping = if_mapping()) return mapping->depth;
  const auto* callable = get<Callable>();
  return callable != nullptr && callable->self ? callable->self->depth() + 1 : 0;
}

std::string number_text(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
  std::array<char, 512> buffer{};
  const double size = std::abs(value);
  const bool is_plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                 is_plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer.data(), end.ptr);
  if (is_plain && text.find('.') == text.npos) text += ".0";
  return text;
}

std::string text_of(const Value& value) {
  if (value.if_undefined()) return {};
  if (value.is_none()) return "None";
  if (const bool* truth = value.get<bool>()) return *truth ? "True" : "False";
  if (const auto* integer = value.get<std::int64_t>()) return fmt::format("{}", *integer);
  if (const auto* number = value.get<double>()) return number_text(*number);
  if (const auto* text = value.if_text()) return *text;
  TRIREME_CHECK(value.if_sequence() || value.if_mapping(), DataError, "the text of a {} is not supported",
                value.type_name());
  TextBuilder out;
  write_representation(value, out);
  return out.take();
}

std::string representation(const Value& value) { return value.if_text() ? quoted(*value.if_text()) : text_of(value); }

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const auto *x = a.if_integer(), *y = b.if_integer();
    return x && y ? *x == *y : a.as_double() == b.as_double();
  }
  if (a.if_text() && b.if_text()) return *a.if_text() == *b.if_text();
  if (const Sequence* x = a.if_sequence(), *y = b.if_sequence(); x && y) {
    return x == y ||
           (x->kind == y->kind && x->kind <= Sequence::Kind::tuple && std::ranges::equal(x->values, y->values, equal));
  }
  if (const Mapping* x = a.if_mapping(), *y = b.if_mapping(); x && y) {
    return x == y || (x->entries.size() == y->entries.size() && std::ranges::all_of(x->entries, [&](const auto& entry) {
                        const Value* other = y->find(entry.first);
                        return other != nullptr && equal(entry.second, *other);
                      }));
  }
  if (a.if_namespace() || b.if_namespace()) return a.if_namespace() == b.if_namespace();
  return (a.is_none() && b.is_none()) || (a.if_undefined() && b.if_undefined());
}

bool less(const Value& a, const Value& b, const char* sign) {
  if (a.is_number() && b.is_number()) {
    const auto *x = a.if_integer(), *y = b.if_integer();
    return x && y ? *x < *y : a.as_double() < b.as_double();
  }
  if (a.if_text() && b.if_text()) return *a.if_text() < *b.if_text();
  if (const Sequence* x = a.if_sequence(), *y = b.if_sequence();
      x && y && x->kind == y->kind && x->kind <= Sequence::Kind::tuple) {
    const auto [one, other] = std::ranges::mismatch(x->values, y->values, equal);
    return one == x->values.end() || other == y->values.end() ? x->values.size() < y->values.size()
                                                              : less(*one, *other, sign);
  }
  for (const Value* value : {&a, &b}) {
    if (const Undefined* undefined = value->if_undefined()) throw DataError("{}", *undefined->reason);
  }
  throw DataError("'{}' not supported between instances of '{}' and '{}'", sign, a.type_name(), b.type_name());
}

std::string to_json(const Value& value, const JsonForm& form) {
  JsonWriter writer(form);
  writer.write(value, 0);
  return writer.take();
}

void set_entry(Entries& entries, const Value& key, Value value) {
  TRIREME_CHECK(!key.if_mapping() && !(key.if_sequence() && key.if_sequence()->kind == Sequence::Kind::list), DataError,
                "unhashable type: '{}'", key.type_name());
  const auto found = std::ranges::find_if(entries, [&](const auto& entry) { return equal(entry.first, key); });
  if (found == entries.end()) {
    entries.emplace_back(key, std::move(value));
  } else {
    found->second = std::move(value);
  }
}

TextBuilder& TextBuilder::operator+=(std::string_view more) {
  check_size(text_.size() + more.size(), 1);
  text_ += more;
  return *this;
}

}  // namespace trireme::data::jinja
