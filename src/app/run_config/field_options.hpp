#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "src/app/options/options.hpp"
#include "src/app/options/problems.hpp"
#include "src/model/fields.hpp"

namespace trireme::app {

/// Options of the rows of model::fields() that have a help text.
class FieldOptions {
 public:
  /// Declares the options, of one role or of all.
  void declare(Options& options, std::optional<model::FieldRole> role = std::nullopt);
  /// Returns the given value, if any, of the option with the first name `option`.
  std::optional<model::FieldValue> value(std::string_view option) const;
  std::optional<std::int64_t> integer(std::string_view option) const;
  bool given(std::string_view option) const { return value(option).has_value(); }
  void set(std::string_view option, double value);
  /// Sets the given values in `config`.
  void apply(model::ModelConfig& config) const;
  /// Reports given options that do not apply to `config`.
  void check(const model::ModelConfig& config, Problems& problems) const;
  /// Drops the given values, except for sizes and settings of training.
  void forget_form();

 private:
  struct Slot {
    std::optional<std::int64_t> integer;
    std::optional<double> number;
    bool flag = false;
  };
  std::optional<model::FieldValue> value_of(std::size_t row) const;

  std::vector<Slot> slots_ = std::vector<Slot>(model::fields().size());
};

}  // namespace trireme::app
