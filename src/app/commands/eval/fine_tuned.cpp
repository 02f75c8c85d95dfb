#include "src/app/commands/eval/fine_tuned.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "src/app/commands/finetune/task_data.hpp"
#include "src/app/commands/finetune/task_results.hpp"
#include "src/app/job/task_classes.hpp"
#include "src/base/log.hpp"
#include "src/train/finetune/epoch_scoring.hpp"
#include "src/train/finetune/task_scoring.hpp"

namespace trireme::app {
namespace {

/// Throws CheckpointError unless the model has a head for the task.
void check_task(const train::FinetuneTask& task, const std::string& load, const checkpoint::RunDescription& description,
                const model::ModelConfig& config) {
  TRIREME_CHECK(!config.predicts_tokens(), CheckpointError,
                "{1} holds a pretrained model without a head for {0}. Train one: trireme finetune --task {0} "
                "--pretrained-checkpoint {1} --train-data FILE... --valid-data FILE... --lr X --save DIR",
                task.name, load);
  const auto& attributes = description.attributes;
  model::ModelConfig wanted = config;
  task.set_output(wanted);
  const bool is_other = attributes.contains("data.task") && attributes.get<std::string>("data.task") != task.name;
  TRIREME_CHECK(!is_other, CheckpointError, "{0} holds a model fine-tuned for {1}. Give --task {1}", load,
                attributes.get<std::string>("data.task"));
  const std::string command = measuring_command(attributes, config, load);
  const auto outputs = [&](std::int64_t classes) {
    const char* unit = wanted.output == model::ModelOutput::choices ? "choices" : "classes";
    return classes == 1 ? "a single value" : fmt::format("{} {}", classes, unit);
  };
  TRIREME_CHECK(config.output == wanted.output && config.classes == wanted.classes, CheckpointError,
                "{} holds a model with another head than {} needs: {}. Try {}", load, task.name,
                config.output != wanted.output
                    ? "of another kind"
                    : fmt::format("{} instead of {}", outputs(config.classes), outputs(wanted.classes)),
                command.empty() ? "a model fine-tuned for the task" : command);
}

/// Returns, for each class of a GLUE task, the column of the model's scores: an imported model has its own order and
/// names. Empty if the order is that of the program, also for classes without names.
std::vector<std::int64_t> columns_by_name(const train::FinetuneTask& task, const Attributes& attributes, bool logs) {
  const std::vector<std::string> names = class_names_of(attributes);
  if (!task.glue() || task.is_regression() || (names.empty() && attributes.contains("data.task"))) return {};
  if (telling_class_names_of(attributes).empty()) {
    if (logs) {
      log::info(
          "the model's classes have no names, and are taken for {}. If their order is another, name them in "
          "config.json, as id2label, and import the model again",
          fmt::join(glue_names(*task.glue()), ", "));
    }
    return {};
  }
  if (logs) log::info("the model's classes are {}", fmt::join(names, ", "));
  std::vector<std::int64_t> columns =
      find_glue_classes(*task.glue(), std::vector<std::string_view>(names.begin(), names.end()));
  const auto absent = std::ranges::find_if(columns, [](std::int64_t column) { return column < 0; });
  TRIREME_CHECK(absent == columns.end(), CheckpointError,
                "the model's classes are {}, and none is {}: it was not fine-tuned for {}. If it was, name its classes "
                "in config.json, as id2label, and import it again",
                fmt::join(names, ", "), glue_names(*task.glue())[static_cast<std::size_t>(absent - columns.begin())],
                task.name);
  return columns;
}

/// Puts the scores into the program's order, and computes the loss of that.
void reorder(const std::vector<std::int64_t>& columns, const data::TaskSamples& samples, train::TaskScores& scores) {
  if (columns.empty()) return;
  const std::vector<double> given = scores.scores;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i) / scores.columns,
               column = static_cast<std::int64_t>(i) % scores.columns;
    scores.scores[i] =
        given[static_cast<std::size_t>(row * scores.columns + columns[static_cast<std::size_t>(column)])];
  }
  train::TaskScores probabilities = scores;
  to_probabilities(probabilities);
  scores.loss = 0;
  for (std::int64_t i = 0; i < samples.labels(); ++i) {
    const std::int64_t place = i * scores.columns + samples.label(i);
    scores.loss -=
        std::log(probabilities.scores[static_cast<std::size_t>(place)]) / static_cast<double>(samples.labels());
  }
}

}  // namespace

