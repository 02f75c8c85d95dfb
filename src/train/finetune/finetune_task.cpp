#include "src/train/finetune/finetune_task.hpp"

#include "src/data/tasks/race.hpp"

namespace trireme::train {

const char* FinetuneTask::name() const {
  return kind == TaskKind::race ? "RACE" : kind == TaskKind::mnli ? "MNLI" : kind == TaskKind::qqp ? "QQP" : "SQUAD";
}

void FinetuneTask::set_output(model::ModelConfig& config) const {
  config.output = kind == TaskKind::race    ? model::ModelOutput::choices
                  : kind == TaskKind::squad ? model::ModelOutput::spans
                                            : model::ModelOutput::classes;
  if (kind == TaskKind::race) config.classes = data::race_choices;
  if (kind == TaskKind::mnli) config.classes = data::classes_of(data::GlueTask::mnli);
  if (kind == TaskKind::qqp) config.classes = data::classes_of(data::GlueTask::qqp);
}

}  // namespace trireme::train
