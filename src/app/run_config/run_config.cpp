#include "src/app/run_config/run_config.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/base/text.hpp"
#include "src/train/upcycling.hpp"

namespace trireme::app {

RunConfigReader::RunConfigReader(Options& options, RunKind kind) : options_(options) {
  const bool is_task = kind == RunKind::task;
  // In the order of the help.
  if (!is_task) config_.model.declare(options);
  config_.parallel.grid.declare(options);
  config_.device.declare(options);
  options.section("Training");
  config_.batch.declare(options, kind);
  if (is_task) config_.model.declare_training(options);
  options.add("seed", &config_.seed, "N", "Seed of initial weights, dropout and sample order.",
              between(0, 4294967295.0));
  config_.precision.declare(options);
  config_.parallel.declare(options);
  config_.execution.declare(options);
  config_.initialisation.declare(options);
  config_.parallel.sharding.declare(options);
  options.section("Optimizer");
  config_.optimizer.declare(options);
  config_.precision.declare_loss_scale(options);
  if (!is_task) config_.precision.declare_rewinds(options);
  if (!is_task) config_.data.declare(options);
  options.section("Run");
  config_.run.declare_intervals(options, kind);
  config_.checkpoint.declare(options, kind);
  config_.run.declare(options);
  config_.report.declare(options);
}

std::vector<std::string> RunConfigReader::inputs() const {
  std::vector<std::string> files = options_.config_files();
  std::ranges::move(config_.data.files(), std::back_inserter(files));
  files.insert(files.end(), {config_.run.sample_prompts, config_.run.tasks.path});
  return files;
}

std::vector<std::string> RunConfigReader::take_model(const Attributes& stored) {
  model::ModelConfig model = model::config_from(stored);
  TRIREME_CHECK(model.predicts_tokens(), CheckpointError,
                "--use-checkpoint-args: the checkpoint holds a model fine-tuned for a task, not a pretrained one");
  std::vector<std::string> lines = config_.model.take(model);
  FieldOptions& fields = config_.model.fields;
  for (const model::Field& field : model::fields()) {
    // Older checkpoints have no dropout.
    if (field.role != model::FieldRole::training || !stored.contains(field.key())) continue;
    const model::FieldValue there = field.read(stored);
    const auto given = fields.value(field.name());
    if (given && *given != there) {
      lines.push_back(fmt::format("--{} is the checkpoint's {}, instead of {}", field.name(), field.text(there),
                                  field.text(*given)));
    }
    fields.set(field.name(), there);
  }
  if (!config_.batch.sequence_length) config_.batch.sequence_length = data::sequence_length_from(stored);
  return lines;
}

const RunConfig& RunConfigReader::settle(int data_ranks) {
  Problems problems;
  std::optional<model::ModelConfig> model;
  problems.attempt([&] {
    std::optional<std::int64_t>& sequence_length = config_.batch.sequence_length;
    if (!sequence_length) sequence_length = config_.model.default_sequence_length();
    // The vocabulary is not checked: the corpus is not open yet.
    model = config_.model.config(*sequence_length, /*corpus_vocabulary=*/1);
  });
  settle_training(data_ranks, model, problems);
  config_.data.settle(options_, model, problems);
  if (model && model->is_bert()) {
    problems.attempt([&] { data::validate(config_.bert_data_options(*model, {}).samples); });
  }
  config_.run.settle(options_, config_.data, model, problems);
  finish(model, problems);
  return config_;
}

const RunConfig& RunConfigReader::settle(int data_ranks, const TaskRun& task) {
  Problems problems;
  BatchOptions& batch = config_.batch;
  const std::int64_t samples = task.model.samples_per_label();
  batch.sequence_length = task.sequence_length;
  if (!batch.global_batch_size) batch.global_batch_size = batch.micro_batch_size * data_ranks;
  problems.attempt([&] {
    const std::int64_t per_epoch = task.labels / batch.batches(data_ranks).max_size();
    TRIREME_CHECK(
        per_epoch > 0, ConfigError,
        "<global_batch_size> {}: the training data have {} examples, fewer than one batch. Try a smaller one.",
        *batch.global_batch_size, task.labels);
    batch.train_iterations = task.epochs * per_epoch;
    config_.run.schedule.eval_interval = per_epoch;
    const bool saves = !config_.checkpoint.save.empty();
    if (saves && config_.checkpoint.save_interval == 0) config_.checkpoint.save_interval = per_epoch;
  });
  if (!options_.given("lr-warmup-fraction") && !options_.given("lr-warmup-iters")) {
    config_.optimizer.lr_warmup_fraction = 0.065;
  }
  problems.report();
  settle_training(data_ranks, task.model, problems);
  finish(task.model, problems);
  // In samples from here on; the record of the options counts examples.
  batch.micro_batch_size *= samples;
  *batch.global_batch_size *= samples;
  return config_;
}

void RunConfigReader::settle_training(int data_ranks, const std::optional<model::ModelConfig>& model,
                                      Problems& problems) {
  config_.precision.settle(options_, problems);
  config_.batch.settle(options_, data_ranks, problems);
  config_.parallel.settle(config_.precision.dtype, model, problems);
  config_.execution.settle(options_, config_.parallel, config_.device, problems);
  problems.exclude(!config_.parallel.registered_buffers || !config_.device.deterministic, "use-nccl-ub",
                   "deterministic-mode", "NVLink switches add the buffers in an order that may differ");
  problems.exclude(!config_.parallel.registered_buffers || config_.device.communicator != DeviceTransport::staged,
                   "use-nccl-ub", "communicator staged");
  problems.expect(!model || model->predicts_tokens() || config_.execution.cross_entropy_chunks == 1,
                  "--cross-entropy-chunks divides an output layer over the vocabulary, which a task's head is not");
  config_.initialisation.check(options_, problems);
  config_.optimizer.settle(options_, config_.batch, problems);
  optim::OptimizerOptions& optimizer = config_.optimizer.optimizer;
  optimizer.offload = config_.parallel.sharding.offload();
  problems.attempt([&] { optim::check_offload(optimizer); });
  if (optimizer.kind == optim::OptimizerKind::adam) {
    problems.attempt([&] { optim::validate(config_.precision.with_types(optimizer.adamw)); });
  }
  const GridOptions& grid = config_.parallel.grid;
  std::int64_t all_ranks = data_ranks;
  for (const int size : {grid.tensor, grid.pipeline, grid.context}) {
    all_ranks = std::min<std::int64_t>(all_ranks * size, max_ranks + 1);
  }
  problems.expect(all_ranks <= max_ranks, fmt::format("a job has at most {} ranks", max_ranks));
  const int ranks = static_cast<int>(std::min<std::int64_t>(all_ranks, max_ranks));
  if (all_ranks <= max_ranks) problems.attempt([&] { static_cast<void>(grid.of(ranks, data_ranks)); });
  config_.report.settle(ranks, config_.execution.cuda_graphs, problems);
}

void RunConfigReader::finish(const std::optional<model::ModelConfig>& model, Problems& problems) {
  const bool times = config_.run.time_communication;
  problems.need(options_, {"time-communication"}, !config_.run.metrics_file.empty(), "--metrics-file");
  problems.exclude(!times || !config_.execution.cuda_graphs, "time-communication", "cuda-graphs",
                   "recorded waits cannot be timed");
  config_.checkpoint.check(options_, problems);
  if (config_.precision.rewind_on_spike) {
    const CheckpointOptions& checkpoint = config_.checkpoint;
    problems.expect(!checkpoint.save.empty() && checkpoint.save_interval > 0,
                    "--rewind-on-spike needs --save and --save-interval");
    problems.exclude(!checkpoint.no_save_optimizer, "rewind-on-spike", "no-save-optim",
                     "a rewind loads the optimizer's state");
  }
  if (config_.run.schedule.skip_training) config_.checkpoint.save.clear();
  for (const auto& [name, value] : options_.values()) {
    config_.option_values.push_back({name, value, options_.given(name)});
  }
  problems.attempt([&] {
    const train::ExecutionConfig execution = config_.execution_config();
    if (!model) return train::validate(execution);
    const GridOptions& grid = config_.parallel.grid;
    train::validate(execution, *model, grid.expert, grid.expert_tensor.value_or(grid.tensor) != grid.tensor);
    train::validate_fp8(execution, *model, grid.tensor, grid.context);
  });
  if (model && config_.checkpoint.upcycling) {
    problems.attempt([&] { train::Upcycling(*model, config_.checkpoint.upcycling_granularity); });
  }
  problems.exclude(!model || !model->adapters.any() || config_.optimizer.optimizer.kind != optim::OptimizerKind::muon,
                   "lora-rank", "optimizer muon", "it updates matrices of the model, which are frozen");
  const bool splits_qkv = config_.optimizer.optimizer.muon.split_qkv;
  problems.expect(
      !model || splits_qkv || (!model->latent.used && model->kv_heads() == model->heads),
      "--muon-no-split-qkv: grouped queries and latent attention have no single matrix of queries, keys and "
      "values. Leave it out.");
  problems.exclude(!model || !model->adapters.any() || !config_.checkpoint.upcycling, "lora-rank", "moe-use-upcycling",
                   "its routers would stay as they begin");
  problems.report();
}

void RunConfig::record(std::string_view name, std::string value) {
  const auto option = std::ranges::find(option_values, name, &report::OptionValue::name);
  if (option != option_values.end()) option->value = std::move(value);
}

std::string RunConfig::options_text() const {
  std::string text;
  for (const report::OptionValue& option : option_values) {
    text += fmt::format("{}{} = {}\n", option.given ? "" : "# ", option.name, as_utf8(option.value));
  }
  return text;
}

train::ExecutionConfig RunConfig::execution_config() const {
  train::ExecutionConfig config = execution.config(precision.dtype, batch, parallel, data.masking);
  config.fp8 = precision.fp8;
  return config;
}

train::TrainOptions RunConfig::train_options() const {
  optim::OptimizerOptions of_run = optimizer.optimizer;
  of_run.adamw = precision.with_types(of_run.adamw);
  if (optimizer.weight_decay_ramp) of_run.weight_decay = optimizer.weight_decay_ramp->end;
  return {.global_batch_size = *batch.global_batch_size,
          .ramp_up = batch.ramp_up,
          .decrease_batch_size = batch.decrease,
          .loss_average = batch.loss_average,
          .documents = data.documents,
          .seed = seed,
          .lr_schedule = optimizer.lr,
          .optimizer = of_run,
          .weight_decay_ramp = optimizer.weight_decay_ramp,
          .decoupled_rate = optimizer.decoupled_rate,
          .clip_grad = optimizer.clip_grad,
          .grad_norm_power = optimizer.grad_norm_power,
          .loss_scale = precision.loss_scale,
          .max_skipped = precision.max_skipped,
          .guards = precision.guards};
}

train::RunSchedule RunConfig::schedule() const {
  train::RunSchedule schedule = run.schedule;
  schedule.save_interval = checkpoint.save_interval;
  schedule.local_interval = checkpoint.local_interval;
  return schedule;
}

data::RunLength RunConfig::run_length(std::int64_t iterations) const {
  return {.train_iters = iterations,
          .train_samples = batch.train_samples.value_or(0),
          .global_batch_size = *batch.global_batch_size,
          .eval_interval = run.schedule.eval_interval,
          .eval_iters = run.schedule.eval_iterations};
}

data::GptDataOptions RunConfig::gpt_data_options(const model::ModelConfig& config) const {
  return {.sequence_length = *batch.sequence_length,
          .seed = static_cast<std::int64_t>(seed),
          .split_fractions = data.fractions(),
          .split_by = data.split_by,
          .sampling = data.sampling,
          .document_ends = data.documents.eod_mask_loss ? data::DocumentEnds::unlabelled : data::DocumentEnds::labelled,
          .reset_positions = data.documents.reset_position_ids,
          .reset_attention = data.documents.reset_attention_mask,
          .conversations_apart = data.packed_apart,
          .vocabulary_size = config.vocabulary,
          .budgets = {}};
}

data::BertDataOptions RunConfig::bert_data_options(const model::ModelConfig& config,
                                                   data::BertVocabulary vocabulary) const {
  return {.samples = {.sequence_length = *batch.sequence_length,
                      .seed = static_cast<std::int64_t>(seed),
                      .short_sequence_probability = data.masking.short_sequence_probability,
                      .masking = {.vocabulary = std::move(vocabulary),
                                  .mask_probability = data.masking.mask_probability,
                                  .binary_head = config.binary_head}},
          .split_fractions = data.fractions(),
          .split_by = data.split_by,
          .vocabulary_size = config.vocabulary,
          .budgets = {}};
}

}  // namespace trireme::app