void evaluate_fine_tuned(const EvalOptions& o, Job& job, const ModelSettler& settle) {
  std::vector<train::TaskSplit> splits;
  std::vector<std::vector<train::TaskScores>> scores(o.data_paths.size());  // by file, then by model
  std::string tokenizer_digest;
  std::optional<std::int64_t> sequence_length;
  std::vector<std::string> models = {o.model.load};
  models.insert(models.end(), o.ensemble.begin(), o.ensemble.end());
  for (const std::string& load : models) {
    SavedModelOptions options = o.model;
    options.load = load;
    std::unique_ptr<SavedModel> saved = load_model(
        job, options,
        [&](const model::ModelConfig& config, train::ExecutionConfig& execution) {
          settle(config, execution);
          // All models read the same samples.
          execution.sequence_length = sequence_length.value_or(execution.sequence_length);
          model::check_sequence_length(config, execution.sequence_length);
          sequence_length = execution.sequence_length;
          execution.micro_batch_size *= config.samples_per_label();
        },
        [&](const checkpoint::RunDescription& description, const model::ModelConfig& config) {
          check_task(o.fine_tuned.task, load, description, config);
        });
    const Attributes& attributes = saved->description.attributes;
    const std::string ids_digest =
        data::ids_digest_of(attributes.get<std::string>("tokenizer"), tokenizer_payload(saved->description));
    if (splits.empty()) {
      TaskTokenizer tokenizer;
      collectively(*job.world, [&] {
        tokenizer = make_task_tokenizer(attributes.get<std::string>("tokenizer"), tokenizer_payload(saved->description),
                                        saved->model->config().is_bert());
      });
      tokenizer_digest = ids_digest;
      for (const std::string& path : o.data_paths) {
        splits.push_back(read_task(*job.world, o.fine_tuned, {path}, tokenizer,
                                   saved->model->execution().sequence_length, SplitUse::test));
      }
    }
    TRIREME_CHECK(ids_digest == tokenizer_digest, CheckpointError,
                  "{} has another tokenizer than {}: models of an ensemble read the same tokens", load, models.front());
    const std::vector<std::int64_t> columns = columns_by_name(o.fine_tuned.task, attributes, job.is_root());
    for (std::size_t i = 0; i < splits.size(); ++i) {
      scores[i].push_back(score_samples(*saved->model, *splits[i].samples));
      reorder(columns, *splits[i].samples, scores[i].back());
      check_finite(scores[i].back().are_finite(), load, *saved);
    }
  }
  for (std::size_t i = 0; i < splits.size(); ++i) {
    const double mean_loss = scores[i].front().loss;
    const bool is_one = scores[i].size() == 1;
    const train::TaskScores all =
        is_one ? std::move(scores[i].front()) : mean_of(o.fine_tuned.task, std::move(scores[i]));
    const train::TaskResult result = measure(o.fine_tuned.task, splits[i], all);
    const std::string suffix = splits.size() == 1 ? "" : fmt::format(".{}", i);
    collectively(*job.world, [&] {
      if (job.is_root()) write_predictions(o.fine_tuned, splits[i], result, suffix);
    });
    if (!job.is_root()) continue;
    fmt::print("{{\"task\": \"{}\", \"data\": {}, {}{}}}\n", o.fine_tuned.task.name, quoted(o.data_paths[i]),
               json_of(result),
               is_one && splits[i].has_labels && !splits[i].squad ? fmt::format(", \"loss\": {:.17g}", mean_loss) : "");
    std::fflush(stdout);
  }
}

}  // namespace trireme::app
