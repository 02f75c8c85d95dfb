#include "src/app/commands/finetune/task_options.hpp"

#include <fmt/ranges.h>

namespace trireme::app {

std::string task_list() {
  const std::vector<std::string_view> names = train::task_names();
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

void TaskOptions::declare(Options& options) {
  options.section("Task");
  std::vector<Choice<std::string_view>> choices;
  for (const std::string_view name : train::task_names()) choices.push_back({name, name});
  options.add_choice(
      "task", &task.name, std::move(choices),
      "RACE: choose one of four answers. SQUAD: find answers as spans of a context, versions 1.1 and "
      "2.0. The others are GLUE's: classify a text (SST-2, CoLA) or the relation of two, or rate the similarity "
      "of two (STS-B).");
  options.add("train-data", &train, "FILE",
              "Training examples: RACE's folders or files of JSON lines, GLUE's TSV files, SQuAD's JSON file.");
  options.add("valid-data", &valid, "FILE",
              "Examples that each epoch is evaluated on, all together. The result lists each file or folder, too.");
  options.add("test-data", &test, "FILE", "Examples that the best epoch is also evaluated on; GLUE's may lack labels.");
  options.add("epochs", &epochs, "N", "Passes over the training examples; 0 only measures the model.", at_least(0));
  options.add(
      "seeds", &seeds, "N",
      "Fine-tune with N seeds, --seed and those after it; print their median and the result of averaged "
      "probabilities or values. Checkpoints go to folders seed-S of --save, metrics to files with the suffix .seed-S.",
      between(1, 1000));
  options.add_choice("on-bad-line", &skip_bad_lines, {{"stop", false}, {"skip", true}},
                     "Unusable lines or questions: an error, or skipped and counted.");
  declare_answers(options);
  options.add("pretrained-checkpoint", &pretrained, "DIR",
              "Weights to start from: a folder of checkpoints, or one step's folder. --load can name them, too.");
  tokenizer.declare(options);
  options.require({"task", "train-data", "valid-data"});
}

void TaskOptions::declare_answers(Options& options) {
  options.add("max-query-length", &task.max_query_length, "N",
              "SQUAD: maximum tokens of a question; the rest is cut off.", countable());
  options.add("doc-stride", &task.doc_stride, "N", "SQUAD: stride in tokens of the windows of a long context.",
              countable());
  options.add("n-best-size", &task.prediction.n_best, "N", "SQUAD: candidate answers that are ranked and written.",
              countable());
  options.add("max-answer-length", &task.prediction.max_answer_length, "N", "SQUAD: maximum tokens of an answer.",
              countable());
  options.add("null-score-diff-threshold", &task.prediction.null_threshold, "X",
              "SQUAD 2.0: predict no answer if its logits exceed those of the best answer by more than X.");
  options.add(
      "predictions-file", &predictions_file, "FILE",
      "Predictions of the best epoch for the test data, or else the validation data. SQUAD: {\"id\": \"text\"}. "
      "GLUE: its lines of number and class or value. RACE: the same, with the number of the question and the letter. "
      "With several seeds, each has a file with the suffix .seed-S, and "
      "FILE has those of averaged probabilities or values.");
  options.add("n-best-file", &n_best_file, "FILE", "SQUAD: the best answers with their probabilities, likewise.");
}

void TaskOptions::check(const Options& options) const {
  for (const char* option : squad_options) {
    TRIREME_CHECK(task.is_squad() || !options.given(option), ConfigError, "--{} is for --task SQUAD", option);
  }
  const std::vector<std::string>& predicted = test.empty() ? valid : test;
  TRIREME_CHECK(predictions_file.empty() || predicted.size() <= 1, ConfigError,
                "--predictions-file needs the examples in one file, not in {} and {}", predicted.at(0),
                predicted.at(1));
  for (const auto* paths : {&train, &valid, &test}) {
    TRIREME_CHECK(!task.is_squad() || paths->size() <= 1, ConfigError,
                  "--task SQUAD: each of the data sets is one file, not {} and {}", paths->at(0), paths->at(1));
  }
}

void TaskOptions::set_output(model::ModelConfig& config) const {
  TRIREME_CHECK(config.is_bert() || !task.is_squad(), CheckpointError,
                "--task SQUAD needs a BERT, but the checkpoint holds a GPT, which does not attend to later text. Give "
                "the checkpoint of a BERT.");
  task.set_output(config);
}

}  // namespace trireme::app
