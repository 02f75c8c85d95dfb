#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/base/error.hpp"
#include "src/model/fields.hpp"

namespace trireme::test {

/// Another value of a field with which `config` stays valid; empty if no candidate is.
inline std::optional<model::FieldValue> other_value(const model::Field& field, const model::ModelConfig& config) {
  std::vector<model::FieldValue> candidates{true, false, std::string("101010101010"), std::string("qkv")};
  for (const std::int64_t i : {1, 2, 3, 24, 64, 96, 142, 512}) candidates.emplace_back(i);
  for (const double x : {0.25, 0.5, 3.0, 500.0}) candidates.emplace_back(x);
  const model::FieldValue present = field.get(config);
  for (const model::FieldValue& value : candidates) {
    if (value.index() != present.index() || value == present) continue;
    if (!field.names.empty()) {
      const auto index = static_cast<std::size_t>(std::get<std::int64_t>(value));
      if (index >= field.names.size() || field.names[index].empty()) continue;
    }
    if (field.is_list && !field.admits_list(std::get<std::string>(value))) continue;
    model::ModelConfig changed = config;
    field.set(changed, value);
    try {
      validate(changed);
      return value;
    } catch (const ConfigError&) {  // not this one
    }
  }
  return std::nullopt;
}

}  // namespace trireme::test
