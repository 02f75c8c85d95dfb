#include "src/app/commands/train/train_plan.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "src/app/job/memory_report.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/app/run_config/idle_options.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/data/dataset/bert/bert_data.hpp"
#include "src/model/fields.hpp"
#include "src/model/stage/model_parameters.hpp"

namespace trireme::app {
namespace {

/// Logs every option and its value, one per line.
void log_all_options(const std::vector<report::OptionValue>& options) {
  for (const report::OptionValue& option : options) {
    log::info("  {:.<34} {}", option.name + " ", printable(option.value));
  }
}

/// Logs the given options, as on a command line. Many options make the lines longer, not more numerous.
void log_given_options(const std::vector<report::OptionValue>& options) {
  constexpr std::size_t max_lines = 8, min_width = 100;
  std::vector<std::string> words;
  std::size_t bytes = 0;
  for (const report::OptionValue& option : options) {
    if (!option.given) continue;
    words.push_back(" --" + option.name + (option.value == "true" ? "" : " " + printable(option.value)));
    bytes += words.back().size();
  }
  std::string line = "options:";
  const std::size_t indent = line.size(), width = indent + std::max(min_width, bytes / (max_lines - 1));
  for (const std::string& word : words) {
    line += word;
    if (line.size() < width && &word != &words.back()) continue;
    log::info("{}", line);
    line.assign(indent, ' ');
  }
}

/// Lists a model's differences from GPT-2: ", RMSNorm, rotary positions ..."
std::string variants_text(const model::ModelConfig& model) {
  const model::ModelConfig canonical = model::canonical(model);
  std::string text;
  for (const model::Field& field : model::fields()) {
    if (!field.is_used(canonical) || (field.is_default(canonical) && !field.logs_default)) continue;
    text += fmt::format(fmt::runtime(field.log), field.text(canonical));
  }
  return text;
}

void log_model(const Job& job, const RunConfig& config, const model::ModelConfig& model) {
  log::info(
      "model: {} layers, hidden {}, {} heads of {}, feed-forward {}, {} positions, vocabulary {} (padded to {}){}, "
      "dropout {} ({} in attention): {} parameters{}",
      model.layers, model.hidden, model.heads, model.head_dim(), model.ffn_hidden, model.max_positions,
      model.vocabulary,
      parallel::VocabularyPartition(model.vocabulary, 0, job.grid.tensor_size(),
                                    config.parallel.grid.vocabulary_multiple, config.parallel.grid.padded_vocabulary)
          .padded_size(),
      variants_text(model), model.hidden_dropout, model.attention_dropout, model::parameter_count(model),
      model.experts.any()    ? fmt::format(", {} of them active", model::active_parameter_count(model))
      : model.adapters.any() ? fmt::format(", {} of them trained", model::trained_parameter_count(model))
                             : "");
  const std::string preset_values = config.model.preset_values(model);
  if (!preset_values.empty()) log::info("--model {} sets {}", config.model.preset, preset_values);
  const std::string slow =
      job.backend->attention().check_heads(config.precision.dtype, model.head_dim(), model.attention_soft_cap > 0);
  if (!slow.empty() && job.is_root()) log::warn("{}", slow);
}

/// Logs the sizes of the batches, including future ones.
void log_batches(const Job& job, const BatchOptions& batch, const train::Progress& done) {
  const train::BatchSchedule batches = batch.batches(job.grid.data_size());
  log::info("batch: {} of {} tokens = {} x {} x {}", counted(batches.max_size(), "sample"), *batch.sequence_length,
            counted(job.grid.data_size(), "data rank"), counted(batches.max_micro_batches(), "micro-batch"),
            batch.micro_batch_size);
  if (batches.max_size() != *batch.global_batch_size) {
    log::info("--decrease-batch-size-if-needed: global batches are rounded down to multiples of {}, {} becomes {}",
              batch.micro_batch_size * job.grid.data_size(), *batch.global_batch_size, batches.max_size());
  }
  if (!batch.train_samples) return;
  constexpr std::size_t max_phases = 6;
  const std::vector<train::BatchPhase> phases = batches.plan(done.consumed_samples, *batch.train_samples);
  std::string text;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const bool is_left_out = phases.size() > max_phases && i >= max_phases - 2 && i + 1 < phases.size();
    if (!is_left_out) {
      text += fmt::format("{}{} of {}", i == 0 ? "" : ", ", counted(phases[i].iterations, "iteration"),
                          counted(phases[i].size, "sample"));
    } else if (i == max_phases - 2) {
      text += fmt::format(", ... {} more sizes", phases.size() - max_phases + 1);
    }
  }
  log::info("{} of {} samples are consumed; remaining: {}", done.consumed_samples, *batch.train_samples,
            text.empty() ? "none" : text);
}

/// Returns "0.00015 after 3000 iterations of warm-up, cosine to 1e-05 at iteration 300000".
std::string rate_text(const optim::LrSchedule& rate) {
  const char* unit = rate.by_samples ? "sample" : "iteration";
  std::string text = fmt::format("{}", rate.maximum);
  if (rate.warmup > 0) text += fmt::format(" after {} of warm-up", counted(rate.warmup, unit));
  text += ", " + optim::attributes_of(rate).get<std::string>("training.lr-decay-style");
  if (rate.style == optim::LrDecayStyle::constant) return text;
  return text + fmt::format(" to {} at {} {}", rate.minimum, unit, rate.decay);
}

/// Logs the run's length, its learning rate, and when it evaluates and saves.
void log_schedule(const RunConfig& config, const TrainPlan& plan) {
  if (config.run.schedule.skip_training) {
    log::info("--skip-train: evaluation only; nothing is trained or saved");
    return;
  }
  const train::RunSchedule schedule = config.schedule();
  const std::string evaluation =
      !plan.model.predicts_tokens() ? "evaluation every " + counted(schedule.eval_interval, "iteration")
      : schedule.eval_iterations == 0
          ? "no evaluation"
          : fmt::format("evaluation of {} every {}", counted(schedule.eval_iterations, "batch"),
                        counted(schedule.eval_interval, "iteration"));
  const std::string& folder = config.checkpoint.save;
  std::string saving = "no checkpoints";
  if (!folder.empty()) {
    saving = schedule.save_interval == 0
                 ? "a checkpoint at the end"
                 : fmt::format("a checkpoint every {}", counted(schedule.save_interval, "iteration"));
    saving += " in " + folder;
    if (schedule.local_interval > 0) {
      saving += fmt::format(", a local one every {} in {}", counted(schedule.local_interval, "iteration"),
                            config.checkpoint.local_folder);
    }
  }
  log::info("schedule: iterations {} to {}; {}, learning rate {}; {}; {}", plan.done.iteration + 1, plan.iterations,
            optim::name_of(plan.options.optimizer.kind), rate_text(plan.options.lr_schedule), evaluation, saving);
}

void log_grid(const Options& options, const Job& job, const RunConfig& config, const TrainPlan& plan) {
  const model::ModelConfig& model = plan.model;
  const bool has_padding = model.is_bert() || !model.predicts_tokens() || plan.has_conversations;
  const std::vector<std::string> idle =
      idle_options(options, job.grid, config.precision.dtype, {has_padding, plan.has_conversations});
  if (!idle.empty()) log::info("ignored in this run: {}", fmt::join(idle, ", "));
  const ParallelOptions& parallel = config.parallel;
  if (job.grid.pipeline_size() > 1) {
    const auto layout =
        parallel::PipelineLayout::of(model.layers, job.grid.pipeline_size(), parallel.grid.pipeline_split());
    log::info("pipeline: chunks of {} layers, schedule {}", fmt::join(layout.layers, ", "),
              parallel::name_of(parallel::schedule_for(parallel.schedule, layout.chunks)));
  }
}

/// Adds a line for each corpus of `stores`, starting with its use.
void add_corpora(const std::string& use, const std::vector<data::WeightedStore>& stores,
                 std::vector<std::string>& lines) {
  for (const data::WeightedStore& weighted : stores) {
    const data::TokenStore& store = *weighted.store;
    const std::string learned =
        store.learned_ranges()
            ? fmt::format(", {} of them learned,", data::learned_tokens(store, 0, store.token_count()))
            : "";
    lines.push_back(fmt::format("{}corpus {}: {} tokens{} in {}, tokenizer {}, vocabulary {}", use, store.name(),
                                store.token_count(), learned, counted(store.documents(), "document"),
                                store.info().tokenizer, store.info().vocabulary_size));
  }
}

void log_corpora(const RunConfig& config, const TrainPlan& plan) {
  if (plan.stores.size() > 1 && plan.weighted_by_tokens)
    log::info("corpora without weights: each is weighted by its tokens");
  std::vector<std::string> lines;
  add_corpora("", plan.stores, lines);
  for (const OtherCorpora& other : plan.other_stores) {
    const std::string set = other.set.empty() ? data::name_of(other.split) : "validation set " + other.set + ",";
    add_corpora(set + " ", other.stores, lines);
  }
  constexpr std::size_t max_lines = 4;
  const bool logs_all = config.run.log_options || lines.size() <= max_lines;
  const std::size_t logged = logs_all ? lines.size() : max_lines - 1;
  for (std::size_t i = 0; i < logged; ++i) log::info("{}", lines[i]);
  if (!logs_all) log::info("... {} more corpora; --log-options lists them", lines.size() - logged);
}

}  // namespace

void log_configuration(const Options& options, const Job& job, const RunConfig& config, const TrainPlan& plan) {
  log::info("Trireme {}", version());
  if (config.run.log_options) {
    log_all_options(config.option_values);
  } else {
    log_given_options(config.option_values);
  }
  log::info("{}", job.description());
  if (config.run.dry_run && job.grid.world_size() > 1) log::info("{}", job.grid.diagram());
  log_model(job, config, plan.model);
  log_corpora(config, plan);
  log_batches(job, config.batch, plan.done);
  const std::int64_t length = *config.batch.sequence_length;
  const bool masks = plan.model.is_bert() && plan.model.predicts_tokens();
  if (masks && !data::masks_tokens(length, config.data.masking.mask_probability) && job.is_root()) {
    log::warn(
        "--mask-prob {} of --seq-length {} masks no token: the loss of masked tokens stays 0. Give more of either",
        config.data.masking.mask_probability, length);
  }
  log_schedule(config, plan);
  log_grid(options, job, config, plan);
  log_memory(job, config, plan.model);
}

}  // namespace trireme::app
