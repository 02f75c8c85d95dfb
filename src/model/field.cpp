// Names, texts and values of a field, for options, messages and checkpoints.
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"
#include "src/model/fields.hpp"

namespace trireme::model {

FieldValue Field::flag_value() const {
  if (flag >= 0) return std::int64_t{flag};
  return !std::get<bool>(get(ModelConfig()));
}

std::string_view Field::name() const { return option.empty() ? attribute : option.substr(0, option.find(',')); }

std::string Field::key() const {
  return role == FieldRole::training ? fmt::format("training.{}", name()) : fmt::format("model.{}", attribute);
}

std::string Field::tag() const {
  std::string text = fmt::format("<{}>", name());
  std::ranges::replace(text, '-', '_');
  return text;
}

std::optional<std::int64_t> Field::index_of(std::string_view text) const {
  const auto found = std::ranges::find(names, text);
  if (found == names.end() || text.empty()) return std::nullopt;
  return found - names.begin();
}

bool Field::admits_list(std::string_view text) const {
  return !text.empty() && std::ranges::all_of(split(text, ','), [&](std::string_view item) {
    if (!item_names.empty()) return std::ranges::find(item_names, item) != item_names.end();
    const auto number = parse_number<double>(item);
    return number && range.contains(*number);
  });
}

std::string Field::names_text() const {
  std::vector<std::string_view> chosen(names.begin(), names.end());
  if (is_list) chosen.assign(item_names.begin(), item_names.end());
  std::erase(chosen, "");
  return fmt::format("{}", fmt::join(chosen, ", "));
}

std::string Field::items_text() const { return item_names.empty() ? "numbers " + range.text() : names_text(); }

std::optional<double> Field::number(const ModelConfig& config) const {
  const FieldValue value = get(config);
  if (const auto* const real = std::get_if<double>(&value)) return *real;
  if (const auto* const whole = std::get_if<std::int64_t>(&value); whole != nullptr && names.empty()) {
    return static_cast<double>(*whole);
  }
  return std::nullopt;
}

FieldValue Field::read(const Attributes& attributes) const {
  const ModelConfig plain;
  return std::visit(
      [&](const auto& otherwise) -> FieldValue {
        using T = std::decay_t<decltype(otherwise)>;
        if (!names.empty()) {
          const bool is_there = attributes.contains(key());
          const auto index = is_there ? index_of(attributes.get<std::string>(key())) : std::nullopt;
          attributes.require(index.has_value(), key(), "one of " + names_text());
          return *index;
        }
        T value = attributes.get<T>(key());
        if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
          attributes.require(range.contains(static_cast<double>(value)), key(), "a number " + range.text());
        } else if constexpr (std::is_same_v<T, std::string>) {
          attributes.require(!is_list || admits_list(value), key(), "a list of " + items_text());
          if (value == "all") value.clear();
        }
        return value;
      },
      get(plain));
}

std::string Field::text(const FieldValue& value) const {
  return std::visit(
      [&](const auto& v) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(v)>, std::int64_t>) {
          if (static_cast<std::size_t>(v) < names.size()) return std::string(names[static_cast<std::size_t>(v)]);
        }
        return fmt::format("{}", v);
      },
      value);
}

void set_fields(ModelConfig& config, std::string_view words) {
  const std::vector<std::string_view> list = split(words, ' ');
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto field = std::ranges::find(fields(), list[i], &Field::name);
    TRIREME_CHECK(field != fields().end(), ConfigError, "the model has no field '{}'", list[i]);
    if (field->is_flag()) {
      field->set(config, field->flag_value());
      continue;
    }
    TRIREME_CHECK(++i < list.size(), ConfigError, "the field '{}' lacks a value", field->name());
    // Values are spelled as in checkpoints.
    field->set(config, field->read(Attributes{{field->key(), std::string(list[i])}}));
  }
}

}  // namespace trireme::model
