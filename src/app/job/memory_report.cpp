#include "src/app/job/memory_report.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/base/log.hpp"
#include "src/base/machine.hpp"
#include "src/base/parse_number.hpp"
#include "src/comm/host_collectives.hpp"
#include "src/model/stage/model_parameters.hpp"

namespace trireme::app {
namespace {

/// Returns "12.0 GiB = parameters 1.0 GiB + gradients ..."
std::string sum_text(std::size_t sum, std::initializer_list<std::pair<const char*, std::size_t>> entries) {
  std::vector<std::string> texts;
  for (const auto& [name, bytes] : entries) {
    if (bytes > 0) texts.push_back(fmt::format("{} {}", name, bytes_text(bytes)));
  }
  return fmt::format("{} = {}", bytes_text(sum), fmt::join(texts, " + "));
}

std::string sum_text(const train::MemoryEstimate& memory) {
  std::string text = sum_text(memory.total(), {{"parameters", memory.parameters},
                                               {"gradients", memory.gradients},
                                               {"gradients at work", memory.gradient_work},
                                               {"optimizer", memory.optimizer},
                                               {"activations", memory.activations},
                                               {"layers at work", memory.work},
                                               {"messages between stages", memory.messages},
                                               {"batches", memory.batches},
                                               {"cuBLASLt's workspace and scratch", memory.kernels}});
  if (memory.host() > 0) {
    text += "; and of host memory " +
            sum_text(memory.host(), {{"optimizer", memory.host_optimizer}, {"activations", memory.host_activations}});
  }
  return text;
}

bool shards(const RunConfig& config) { return config.parallel.sharding.strategy != parallel::DataSharding::none; }

/// Lists the unused options that would lower a rank's memory.
std::string remedies(const Job& job, const RunConfig& config, const model::ModelConfig& model) {
  std::vector<std::string> list{job.backend->memory_is_host() ? "more tensor or pipeline ranks on more machines"
                                                              : "more tensor or pipeline ranks"};
  const std::int64_t expert_ranks = std::gcd(model.experts.count, job.grid.gradient_size());
  if (model.experts.any() && expert_ranks > job.grid.expert_size()) {
    list.push_back(fmt::format("--expert-model-parallel-size {}", expert_ranks));
  }
  if (job.grid.gradient_size() > 1 && !shards(config)) list.emplace_back("--use-distributed-optimizer");
  if (config.batch.micro_batch_size > 1)
    list.push_back(fmt::format("a --micro-batch-size below {}", config.batch.micro_batch_size));
  if (config.execution.recomputation.granularity == model::RecomputeGranularity::none) {
    list.emplace_back("--recompute-granularity selective or full");
  }
  if (config.execution.cross_entropy_chunks == 1) list.emplace_back("--cross-entropy-chunks");
  if (accumulation_type(config.precision.dtype) == config.precision.dtype) list.emplace_back("a 16-bit --dtype");
  if (config.optimizer.optimizer.kind == optim::OptimizerKind::adam && !config.precision.precision_aware) {
    list.emplace_back("--use-precision-aware-optimizer with --exp-avg-dtype and --exp-avg-sq-dtype bf16");
  }
  if (!job.backend->memory_is_host()) {
    const bool is_muon = config.optimizer.optimizer.kind == optim::OptimizerKind::muon;
    if (!is_muon && !config.parallel.sharding.cpu_offload) list.emplace_back("--optimizer-cpu-offload");
    const model::Recomputation& recomputation = config.execution.recomputation;
    const bool is_full = recomputation.granularity == model::RecomputeGranularity::full;
    if (!is_full && recomputation.offloaded_layers == 0) list.emplace_back("--cpu-offloading-num-layers");
  }
  return fmt::format("{}", fmt::join(list, ", "));
}

std::string ranks_text(int ranks, const std::string& owner) {
  return ranks == 1 ? fmt::format("the rank on this {} needs", owner)
                    : fmt::format("the {} ranks on this {} need", ranks, owner);
}

/// Returns the sum over the ranks on this rank's machine. Collective.
std::size_t sum_on_machine(const Job& job, std::size_t bytes) {
  return static_cast<std::size_t>(all_reduce_number(*job.node_ranks, static_cast<std::int64_t>(bytes), ReduceOp::sum));
}

/// Logs the memory of a rank of every stage, or only of the fullest stage. Collective.
void log_stages(const Job& job, const train::MemoryEstimate& memory, bool all_stages) {
  const auto rank_of = [&](int stage) { return job.grid.rank({.pipeline = stage}); };
  // The ranks of a stage use the same amount: the first one sends its.
  const int rank = job.world->rank();
  const bool sends = rank == rank_of(job.grid.position(rank).pipeline);
  const std::vector<std::string> texts =
      gather_text(*job.world, sends ? fmt::format("{} {}", memory.total(), sum_text(memory)) : "", 0);
  if (!job.is_root()) return;
  const int stages = job.grid.pipeline_size();
  std::vector<std::int64_t> totals;
  std::vector<std::string_view> sums;
  for (int i = 0; i < stages; ++i) {
    std::string_view text = texts[static_cast<std::size_t>(rank_of(i))];
    totals.push_back(take_number<std::int64_t>(text).value());
    sums.push_back(text.substr(1));
  }
  const auto log_stage = [&](const std::string& name, int stage) {
    log::info("memory of a rank{}: {}", name, sums[static_cast<std::size_t>(stage)]);
  };
  if (all_stages || stages == 1) {
    for (int i = 0; i < stages; ++i) log_stage(stages > 1 ? fmt::format(" of stage {}", i) : "", i);
    return;
  }
  const auto fullest = static_cast<int>(std::ranges::max_element(totals) - totals.begin());
  log_stage(fmt::format(" of stage {}, the fullest", fullest), fullest);
}

/// Logs the activations that a layer keeps for backward, next to the figures of the literature.
void log_layer_activations(const Job& job, const RunConfig& config, const model::ModelConfig& model) {
  const train::ExecutionConfig execution = config.execution_config();
  const train::LayerActivations activations = train::layer_activations(*job.backend, model, execution, job.grid);
  const model::Recomputation& recomputation = execution.recomputation;
  const bool only_some = recomputation.granularity == model::RecomputeGranularity::full &&
                         recomputation.method == model::RecomputeMethod::block;
  log::info(
      "activations of a {}layer and a micro-batch: {} kept on each tensor rank; by Korthikanti et al. 2022, for "
      "GPT-2's layer, in 16 bits and with attention scores in memory:",
      only_some ? "recomputed " : "", bytes_text(activations.kept));
  for (const auto& published : activations.published) {
    log::info("  {:<36}{:<36}{}{}", published.setting, published.formula, bytes_text(published.bytes),
              published.applies ? " <- this layout" : "");
  }
}

void log_device(const Job& job, const RunConfig& config, const model::ModelConfig& model, std::size_t wanted) {
  const bool is_host = job.backend->memory_is_host();
  const std::size_t all = job.backend->device_memory_bytes(), free = job.backend->free_memory_bytes();
  if (!is_host) {
    log::info(
        "memory of this GPU: {} of {} free; the driver, NCCL and recorded graphs need memory beyond the sum above",
        bytes_text(free), bytes_text(all));
  }
  const char* others = !is_host && wanted < all ? "end other processes there (see nvidia-smi), or " : "";
  collectively(*job.world, [&] {
    TRIREME_CHECK(wanted < free, EnvironmentError, "{} {}, {}: {}use {}",
                  ranks_text(job.ranks_on_device, is_host ? "machine" : "GPU"), bytes_text(wanted),
                  is_host ? fmt::format("it has {}", bytes_text(all))
                          : fmt::format("{} of its {} are free", bytes_text(free), bytes_text(all)),
                  others, remedies(job, config, model));
  });
}

/// Returns whether the state has a copy in host memory. On the CPU only saving during training makes one.
bool copies_state(const Job& job, const RunConfig& config) {
  return config.checkpoint.writes_behind() ||
         (!job.backend->memory_is_host() && (!config.checkpoint.save.empty() || !config.checkpoint.load.empty()));
}

/// Returns the bytes of that copy, without moments that are neither loaded nor saved. What is in host memory already is
/// copied only to be saved during training.
std::size_t copied_bytes(const Job& job, const RunConfig& config, const train::MemoryEstimate& memory) {
  if (!copies_state(job, config)) return 0;
  const CheckpointOptions& checkpoint = config.checkpoint;
  const bool loads = !checkpoint.load.empty() && !checkpoint.starts_anew();
  const bool moments = (loads && checkpoint.loaded_optimizer() == train::OptimizerState::kept) ||
                       (!checkpoint.save.empty() && checkpoint.saved_optimizer() == train::OptimizerState::kept);
  const train::MemoryEstimate::State& state = moments ? memory.state : memory.weights;
  return checkpoint.writes_behind() ? state.all : state.on_device;
}

/// Returns "pinned host memory to --load and --save", with the options that use host memory.
std::string host_memory_purpose(const Job& job, const RunConfig& config, const train::MemoryEstimate& memory,
                                std::size_t copy) {
  if (job.backend->memory_is_host()) {
    return config.checkpoint.async_save ? "host memory for --async-save" : "host memory for local checkpoints";
  }
  std::vector<std::string> kept;
  if (memory.host_optimizer > 0) kept.emplace_back("--optimizer-cpu-offload");
  if (memory.host_activations > 0) kept.emplace_back("--cpu-offloading-num-layers");
  std::vector<std::string> purposes;
  if (!kept.empty()) purposes.push_back(fmt::format("for {}", fmt::join(kept, " and ")));
  if (copy > 0) {
    purposes.emplace_back(config.checkpoint.load.empty()   ? "to --save"
                          : config.checkpoint.save.empty() ? "to --load, released afterwards"
                                                           : "to --load and --save");
  }
  return fmt::format("pinned host memory {}", fmt::join(purposes, ", "));
}

void log_host_memory(const Job& job, const RunConfig& config, const std::string& purpose, bool offloads,
                     std::size_t of_rank, std::size_t on_machine) {
  const std::size_t machine = machine_memory_bytes();
  log::info("{}: {} a rank, {} of this machine's {} for all of its ranks", purpose, bytes_text(of_rank),
            bytes_text(on_machine), bytes_text(machine));
  std::string less = shards(config) || job.grid.gradient_size() == 1 ? "" : "--use-distributed-optimizer, ";
  if (offloads) less += "a smaller --optimizer-offload-fraction or --cpu-offloading-num-layers, ";
  const std::string needed =
      fmt::format("{} {} of {}", ranks_text(job.node.local_size, "machine"), bytes_text(on_machine), purpose);
  collectively(*job.world, [&] {
    TRIREME_CHECK(on_machine < machine, EnvironmentError,
                  "{}, it has {}: use {}fewer ranks a machine, or more tensor or pipeline ranks", needed,
                  bytes_text(machine), less);
  });
  constexpr double much = 0.8;
  if (job.node.local_rank == 0 && static_cast<double>(on_machine) > much * static_cast<double>(machine)) {
    log::warn("{}: that leaves {} for everything else", needed, bytes_text(machine - on_machine));
  }
}

}  // namespace

std::string expert_load_text(const train::ParallelConfig& parallel) {
  if (parallel.pad_experts) return "expert load factor: no effect, experts are padded to equal loads";
  return fmt::format("expert load factor {:g}: tokens of each rank's experts, over the mean of its ep ranks",
                     parallel.expert_load);
}

void check_min_memory(const Job& job, const model::ModelConfig& config, const train::ExecutionConfig& execution,
                      const std::optional<optim::OptimizerOptions>& optimizer, const std::string& remedies) {
  const train::MinMemory minimum = train::min_memory(config, execution, job.grid, optimizer);
  const auto mine = static_cast<std::int64_t>(job.backend->device_memory_bytes()) / job.ranks_on_device;
  const std::int64_t all = all_reduce_number(*job.world, mine, ReduceOp::sum);
  if (minimum.total() < static_cast<double>(all)) return;
  const int ranks = job.grid.world_size();
  throw CollectiveError(
      ExitCode::environment,
      fmt::format(
          "{} parameters (--num-layers {} --hidden-size {} --ffn-hidden-size {} --vocab-size {}, padded to {}, "
          "--max-position-embeddings {}) take at least {}, and micro-batches (--micro-batch-size {} --seq-length {}) "
          "at least {}; the {} of this job {} {}: use a smaller model, {}",
          model::parameter_count(config), config.layers, config.hidden, config.ffn_hidden, config.vocabulary,
          minimum.padded_vocabulary, config.max_positions, bytes_text(minimum.parameters), execution.micro_batch_size,
          execution.sequence_length, bytes_text(minimum.activations),
          ranks == 1 ? "rank" : fmt::format("{} ranks", ranks), ranks == 1 ? "has" : "have", bytes_text(all),
          remedies));
}

void log_memory(const Job& job, const RunConfig& config, const model::ModelConfig& model) {
  const train::ExecutionConfig execution = config.execution_config();
  const train::TrainOptions options = config.train_options();
  // A rehearsal counts bytes in 64 bits, which suffice well beyond this limit.
  constexpr double max_rehearsed = 0x1p50;
  const bool is_printed_first =
      config.run.dry_run && train::min_memory(model, execution, job.grid, options.optimizer).total() < max_rehearsed;
  const auto check_all = [&] {
    check_min_memory(job, model, execution, options.optimizer, remedies(job, config, model));
  };
  if (!is_printed_first) check_all();
  train::MemoryEstimate memory;
  collectively(*job.world, [&] {
    memory = train::estimate_memory(*job.backend, model, execution, options, job.grid, job.world->rank());
  });
  log_stages(job, memory, config.run.dry_run);
  if (config.run.dry_run) {
    if (model.experts.any()) log::info("{}", expert_load_text(execution.parallel));
    log_layer_activations(job, config, model);
  }
  if (is_printed_first) check_all();
  const std::size_t copy = copied_bytes(job, config, memory);
  const bool is_host = job.backend->memory_is_host();
  log_device(job, config, model,
             is_host ? sum_on_machine(job, memory.total() + memory.host() + copy)
                     : memory.total() * static_cast<std::size_t>(job.ranks_on_device));
  const std::size_t kept = is_host ? 0 : memory.host();
  const bool offloads = !is_host && (config.parallel.sharding.offload().fraction > 0 ||
                                     config.execution.recomputation.offloaded_layers > 0);
  if (copies_state(job, config) || offloads) {
    log_host_memory(job, config, host_memory_purpose(job, config, memory, copy), offloads, kept + copy,
                    sum_on_machine(job, kept + copy));
  }
}

void log_peak_memory(const Job& job) {
  const auto mine = static_cast<std::int64_t>(job.backend->peak_allocated_bytes());
  const std::int64_t peak = all_reduce_number(*job.world, mine, ReduceOp::max);
  log::info("peak memory of the fullest rank: {} ({} bytes)", bytes_text(peak), peak);
}

}  // namespace trireme::app
