#include "src/app/commands/train/configuration_log.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "src/app/memory_report.hpp"
#include "src/app/run_config/idle_options.hpp"
#include "src/base/log.hpp"

namespace trireme::app {
namespace {

/// Lists a model's differences from GPT-2: ", RMSNorm, rotary positions ..."
std::string variants_text(const model::ModelConfig& model) {
  std::string text;
  if (model.is_bert()) text += model.binary_head ? ", BERT" : ", BERT without a binary head";
  if (model.post_norm()) text += ", post-norm layers";
  if (model.kv_heads() != model.heads) text += fmt::format(", {} query groups", model.kv_heads());
  if (model.normalization == model::Normalization::rms_norm) text += ", RMSNorm";
  if (model.norm_1p) text += ", norm weights around 1";
  if (model.position_embedding == model::PositionEmbedding::rope) text += ", rotary positions";
  if (const model::RotaryScaling& scaling = model.rotary_scaling; scaling.kind != model::RotaryScalingKind::none) {
    text += fmt::format(" scaled by {} ({})", scaling.factor,
                        scaling.kind == model::RotaryScalingKind::yarn ? "YaRN" : "Llama 3.1");
  }
  if (const double factor = model.rotary_scaling.interpolation; factor != 1) {
    text += fmt::format(" divided by {}", factor);
  }
  if (const model::AttentionWindow& window = model.window; window.any()) {
    const auto layers = window.layers.empty() ? model.layers : std::ranges::count(window.layers, '1');
    text += fmt::format(", attention to {} positions before in {} layers", window.left, layers);
  }
  if (model.qk_norm) text += ", normalised queries and keys";
  if (model.swiglu) text += ", SwiGLU";
  if (model.activation == Activation::squared_relu) text += ", squared ReLU";
  if (!model.linear_bias) text += model.has_qkv_bias() ? ", biases of Q, K and V alone" : ", no biases";
  if (!model.tied_output) text += ", untied output";
  return text;
}

void log_model(const Job& job, const RunConfig& config, const model::ModelConfig& model) {
  log::info(
      "model: {} layers, hidden {}, {} heads of {}, feed-forward {}, {} positions, vocabulary {} (padded to {}){}, "
      "dropout {} "
      "({} in attention): {} parameters",
      model.layers, model.hidden, model.heads, model.head_dim(), model.ffn_hidden, model.max_positions,
      model.vocabulary,
      parallel::VocabularyPartition(model.vocabulary, 0, job.grid.tensor_size(),
                                    config.parallel.grid.vocabulary_multiple, config.parallel.grid.padded_vocabulary)
          .padded_size(),
      variants_text(model), model.hidden_dropout, model.attention_dropout, model::parameter_count(model));
  const std::string preset_values = config.model.preset_values(model);
  if (!preset_values.empty()) log::info("--model {} sets {}", config.model.preset, preset_values);
  const std::string slow = job.backend->attention().check_head_dim(config.precision.dtype, model.head_dim());
  if (!slow.empty() && job.speaks()) log::warn("{}", slow);
}

/// Logs the batches to come.
void log_batches(const Job& job, const BatchOptions& batch, const train::Progress& done) {
  const train::BatchSchedule batches = batch.batches(job.grid.data_size());
  log::info("batch: {} samples of {} tokens = {} data ranks x {} micro-batches x {}", batches.max_size(),
            *batch.sequence_length, job.grid.data_size(), batches.max_micro_batches(), batch.micro_batch_size);
  if (batches.max_size() != *batch.global_batch_size) {
    log::info("--decrease-batch-size-if-needed: global batches are rounded down to multiples of {}, {} becomes {}",
              batch.micro_batch_size * job.grid.data_size(), *batch.global_batch_size, batches.max_size());
  }
  if (!batch.train_samples) return;
  log::info("{} of {} samples are consumed; to come:", done.consumed_samples, *batch.train_samples);
  constexpr std::size_t max_lines = 20;
  const std::vector<train::BatchPhase> phases = batches.plan(done.consumed_samples, *batch.train_samples);
  for (std::size_t i = 0; i < phases.size(); ++i) {
    if (phases.size() > max_lines && i == max_lines - 1) log::info("  ... {} more sizes", phases.size() - max_lines);
    if (phases.size() > max_lines && i >= max_lines - 1 && i + 1 < phases.size()) continue;
    log::info("  {} iterations of {} samples", phases[i].iterations, phases[i].size);
  }
}

void log_grid(const Options& options, const Job& job, const RunConfig& config, const model::ModelConfig& model) {
  const bool has_padding = model.is_bert() || !model.predicts_tokens();
  const std::vector<std::string> idle = idle_options(options, job.grid, config.precision.dtype, has_padding);
  if (!idle.empty()) log::info("without use on this grid: {}", fmt::join(idle, ", "));
  const ParallelOptions& parallel = config.parallel;
  if (job.grid.pipeline_size() > 1) {
    const auto layout =
        parallel::PipelineLayout::of(model.layers, job.grid.pipeline_size(), parallel.grid.pipeline_split());
    log::info("pipeline: chunks of {} layers, schedule {}", fmt::join(layout.layers, ", "),
              parallel::to_string(parallel::schedule_for(parallel.schedule, layout.chunks)));
  }
}

void log_corpora(const std::string& use, const std::vector<data::WeightedStore>& stores) {
  for (const data::WeightedStore& weighted : stores) {
    const data::TokenStore& store = *weighted.store;
    log::info("{}corpus {}: {} tokens in {} documents, tokenizer {}, vocabulary {}", use, store.name(),
              store.token_count(), store.documents(), store.info().tokenizer, store.info().vocabulary_size);
  }
}

}  // namespace

void log_configuration(const Options& options, const Job& job, const RunConfig& config, const TrainPlan& plan) {
  log::info("Trireme {}", version());
  for (const auto& [name, value] : options.values()) {
    if (!value.empty()) log::info("  {:.<34} {}", name + " ", value);
  }
  log::info("{}", job.description());
  if (job.grid.world_size() > 1) log::info("{}", job.grid.diagram());
  log_model(job, config, plan.model);
  const bool by_tokens = plan.stores.size() > 1 && !config.data.mock && !config.data.corpora().front().weight;
  if (by_tokens) log::info("corpora without weights: each counts by its tokens");
  log_corpora("", plan.stores);
  for (const OtherCorpora& other : plan.other_stores) {
    log_corpora(
        other.set.empty() ? data::name_of(other.split) + std::string(" ") : "validation set " + other.set + ", ",
        other.stores);
  }
  if (const std::string idle = config.report.idle(options, job.world->size(), !config.checkpoint.save.empty());
      !idle.empty())
    log::info("{}", idle);
  if (config.run.schedule.skip_training) log::info("--skip-train: evaluation alone, nothing is trained or saved");
  log_batches(job, config.batch, plan.done);
  log_grid(options, job, config, plan.model);
  log_memory(job, config, plan.model);
}

}  // namespace trireme::app
