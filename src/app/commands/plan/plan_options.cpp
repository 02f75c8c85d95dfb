#include "src/app/commands/plan/plan_options.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "io/json/plan_json.hpp"
#include "src/app/options/text_files.hpp"
#include "src/base/text.hpp"
#include "src/model/presets.hpp"
#include "src/train/batch_schedule.hpp"

namespace trireme::app {
namespace {

/// Options of this command only, and those of the layout, which `train_options` writes separately.
constexpr std::string_view own_options =
    "config cluster nodes ranks-per-node calibrate no-search top json constants cases batch-file svg trace-file "
    "compare "
    "show-schedule micro-batches data-parallel-size tensor-model-parallel-size pipeline-model-parallel-size "
    "context-parallel-size expert-model-parallel-size expert-tensor-parallel-size expert-load-factor "
    "num-virtual-stages-per-pipeline-rank schedule "
    "overlap-p2p-communication sequence-parallel tp-comm-overlap-chunks "
    "micro-batch-size global-batch-size seq-length dtype bf16 fp16 recompute-granularity recompute-activations "
    "use-distributed-optimizer data-parallel-sharding-strategy overlap-grad-reduce overlap-param-gather "
    "optimizer-cpu-offload optimizer-offload-fraction";

/// Returns the tokens of the corpus: the given vocabulary, or the preset's.
std::int64_t corpus_vocabulary(const ModelOptions& model) {
  if (const auto given = model.fields.integer("vocab-size")) return *given;
  if (!model.preset.empty()) return model::preset(model.preset).vocabulary;
  constexpr std::int64_t bert = 30522;
  return model.family == model::ModelFamily::bert ? bert : model::ModelConfig{}.vocabulary;
}

template <class T>
std::optional<T> if_given(bool given, const T& value) {
  return given ? std::optional<T>(value) : std::nullopt;
}

}  // namespace

void PlanOptions::declare(Options& options) {
  options.section("Cluster");
  options.add("cluster", &cluster, "NAME",
              "Preset: " + plan::cluster_preset_names() + "; or an INI file that describes a cluster.");
  options.add("nodes", &nodes, "N", "Nodes of the job.", rank_count());
  options.add("ranks-per-node", &ranks_per_node, "N", "Ranks per node; default the cluster's.", rank_count());
  options.add("calibrate", &calibrate, "FILE",
              "Costs measured on the cluster, instead of its own: lines of kernels_calibration, kernels_gpu_bench "
              "and collectives_bench. Several files may follow.");
  options.section("Prediction");
  options.add_flag("no-search", &no_search,
                   "Predict only the layout that train would run with these options. Otherwise every axis that is not "
                   "given is searched: ranks, also those that divide or split experts, chunks, micro-batch, schedule, "
                   "recomputation, "
                   "shards and overlaps.");
  options.add("top", &top, "N", "Grids to find and print.", between(1, 1000));
  options.add_flag("json", &json, "Print JSON instead of tables; with --cases a line for each run.");
  options.add("batch-file", &batch_file, "FILE", "Write a SLURM batch file that trains with the best layout.");
  options.add("svg", &svg, "FILE", "Draw the schedule, of the best layout in predicted time.");
  options.add("trace-file", &trace_file, "FILE", "Write it for Perfetto, with the events of train --trace-file.");
  options.add("compare", &compare, "FILE",
              "Compare the best layout with a trace written by train; with --no-search, that of the same run.");
  options.add(
      "cases", &cases, "FILE",
      "Instead predict the training runs in the rows of a CSV file, and print the errors for those with measured "
      "times.");
  options.add_flag("constants", &constants, "Print the constants of the cost model, with their sources.");
  options.add_flag("show-schedule", &show_schedule,
                   "Print the timeline of each pipeline rank, without a model or cluster. A forward takes time 1, a "
                   "backward 2 (its halves 1 each), messages 0.");
  options.add("micro-batches", &micro_batches, "N",
              "With --show-schedule, instead of batch sizes: micro-batches of an update on one data rank.",
              at_least(1));
  options.add("data-parallel-size", &data_ranks, "N", "Data ranks; default the ranks left by the grid.", rank_count());
  model.declare(options);
  parallel.grid.declare(options);
  options.section("Training");
  batch.declare(options, RunKind::task);
  precision.dtype = DType::bf16;
  precision.declare(options);
  parallel.declare(options);
  execution.declare(options);
  parallel.sharding.declare(options);
}

void PlanOptions::check_form(const Options& options) const {
  const auto allow = [&](const char* form, const std::vector<std::string_view>& read) {
    std::string others;
    for (const auto& [name, value] : options.values()) {
      const bool is_read = name == form || name == "config" || std::ranges::find(read, name) != read.end();
      if (options.given(name) && !is_read) others += (others.empty() ? "--" : ", --") + name;
    }
    TRIREME_CHECK(others.empty(), ConfigError, "--{} does not use {}: leave out one or the other", form, others);
  };
  if (constants) return allow("constants", {});
  if (!cases.empty()) return allow("cases", {"json"});
  if (show_schedule) {
    allow("show-schedule", {"pipeline-model-parallel-size", "num-virtual-stages-per-pipeline-rank", "schedule", "svg",
                            "micro-batches", "global-batch-size", "micro-batch-size", "data-parallel-size"});
    for (const char* name : {"micro-batch-size", "data-parallel-size"}) {
      TRIREME_CHECK(!micro_batches || !options.given(name), ConfigError,
                    "--micro-batches and --{} exclude each other: give batch sizes, or the number of micro-batches",
                    name);
    }
    return;
  }
  TRIREME_CHECK(!micro_batches, ConfigError,
                "--micro-batches is for --show-schedule: give --global-batch-size instead");
  TRIREME_CHECK(!no_search || !options.given("top"), ConfigError,
                "--top and --no-search exclude each other: without a search there is one layout");
}

plan::Cluster PlanOptions::read_cluster() const {
  plan::Cluster result;
  std::error_code ignored;
  const bool is_file =
      cluster.find('/') != std::string::npos || cluster.ends_with(".ini") || std::filesystem::exists(cluster, ignored);
  if (is_file) {
    result = plan::parse_cluster(cluster, read_text_file("cluster", cluster));
  } else {
    result = plan::cluster_preset(cluster);
  }
  if (ranks_per_node) result.ranks_per_node = *ranks_per_node;
  return result;
}

plan::Cluster PlanOptions::calibrated(plan::Cluster on, DType dtype) const {
  if (calibrate.empty()) return on;
  return plan::calibrated(std::move(on), io::read_calibration(calibrate), dtype);
}

plan::SearchSpace PlanOptions::space(const Options& options, const plan::Cluster& on) {
  Problems problems;
  const GridOptions& g = parallel.grid;
  const std::int64_t world = static_cast<std::int64_t>(nodes) * on.ranks_per_node;
  problems.expect(world <= max_ranks, fmt::format("--nodes {} of {} ranks: a job has at most {} ranks", nodes,
                                                  on.ranks_per_node, max_ranks));
  const bool given_dtype = options.given("dtype") || options.given("bf16") || options.given("fp16");
  if (!given_dtype && on.cores_per_node > 0) precision.dtype = DType::fp32;
  if (!given_dtype && !on.device.has_bf16) precision.dtype = DType::fp16;
  std::optional<model::ModelConfig> config;
  problems.attempt([&] {
    if (!batch.sequence_length) batch.sequence_length = model.default_sequence_length();
    config = model.config(*batch.sequence_length, corpus_vocabulary(model));
  });
  precision.settle(options, problems);
  // Memory and time do not depend on the decay rates.
  const optim::AdamWOptions adamw = precision.with_types({.beta2 = 0.95});
  problems.attempt([&] { optim::validate(adamw); });
  problems.expect(precision.dtype != DType::bf16 || on.device.has_bf16,
                  fmt::format("--dtype bf16: a {} has no bf16; use fp16", on.device.name));
  problems.expect(
      !precision.fp8.used || on.device.fp8_tflops > 0,
      fmt::format("--fp8-format: a {} has no products in FP8 whose rate is known; leave it out", on.device.name));
  parallel.settle(precision.dtype, config, problems);
  problems.expect(!execution.recomputation.distribute || no_search || options.given("tensor-model-parallel-size"),
                  "--distribute-saved-activations needs --tensor-model-parallel-size");
  execution.settle(options, parallel, {}, problems);
  problems.expect(batch.global_batch_size || no_search, "--global-batch-size must be given for a search");
  problems.report();

  const auto ranks = static_cast<int>(world);
  const parallel::ProcessGrid grid =
      no_search ? g.of(ranks, data_ranks.value_or(0)) : parallel::ProcessGrid(ranks, 1, 1);
  plan::SearchSpace space{.world_size = ranks, .ranks_per_node = on.ranks_per_node, .base = {*config, {}, {}, grid}};
  space.base.execution = execution.config(precision.dtype, batch, parallel, {});
  space.base.execution.fp8 = precision.fp8;
  space.base.execution.variable_lengths = false;  // unknown before there are samples
  space.base.options.optimizer.adamw = adamw;
  space.base.options.optimizer.offload = parallel.sharding.offload();
  space.base.options.global_batch_size = batch.global_batch_size.value_or(batch.micro_batch_size * grid.data_size());

  space.tensor = if_given(options.given("tensor-model-parallel-size"), g.tensor);
  space.pipeline = if_given(options.given("pipeline-model-parallel-size"), g.pipeline);
  space.context = if_given(options.given("context-parallel-size"), g.context);
  space.data = data_ranks;
  space.expert = if_given(options.given("expert-model-parallel-size"), g.expert);
  space.expert_tensor = g.expert_tensor;
  space.micro_batch_size = if_given(options.given("micro-batch-size"), batch.micro_batch_size);
  space.schedule = parallel.schedule;
  space.recomputation = if_given(options.given("recompute-granularity") || execution.recompute_activations,
                                 execution.recomputation.granularity);
  space.sharding = if_given(options.given("data-parallel-sharding-strategy") || parallel.sharding.distributed_optimizer,
                            *parallel.sharding.strategy);
  space.sequence_parallel = if_given(options.given("sequence-parallel"), parallel.sequence_parallel);
  space.row_chunks = if_given(options.given("tp-comm-overlap-chunks"), parallel.row_chunks);
  space.overlap_p2p = if_given(options.given("overlap-p2p-communication"), parallel.overlap_p2p);
  space.overlap_reduce = if_given(options.given("overlap-grad-reduce"), parallel.sharding.overlap_reduce);
  space.overlap_gather = if_given(options.given("overlap-param-gather"), parallel.sharding.overlap_gather);
  return space;
}

std::vector<std::string> train_options(const Options& options, const plan::Job& job) {
  using model::RecomputeGranularity;
  std::vector<std::string> words;
  const auto add = [&](const std::string& name, const std::string& value) {
    words.push_back("--" + name);
    words.push_back(value);
  };
  const auto add_flag = [&](bool given, const char* name) {
    if (given) words.push_back(std::string("--") + name);
  };
  const std::vector<std::string_view> own = split(own_options, ' ');
  for (const auto& [name, value] : options.values()) {
    if (!options.given(name) || std::ranges::find(own, name) != own.end()) continue;
    if (value == "false") continue;
    if (value == "true") {
      words.push_back("--" + name);
    } else if (options.takes_list(name)) {
      words.push_back("--" + name);
      for (const std::string_view word : split(value, ' ')) words.emplace_back(word);
    } else {
      add(name, value);
    }
  }
  const train::ExecutionConfig& e = job.execution;
  const train::ParallelConfig& p = e.parallel;
  add("seq-length", fmt::format("{}", e.sequence_length));
  add("dtype", std::string(name_of(e.dtype)));
  add("micro-batch-size", fmt::format("{}", e.micro_batch_size));
  add("global-batch-size", fmt::format("{}", job.options.global_batch_size));
  add("tensor-model-parallel-size", fmt::format("{}", job.grid.tensor_size()));
  add("pipeline-model-parallel-size", fmt::format("{}", job.grid.pipeline_size()));
  if (job.grid.context_size() > 1) add("context-parallel-size", fmt::format("{}", job.grid.context_size()));
  if (job.grid.expert_size() > 1) add("expert-model-parallel-size", fmt::format("{}", job.grid.expert_size()));
  if (job.grid.folds_experts()) {
    add("expert-tensor-parallel-size", fmt::format("{}", job.grid.expert_tensor_size()));
  }
  const int chunks = plan::chunks_of(job);
  if (chunks > 1 && p.pipeline.chunks) add("num-virtual-stages-per-pipeline-rank", fmt::format("{}", chunks));
  if (job.grid.pipeline_size() > 1) add("schedule", parallel::name_of(plan::schedule_of(job)));
  add_flag(p.overlap_p2p, "overlap-p2p-communication");
  add_flag(p.sequence_parallel, "sequence-parallel");
  if (p.row_chunks > 1) add("tp-comm-overlap-chunks", fmt::format("{}", p.row_chunks));
  if (e.recomputation.granularity != RecomputeGranularity::none) {
    add("recompute-granularity", e.recomputation.selective() ? "selective" : "full");
  }
  const parallel::DataParallelOptions& data = p.data_parallel;
  if (data.sharding != parallel::DataSharding::none) {
    add("data-parallel-sharding-strategy",
        data.sharding == parallel::DataSharding::optimizer ? "optim" : "optim_grads");
  }
  add_flag(data.overlap_reduce, "overlap-grad-reduce");
  add_flag(data.overlap_gather, "overlap-param-gather");
  const double offloaded = job.options.optimizer.offload.fraction;
  add_flag(offloaded > 0, "optimizer-cpu-offload");
  if (offloaded > 0 && offloaded < 1) add("optimizer-offload-fraction", fmt::format("{}", offloaded));
  return words;
}

}  // namespace trireme::app
