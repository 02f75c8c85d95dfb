#include "src/app/run_config/model_options.hpp"

#include "src/app/options/field_names.hpp"

namespace trireme::app {
namespace {

std::size_t row_of(std::string_view option) {
  const auto fields = model::fields();
  std::size_t row = 0;
  while (row < fields.size() && (fields[row].help.empty() || fields[row].name() != option)) ++row;
  TRIREME_CHECK(row < fields.size(), ConfigError, "no field has the option {}", option);
  return row;
}

}  // namespace

void FieldOptions::declare(Options& options, std::optional<model::FieldRole> role) {
  for (std::size_t row = 0; row < slots_.size(); ++row) {
    const model::Field& field = model::fields()[row];
    if (field.help.empty() || (role && field.role != *role)) continue;
    Slot& slot = slots_[row];
    const bool is_real = std::holds_alternative<double>(field.get({}));
    const std::string names(field.option), help = with_own_flags(field.help);
    const std::string placeholder(!field.placeholder.empty() ? field.placeholder : is_real ? "X" : "N");
    if (field.is_flag()) {
      options.add_flag(names, &slot.flag, help);
    } else if (!field.names.empty()) {
      std::vector<Choice<std::optional<std::int64_t>>> choices;
      for (const std::string_view name : field.names) {
        if (!name.empty()) choices.push_back({name, field.index_of(name)});
      }
      options.add_choice(names, &slot.integer, std::move(choices), help);
    } else if (field.is_list) {
      options.add(names, &slot.items, placeholder, help);
    } else if (is_real) {
      options.add(names, &slot.number, placeholder, help, field.range);
    } else {
      options.add(names, &slot.integer, placeholder, help, field.range);
    }
  }
}

std::optional<model::FieldValue> FieldOptions::value_of(std::size_t row) const {
  const Slot& slot = slots_[row];
  if (slot.flag) return model::fields()[row].flag_value();
  if (slot.integer) return *slot.integer;
  if (slot.number) return *slot.number;
  if (!slot.items.empty()) {
    const model::Field& field = model::fields()[row];
    const std::string text = fmt::format("{}", fmt::join(slot.items, ","));
    TRIREME_CHECK(field.admits_list(text), ConfigError, "{}",
                  with_flags(fmt::format("{} {} is not a list of {}", field.tag(), text.empty() ? "''" : text,
                                         field.items_text())));
    return text;
  }
  return std::nullopt;
}

std::optional<model::FieldValue> FieldOptions::value(std::string_view option) const { return value_of(row_of(option)); }

std::optional<std::int64_t> FieldOptions::integer(std::string_view option) const {
  return slots_[row_of(option)].integer;
}

void FieldOptions::set(std::string_view option, const model::FieldValue& value) {
  Slot& slot = slots_[row_of(option)];
  if (const auto* const real = std::get_if<double>(&value)) slot.number = *real;
  if (const auto* const integer = std::get_if<std::int64_t>(&value)) slot.integer = *integer;
  if (const auto* const text = std::get_if<std::string>(&value)) slot.items = {*text};
}

void FieldOptions::apply(model::ModelConfig& config) const {
  for (std::size_t row = 0; row < slots_.size(); ++row) {
    if (const auto given = value_of(row)) model::fields()[row].set(config, *given);
  }
}

void FieldOptions::check(const model::ModelConfig& config, Problems& problems) const {
  for (std::size_t row = 0; row < slots_.size(); ++row) {
    const model::Field& field = model::fields()[row];
    problems.expect(!value_of(row) || field.needs.met == nullptr || field.needs.met(config),
                    with_flags(fmt::format("{} needs {}", field.tag(), field.needs.words)));
  }
}

void FieldOptions::forget_form() {
  for (std::size_t row = 0; row < slots_.size(); ++row) {
    if (model::fields()[row].role == model::FieldRole::form) slots_[row] = {};
  }
}

}  // namespace trireme::app
