#include "src/app/commands/commands.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>

#include "io/checkpoint/checkpoint_store.hpp"
#include "io/corpus/index_files.hpp"
#include "io/metrics/metrics_file.hpp"
#include "io/metrics/trace_file.hpp"
#include "src/app/job.hpp"
#include "src/app/memory_report.hpp"
#include "src/app/options/options.hpp"
#include "src/app/process_limits.hpp"
#include "src/app/progress_bar.hpp"
#include "src/app/run_config/run_attributes.hpp"
#include "src/app/run_config/train_options.hpp"
#include "src/app/saved_model.hpp"
#include "src/app/stop_signal.hpp"
#include "src/base/log.hpp"
#include "src/base/thread_pool.hpp"
#include "src/checkpoint/step_writer.hpp"
#include "src/train/checkpoint_writer.hpp"
#include "src/train/host_state.hpp"

namespace trireme::app {
namespace {

/// Data, model and starting point of a run: decided, and held against a checkpoint, before anything is
/// built.
struct TrainPlan {
  std::vector<data::WeightedStore> stores;
  model::GptConfig config;
  data::GptDataOptions data_options;
  OpenCheckpoint start;  ///< empty for a run from initial weights
  train::Progress done;
  std::int64_t iterations = 0;  ///< of the whole run
  Attributes attributes;        ///< of every checkpoint that the run saves
};

/// Lists a model's differences from GPT-2: ", RMSNorm, rotary positions ..."
std::string variants_text(const model::GptConfig& config) {
  std::string text;
  if (config.kv_heads() != config.heads) text += fmt::format(", {} query groups", config.kv_heads());
  if (config.normalization == model::Normalization::rms_norm) text += ", RMSNorm";
  if (config.position_embedding == model::PositionEmbedding::rope) text += ", rotary positions";
  if (config.swiglu) text += ", SwiGLU";
  if (!config.linear_bias) text += ", no biases";
  if (!config.tied_output) text += ", untied output";
  return text;
}

/// Logs the batches to come.
void log_batches(const Job& job, const TrainCommandOptions& o, const train::Progress& done) {
  const train::BatchSchedule batches = o.batches(job.grid.data_size());
  const std::int64_t micro_batches = batches.largest() / (o.micro_batch_size * job.grid.data_size());
  log::info("batch: {} samples of {} tokens = {} data ranks x {} micro-batches x {}", batches.largest(),
            o.sequence_length, job.grid.data_size(), micro_batches, o.micro_batch_size);
  if (batches.largest() != *o.global_batch_size) {
    log::info("--decrease-batch-size-if-needed: global batches are rounded down to multiples of {}, {} becomes {}",
              o.micro_batch_size * job.grid.data_size(), *o.global_batch_size, batches.largest());
  }
  if (!o.train_samples) return;
  log::info("{} of {} samples are consumed; to come:", done.consumed_samples, *o.train_samples);
  constexpr std::size_t most = 20;
  const std::vector<train::BatchPhase> plan = batches.plan(done.consumed_samples, *o.train_samples);
  for (std::size_t i = 0; i < plan.size(); ++i) {
    if (plan.size() > most && i == most - 1) log::info("  ... {} more sizes", plan.size() - most);
    if (plan.size() > most && i >= most - 1 && i + 1 < plan.size()) continue;
    log::info("  {} iterations of {} samples", plan[i].iterations, plan[i].size);
  }
}

void log_configuration(const Options& options, const Job& job, const TrainCommandOptions& o, const TrainPlan& plan) {
  const model::GptConfig& config = plan.config;
  log::info("Trireme {}", version());
  for (const auto& [name, value] : options.values()) {
    if (!value.empty()) log::info("  {:.<34} {}", name + " ", value);
  }
  log::info("{}", job.description());
  if (job.grid.world_size() > 1) log::info("{}", job.grid.diagram());
  log::info(
      "model: {} layers, hidden {}, {} heads of {}, feed-forward {}, {} positions, vocabulary {} (padded to {}){}, "
      "dropout {} "
      "({} in attention): {} parameters",
      config.layers, config.hidden, config.heads, config.hidden / config.heads, config.ffn_hidden, config.max_positions,
      config.vocabulary,
      parallel::VocabularyPartition(config.vocabulary, 0, job.grid.tensor_size(), o.grid.vocabulary_multiple,
                                    o.grid.padded_vocabulary)
          .padded_size(),
      variants_text(config), config.hidden_dropout, config.attention_dropout, model::parameter_count(config));
  const std::string preset_values = o.model.preset_values(config);
  if (!preset_values.empty()) log::info("--model {} sets {}", o.model.preset, preset_values);
  const std::string slow = job.backend->attention().check_head_dim(o.precision.dtype, config.hidden / config.heads);
  if (!slow.empty() && job.world->rank() == 0) log::warn("{}", slow);
  for (const data::WeightedStore& store : plan.stores) {
    log::info("corpus {}: {} tokens in {} documents, tokenizer {}, vocabulary {}", store.store->name(),
              store.store->token_count(), store.store->documents(), store.store->info().tokenizer,
              store.store->info().vocabulary_size);
  }
  log_batches(job, o, plan.done);
  if (o.execution.sequence_parallel && job.grid.tensor_size() == 1) {
    log::info("--sequence-parallel is off: one tensor rank has the whole sequence");
  }
  if (job.grid.pipeline_size() > 1) {
    const auto layout = parallel::PipelineLayout::of(config.layers, job.grid.pipeline_size(), o.layout().pipeline);
    log::info("pipeline: chunks of {} layers, schedule {}", fmt::join(layout.layers, ", "),
              parallel::to_string(parallel::schedule_for(o.execution.schedule, layout.chunks)));
  }
  log_memory(job, o, config);
}

/// The corpora that `--data-path` names, on every rank or on none.
std::vector<data::WeightedStore> open_corpora(const Job& job, const TrainCommandOptions& o) {
  std::vector<data::WeightedStore> stores;
  for (const auto& corpus : o.data.corpora()) {
    stores.push_back({open_corpus(*job.world, corpus.path, o.data.check, o.seed), corpus.weight});
  }
  return stores;
}

data::GptDataOptions data_options_of(const TrainCommandOptions& o, const model::GptConfig& config) {
  return {.sequence_length = o.sequence_length,
          .seed = static_cast<std::int64_t>(o.seed),
          .split_shares = data::parse_split(o.data.split),
          .split_by = o.data.split_by,
          .sampling = o.data.sampling,
          .vocabulary_size = config.vocabulary,
          .budgets = {}};
}

/// Samples that the run reads of the test split: none of `wanted` where there is no such split.
std::int64_t test_samples(std::int64_t wanted, const Options& options, const std::vector<data::WeightedStore>& stores,
                          const data::GptDataOptions& data_options) {
  const bool is_split =
      data_options.sampling == data::Sampling::shuffled && data_options.split_shares[2] > 0 && wanted > 0;
  if (!is_split) return 0;
  // A split that was asked for must have its samples, as for validation; the default's 0.1 % need not.
  if (options.given("split") || data::has_samples(stores, data_options, data::Split::test)) return wanted;
  log::info("no test at the end: the default --split leaves too few tokens for a sample of --seq-length {}",
            data_options.sequence_length);
  return 0;
}

/// The samples. Rank 0 computes their order, or finds it where an earlier run kept it; then the others find it there.
data::GptData make_data(Communicator& world, const std::vector<data::WeightedStore>& stores,
                        data::GptDataOptions options, const std::string& cache_path) {
  io::IndexFiles cache(cache_path);
  options.cache = &cache;
  data::GptData data;
  const auto make_where = [&](bool here) {
    collectively(world, [&] {
      if (here) data = data::make_gpt_data(stores, options);
    });
  };
  make_where(world.rank() == 0);
  if (world.size() > 1) make_where(world.rank() != 0);
  return data;
}

/// Holds a checkpoint against what was asked for; the budgets its runs were given, where the order of samples goes on.
std::vector<data::SampleBudget> check_checkpoint(const Attributes& stored, const Attributes& model,
                                                 const Attributes& order, bool allow_new_data) {
  require_equal(attributes_of(config_from(stored)), model, "the checkpoint holds another model",
                "Give its options, or another --load.");
  if (allow_new_data) return {};
  require_equal(
      stored, order, "the checkpoint's run read other data, or in another order",
      "Give its options and corpora, or --allow-new-data to go on with these from the sample it has reached.");
  return budgets_from(stored);
}

/// About what the file takes that this rank writes of a checkpoint.
std::int64_t shard_bytes(const std::vector<checkpoint::StateTensor>& tensors) {
  std::int64_t sum = checkpoint::shard_overhead_bytes;
  for (const checkpoint::StateTensor& tensor : tensors) {
    if (tensor.written_here) sum += static_cast<std::int64_t>(tensor.data.size_bytes());
  }
  return sum;
}

/// Plans the run. Collective.
TrainPlan make_plan(const Job& job, const Options& options, const TrainCommandOptions& o) {
  TrainPlan plan;
  plan.stores = open_corpora(job, o);
  const data::CorpusInfo& corpus = plan.stores.front().store->info();
  plan.config = o.model.config(o.sequence_length, corpus.vocabulary_size);
  plan.data_options = data_options_of(o, plan.config);
  const Attributes model = attributes_of(plan.config);
  const Attributes order = attributes_of(plan.stores, plan.data_options);
  plan.attributes = model;
  plan.attributes.merge(Attributes(order));
  plan.attributes["tokenizer"] = corpus.tokenizer;
  plan.attributes["dtype"] = name_of(o.precision.dtype);
  plan.attributes.merge(attributes_of(o.training()));

  if (!o.checkpoint.load.empty()) {
    plan.start = open_checkpoint(*job.world, o.checkpoint.load, o.checkpoint.load_or_init);
  }
  std::vector<data::SampleBudget> earlier_budgets;
  if (plan.start.reader) {
    const Attributes& stored = plan.start.description.attributes;
    earlier_budgets = check_checkpoint(stored, model, order, o.checkpoint.allow_new_data);
    require_same_optimizer(stored, plan.attributes);
    for (const std::string& line : changed_options(stored, plan.attributes)) log::info("{}", line);
    plan.done = train::progress_from(stored);
  }
  plan.iterations = o.iterations(plan.done, job.grid.data_size());
  data::SampleBudget needed = data::samples_needed(o.run_length(plan.iterations));
  needed.test = test_samples(needed.test, options, plan.stores, plan.data_options);
  plan.data_options.budgets = data::extend_budgets(earlier_budgets, needed);
  plan.attributes["data_budgets"] = budgets_text(plan.data_options.budgets);
  return plan;
}

/// The model, its trainer and the tensors of its checkpoints.
struct TrainSession {
  /// Builds them. Collective.
  TrainSession(Job& job, const TrainCommandOptions& o, const TrainPlan& plan)
      : gpt(*job.backend, *job.world, job.grid, job.communicators, plan.config, o.layout()),
        trainer(gpt, o.training()) {
    if (!plan.start.reader && o.checkpoint.save.empty()) return;
    collectively(*job.world, [&] {
      state.emplace(*job.backend, trainer.state_tensors(),
                    o.checkpoint.async_save ? HostCopies::Allocation::always : HostCopies::Allocation::where_needed);
    });
  }
  train::ParallelGpt gpt;
  train::Trainer trainer;
  std::optional<train::HostState> state;  ///< for loading, and then for saving
};

/// Brings the session to where the run begins: loads the plan's checkpoint and closes it, or sets the initial weights.
/// Collective.
void restore(Job& job, const TrainCommandOptions& o, TrainPlan& plan, TrainSession& session) {
  if (!plan.start.reader) {
    model::Initialisation initialisation = o.initialisation;
    initialisation.seed = o.seed;
    initialisation.layers = plan.config.layers;
    initialisation.threads = default_thread_count(job.node.ranks_sharing_cores);
    model::initialise(*job.backend, session.gpt.parameters().parameters(), initialisation);
    session.trainer.start();
    return;
  }
  checkpoint::load(*plan.start.reader, *job.world, session.state->tensors());
  session.state->store();
  session.trainer.restore(plan.start.description.attributes);
  if (o.checkpoint.save.empty()) {
    session.state.reset();
    job.backend->release_host_memory();
  }
  const train::Progress& progress = session.trainer.progress();
  log::info("continuing after iteration {}, {} samples", progress.iteration, progress.consumed_samples);
  plan.start = {};
}

/// Returns whether the run has anything to train, to evaluate or to save.
bool has_work(const TrainCommandOptions& o, const TrainPlan& plan, const data::GptData& data,
              const train::Progress& progress) {
  const bool saves_initial_state = plan.iterations == 0 && plan.done.iteration == 0 && !o.checkpoint.save.empty();
  return progress.iteration < plan.iterations || progress.evaluation_left || saves_initial_state ||
         train::test_is_left(progress, plan.iterations, data, o.run);
}

/// Opens the folder of `--save`, into which this rank's file must fit. Collective.
std::unique_ptr<io::CheckpointStore> open_store(const Job& job, const std::string& path,
                                                const train::HostState& state) {
  std::unique_ptr<io::CheckpointStore> store;
  collectively(*job.world, [&] {
    check_file_limit(shard_bytes(state.tensors()), "this rank's file of a checkpoint");
    store = std::make_unique<io::CheckpointStore>(path);
  });
  return store;
}

/// Trains, evaluates and saves. Collective.
train::RunEnd run(Job& job, const TrainCommandOptions& o, const TrainPlan& plan, const data::GptData& data,
                  TrainSession& session) {
  train::RunHooks hooks;
  std::unique_ptr<io::CheckpointStore> store;
  std::optional<train::CheckpointWriter> checkpoints;
  if (!o.checkpoint.save.empty()) {
    store = open_store(job, o.checkpoint.save, *session.state);
    hooks.checkpoints =
        &checkpoints.emplace(*store, *job.world, session.trainer, *session.state, plan.attributes,
                             plan.stores.front().store->info().tokenizer_payload, o.checkpoint.writer());
  }
  std::unique_ptr<io::MetricsFile> metrics;
  collectively(*job.world, [&] {
    if (job.speaks() && !o.metrics_file.empty()) {
      metrics = std::make_unique<io::MetricsFile>(o.metrics_file, session.trainer.progress());
    }
  });
  std::unique_ptr<io::TraceFile> trace_file;
  std::optional<TraceRecorder> trace;
  if (!o.trace_file.empty()) {
    trace_file = std::make_unique<io::TraceFile>(o.trace_file, *job.world);
    job.world->barrier();  // the ranks' times begin together
    session.gpt.set_trace(&trace.emplace());
  }
  hooks.stop_requested = stop_signal_received;
  hooks.metrics = metrics.get();
  ProgressBar bar("training", "iterations", 1, session.trainer.progress().iteration);
  if (job.speaks()) hooks.progress = [&](std::int64_t done, std::int64_t total) { bar.update(done, total); };
  const train::RunEnd end = train::run(session.trainer, *job.world, plan.iterations, data, o.run, hooks);
  if (trace_file) trace_file->write(*trace, job.grid.describe(job.world->rank()));
  return end;
}

}  // namespace

int train_command(const CommandLine& line) {
  TrainCommandOptions o;
  Options options(line.command(),
                  "Trains a GPT-2 or a Llama on tokenized corpora, from initial weights or a checkpoint.");
  o.declare(options);
  if (!line.read(options)) return 0;
  std::signal(SIGPIPE, SIG_IGN);  // a log that nobody reads any more does not end a run

  Job job(line.environment(), options, o.grid);
  o.settle(options, job.grid.data_size());
  check_training_type(*job.backend, o.precision.dtype);
  TrainPlan plan = make_plan(job, options, o);
  log_configuration(options, job, o, plan);
  const data::GptData data = make_data(*job.world, plan.stores, plan.data_options, o.data.cache_path);
  if (o.dry_run) {
    log_layer_activations(job, o, plan.config);
    log::info("dry run: everything is in order; {} iterations would run",
              std::max<std::int64_t>(plan.iterations - plan.done.iteration, 0));
    return 0;
  }
  TrainSession session(job, o, plan);
  restore(job, o, plan, session);
  const train::Progress& progress = session.trainer.progress();
  if (!has_work(o, plan, data, progress)) {
    log::info("nothing to do: {} of {} iterations are done", progress.iteration, plan.iterations);
    return 0;
  }
  const train::RunEnd end = run(job, o, plan, data, session);
  return static_cast<int>(end == train::RunEnd::complete ? ExitCode::success : ExitCode::stopped_early);
}

}  // namespace trireme::app
