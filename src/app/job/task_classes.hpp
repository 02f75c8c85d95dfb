#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "src/base/attributes.hpp"
#include "src/model/model_config.hpp"

namespace trireme::app {

/// Attribute with the names of a model's classes, one a line.
inline constexpr const char* class_names_attribute = "task.labels";

/// Returns the names of a model's classes; empty if they are unknown.
std::vector<std::string> class_names_of(const Attributes& attributes);

/// Returns the names that tell something: none of "LABEL_0" or "0".
std::vector<std::string> telling_class_names_of(const Attributes& attributes);

/// Returns the command that measures a model with a head: of the task that it was fine-tuned for, or those with its
/// head and names of classes. Empty if there is none.
std::string measuring_command(const Attributes& attributes, const model::ModelConfig& config, const std::string& load);

}  // namespace trireme::app
