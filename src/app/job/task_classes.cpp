#include "src/app/job/task_classes.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "src/app/manual/terminal_text.hpp"
#include "src/base/text.hpp"
#include "src/train/finetune/finetune_task.hpp"

namespace trireme::app {
namespace {

std::vector<std::string_view> tasks_of(const Attributes& attributes, const model::ModelConfig& config) {
  const std::vector<std::string> names = telling_class_names_of(attributes);
  std::vector<std::string_view> tasks;
  for (const std::string_view name : train::task_names()) {
    const train::FinetuneTask task{.name = name};
    model::ModelConfig wanted = config;
    task.set_output(wanted);
    if (wanted.output != config.output || wanted.classes != config.classes) continue;
    const std::vector<std::string_view> given(names.begin(), names.end());
    const bool has_names = !task.glue() || names.empty() ||
                           std::ranges::all_of(find_glue_classes(*task.glue(), given), [](auto i) { return i >= 0; });
    if (has_names) tasks.push_back(name);
  }
  return tasks;
}

}  // namespace

std::vector<std::string> class_names_of(const Attributes& attributes) {
  if (!attributes.contains(class_names_attribute)) return {};
  const std::string text = attributes.get<std::string>(class_names_attribute);
  const std::vector<std::string_view> names = split(text, '\n');
  return {names.begin(), names.end()};
}

std::vector<std::string> telling_class_names_of(const Attributes& attributes) {
  std::vector<std::string> names = class_names_of(attributes);
  const bool tells_nothing = std::ranges::all_of(names, [](const std::string& name) {
    return name.starts_with("LABEL_") || name.find_first_not_of("0123456789") == name.npos;
  });
  if (tells_nothing) names.clear();
  return names;
}

std::string measuring_command(const Attributes& attributes, const model::ModelConfig& config, const std::string& load) {
  std::vector<std::string_view> tasks = tasks_of(attributes, config);
  const std::string trained = attributes.contains("data.task") ? attributes.get<std::string>("data.task") : "";
  if (!trained.empty()) tasks = {trained};
  if (tasks.empty()) return "";
  const bool is_one = tasks.size() == 1;
  return fmt::format("trireme eval --task {} --load {} --data-path FILE{}", is_one ? tasks.front() : "TASK",
                     shell_word(load), is_one ? "" : fmt::format(", with its TASK of {}", fmt::join(tasks, ", ")));
}

}  // namespace trireme::app
