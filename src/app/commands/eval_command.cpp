#include "src/app/commands/commands.hpp"

#include <cmath>

#include "src/app/job.hpp"
#include "src/app/options/options.hpp"
#include "src/app/run_config/run_attributes.hpp"
#include "src/app/saved_model.hpp"
#include "src/base/log.hpp"
#include "src/train/perplexity.hpp"

namespace trireme::app {

int eval_command(const CommandLine& line) {
  enum class Task { perplexity };
  Task task = Task::perplexity;
  SavedModelOptions model;
  std::string data_path;
  std::int64_t micro_batch_size = 1;
  std::optional<std::int64_t> sequence_length;
  Options options(line.command(), "Measures a trained model.");
  options.section("Task");
  options.add_choice("task", &task, {{"perplexity", Task::perplexity}},
                     "perplexity: of every token of a corpus but the first.");
  options.add("data-path", &data_path, "FILE", "Corpus of the model's tokenizer.");
  options.add("seq-length", &sequence_length, "N", "Tokens of a window; default that of the training.", countable());
  options.add("micro-batch-size", &micro_batch_size, "N", "Windows that one rank works on at a time.", countable());
  model.declare(options);
  options.require("data-path");
  if (!line.read(options)) return 0;

  Job job(line.environment(), options, model.grid, model.device);
  const std::shared_ptr<data::TokenStore> corpus = open_corpus(*job.world, data_path);
  const std::unique_ptr<SavedModel> saved =
      load_model(job, model, [&](const model::ModelConfig& config, train::ExecutionConfig& execution) {
        execution.sequence_length = sequence_length.value_or(execution.sequence_length);
        execution.micro_batch_size = micro_batch_size;
        model::check_sequence_length(config, execution.sequence_length);
      });
  const Attributes& attributes = saved->description.attributes;
  const auto tokenizer_digest = attributes.get<std::string>("data.tokenizer");
  TRIREME_CHECK(
      corpus->info().tokenizer_digest == tokenizer_digest, DataError,
      "{} was built by the tokenizer {} (digest {}), the model was trained with {} (digest {}): build the corpus "
      "with the model's tokenizer",
      corpus->name(), corpus->info().tokenizer, corpus->info().tokenizer_digest,
      attributes.get<std::string>("tokenizer"), tokenizer_digest);
  const train::PerplexityResult result = train::measure_perplexity(*saved->model, *corpus);
  if (job.speaks()) {
    // JSON has no numbers that are not finite.
    const auto number = [](double value) { return std::isfinite(value) ? fmt::format("{:.17g}", value) : "null"; };
    fmt::print("{{\"task\": \"perplexity\", \"tokens\": {}, \"loss\": {}, \"perplexity\": {}}}\n", result.tokens,
               number(result.loss), number(result.perplexity));
    std::fflush(stdout);
  }
  TRIREME_CHECK(
      std::isfinite(result.loss), NumericalError,
      "the loss of {} is not finite: its training diverged, or --dtype {} cannot hold its values; load an earlier "
      "step, or evaluate in fp32",
      model.load, name_of(saved->model->execution().dtype));
  return 0;
}

}  // namespace trireme::app
