#include "src/train/finetune/finetune_task.hpp"

#include <algorithm>

#include "src/data/tasks/race.hpp"

namespace trireme::train {

std::vector<std::string_view> task_names() {
  std::vector<std::string_view> names = {"RACE"};
  for (const data::GlueTask& task : data::glue_tasks()) names.push_back(task.name);
  names.push_back("SQUAD");
  return names;
}

std::span<const data::Metric> FinetuneTask::metrics() const {
  static constexpr data::Metric squad[] = {data::Metric::f1};
  return is_squad() ? squad : glue() != nullptr ? glue()->metrics : data::accuracy_only;
}

void FinetuneTask::set_output(model::ModelConfig& config) const {
  config.output = is_race()    ? model::ModelOutput::choices
                  : is_squad() ? model::ModelOutput::spans
                               : model::ModelOutput::classes;
  if (is_race()) config.classes = data::race_choices;
  if (const data::GlueTask* task = glue()) config.classes = std::max<std::int64_t>(std::ssize(task->classes), 1);
}

}  // namespace trireme::train
