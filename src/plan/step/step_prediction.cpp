#include "src/plan/step/step_prediction.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/model/stage/model_parameters.hpp"
#include "src/train/batch_schedule.hpp"

namespace trireme::plan {
namespace {

using model::RecomputeGranularity;
using parallel::Schedule;
using parallel::ScheduleKind;
using parallel::StepKind;

ChunkTime time_of(const Cluster& cluster, CallCosts& costs, const StageWork& work, const GroupPlacements& groups,
                  bool graphs) {
  const auto step = [&](StepKind kind) { return plan::time_of(cluster, costs, work.steps.at(kind), groups, graphs); };
  return {step(StepKind::forward), step(StepKind::backward), step(StepKind::backward_input),
          step(StepKind::backward_weight)};
}

/// Everything the work of a stage depends on, besides its layers.
std::string stage_key(const Job& job) {
  const train::ExecutionConfig& e = job.execution;
  std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", job.grid.tensor_size(), job.grid.context_size(),
                  job.grid.gradient_size(), static_cast<int>(e.dtype), e.sequence_length, e.micro_batch_size,
                  e.vocabulary_multiple, e.padded_vocabulary_size, e.cuda_graphs,
                  static_cast<int>(e.recomputation.granularity), static_cast<int>(e.recomputation.method),
                  e.recomputation.layers, e.recomputation.distribute, e.parallel.sequence_parallel,
                  e.parallel.row_chunks, e.parallel.async_tensor_all_reduce, job.model.hidden_dropout);
  const model::ExpertConfig& experts = job.model.experts;
  const model::RecomputedModules modules = e.recomputation.selected();
  std::string balance;
  for (const model::BalanceTerm& term : experts.balance_terms()) {
    balance += fmt::format("{}x{},", static_cast<int>(term.loss), term.coefficient);
  }
  key += fmt::format(" {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", job.model.attention_dropout,
                     e.cross_entropy_chunks, job.grid.expert_size(), job.grid.expert_tensor_size(),
                     e.parallel.exchange_tokens, e.parallel.expert_load, balance, experts.z_coefficient,
                     experts.capacity_factor, experts.jitter_eps, e.parallel.overlap_shared_expert,
                     e.parallel.pad_experts, modules.attention, modules.activation, modules.experts, e.max_predictions,
                     e.recomputation.offloaded_layers > 0);
  const Attributes shape = model::attributes_of(job.model);
  for (const auto& [name, value] : shape.texts()) key += fmt::format(" {}={}", name, value);
  return key;
}

/// Everything the update of a stage depends on, besides its layers and its place in the pipeline.
std::string update_key(const Job& job) {
  const train::ExecutionConfig& e = job.execution;
  const parallel::DataParallelOptions& data = e.parallel.data_parallel;
  const optim::OptimizerOptions& optimizer = job.options.optimizer;
  std::string key = fmt::format("{} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {} {}", job.grid.tensor_size(),
                                job.grid.gradient_size(), job.grid.expert_size(), job.grid.expert_tensor_size(),
                                static_cast<int>(e.dtype), e.vocabulary_multiple, e.padded_vocabulary_size,
                                e.parallel.sequence_parallel, static_cast<int>(data.sharding),
                                data.low_precision_gradients, data.overlap_reduce, data.overlap_gather,
                                data.bucket_elements, schedule_of(job) == ScheduleKind::zero_bubble,
                                static_cast<int>(optimizer.kind), static_cast<int>(optimizer.adamw.exp_avg_dtype),
                                static_cast<int>(optimizer.adamw.exp_avg_sq_dtype), optimizer.offload.fraction);
  const Attributes shape = model::attributes_of(job.model);
  for (const auto& [name, value] : shape.texts()) key += fmt::format(" {}={}", name, value);
  return key;
}

/// Runs a schedule. Simulates fewer rounds of micro-batches of a long one: in steady state every round takes the same
/// time.
Simulation simulate_pipeline(ScheduleKind kind, const parallel::PipelineLayout& layout, int micro_batches,
                             const ScheduleTimes& times) {
  constexpr std::int64_t most_steps = 20'000;
  const auto run = [&](int count) {
    return simulate(parallel::make_schedule(kind, layout.stages, count, layout.chunks), times);
  };
  const int p = layout.stages;
  const int few = 3 * p + micro_batches % p;
  if (kind == ScheduleKind::gpipe || 3LL * p * layout.chunks * micro_batches <= most_steps || micro_batches <= few + p)
    return run(micro_batches);
  const double shorter = run(few).makespan;
  Simulation simulation = run(few + p);
  const double left = (simulation.makespan - shorter) * (micro_batches - few - p) / p;
  // The first steps stay, the last ones come later.
  for (auto& steps : simulation.ranks) {
    for (TimedStep& timed : steps) {
      if (timed.step.micro_batch < few + p - 1) continue;
      timed.step.micro_batch = micro_batches - 1;
      timed.start += left;
      timed.end += left;
    }
  }
  const double factor = static_cast<double>(micro_batches) / (few + p);
  for (RankTime& time : simulation.times) {
    time.busy *= factor;
    time.messages *= factor;
  }
  simulation.makespan += left;
  return simulation;
}

/// Returns whether backwards of inputs and of weights are separate steps.
bool has_halves(const Job& job) { return schedule_of(job) == ScheduleKind::zero_bubble; }

}  // namespace

parallel::PipelineLayout layout_of(const Job& job) {
  return parallel::PipelineLayout::of(job.model.layers, job.grid.pipeline_size(), job.execution.parallel.pipeline);
}

bool has_equal_chunks(const Job& job) {
  if (!job.model.experts.layers.empty()) return false;
  const std::vector<int> layers = layout_of(job).layers;
  return std::ranges::count(layers, layers.front()) == std::ssize(layers);
}

ScheduleKind schedule_of(const Job& job) {
  return parallel::schedule_for(job.execution.parallel.schedule, chunks_of(job));
}

int micro_batches_of(const Job& job) {
  return static_cast<int>(
      train::micro_batches_of(job.options.global_batch_size, job.execution.micro_batch_size, job.grid.data_size()));
}

/// Parts of which chunks consist.
struct StepPredictor::Parts {
  ChunkTime layer, recomputed_layer;
  ChunkTime rest;  ///< part of every chunk besides its layers
  ChunkTime embedding, head;
  double boundary_bytes = 0;
  double offload_ms = 0;  ///< time of the copy of an offloaded layer to host memory, or back

  ChunkTime chunk(int layers, const model::Recomputation& recomputation, bool first, bool last) const {
    const int recomputed = model::recomputed_layers(recomputation, layers);
    ChunkTime chunk = rest + (layers - recomputed) * layer + recomputed * recomputed_layer;
    if (first) chunk += embedding;
    if (last) chunk += head;
    // One stream makes the copies of a pass in turn, beside its layers. The first half of a backward also copies back
    // what the second reads.
    const double copies = model::offloaded_layers(recomputation, layers) * offload_ms;
    for (const auto& [pass, times] : {std::pair{&chunk.forward, 1},
                                      {&chunk.backward, 1},
                                      {&chunk.backward_input, 2},
                                      {&chunk.backward_weight, 1}}) {
      pass->add_host_copies(times * copies, pass->total());
    }
    return chunk;
  }
};

/// A pipeline rank: its chunks, and what surrounds their units of parameters.
struct StepPredictor::Stage {
  std::vector<ChunkTime> chunks;
  const UpdateWork* update = nullptr;
  std::vector<UnitTime> units;
  int recomputed = 0;  ///< layers
  int messages = 0;    ///< received for each micro-batch

  WorkTime work(bool halves) const {
    WorkTime sum;
    for (const ChunkTime& chunk : chunks) {
      sum += chunk.forward + (halves ? chunk.backward_input + chunk.backward_weight : chunk.backward);
    }
    return sum;
  }
};

StepPredictor::StepPredictor(Cluster cluster) : cluster_(std::move(cluster)), costs_(cluster_.device) {}
StepPredictor::~StepPredictor() = default;

const StepPredictor::Parts& StepPredictor::parts_of(const Job& job, const std::string& key,
                                                    const GroupPlacements& groups) {
  std::unique_ptr<Parts>& parts = parts_[key];
  if (parts) return *parts;

  // Where only some layers have a window or experts, each takes the mean of those with and those without.
  Job with = job, without = job;
  const std::string& layers = job.model.window.layers.empty() ? job.model.experts.layers : job.model.window.layers;
  if (!layers.empty()) {
    if (!job.model.window.layers.empty()) {
      with.model.window.layers.clear();
      without.model.window = {};
    } else {
      with.model.experts.layers.clear();
      without.model.experts = {};
    }
    const Parts& a = parts_of(with, stage_key(with), groups);
    const Parts& b = parts_of(without, stage_key(without), groups);
    const double share = static_cast<double>(std::ranges::count(layers, '1')) / static_cast<double>(std::ssize(layers));
    const auto mean = [&](const ChunkTime& x, const ChunkTime& y) { return share * x + (1 - share) * y; };
    parts = std::make_unique<Parts>(Parts{mean(a.layer, b.layer), mean(a.recomputed_layer, b.recomputed_layer), a.rest,
                                          a.embedding, a.head, a.boundary_bytes,
                                          share * a.offload_ms + (1 - share) * b.offload_ms});
    return *parts;
  }
  const train::ExecutionConfig& e = job.execution;
  train::ExecutionConfig execution = e;
  const auto record = [&](const train::StageRehearsal::Layers& layers) {
    return record_stage(job.model, execution, job.grid, layers);
  };
  const auto time = [&](const StageWork& work) { return time_of(cluster_, costs_, work, groups, e.cuda_graphs); };
  const bool full = e.recomputation.granularity == RecomputeGranularity::full;
  auto made = std::make_unique<Parts>();
  if (full) execution.recomputation = {};
  if (e.recomputation.offloaded_layers > 0) {
    execution.recomputation.offloaded_layers = 1;
    const StageWork offloaded = record({.layers = 1, .first = true});
    made->offload_ms = host_copy_ms(cluster_, host_bytes_of(offloaded.steps.at(StepKind::forward)).to_host, 0);
    execution.recomputation.offloaded_layers = 0;
  }
  const StageWork one = record({.layers = 1});
  const ChunkTime middle = time(one);
  made->boundary_bytes = one.boundary_bytes;
  made->layer = time(record({.layers = 2})) - middle;
  made->rest = middle - made->layer;
  made->embedding = time(record({.layers = 1, .first = true})) - middle;
  made->head = time(record({.layers = 1, .last = true})) - middle;
  made->recomputed_layer = made->layer;
  if (full) {
    // One span of layers more.
    execution.recomputation = e.recomputation;
    execution.recomputation.offloaded_layers = 0;
    execution.recomputation.method = model::RecomputeMethod::uniform;
    const bool uniform = e.recomputation.method == model::RecomputeMethod::uniform;
    const int span = uniform ? std::clamp(e.recomputation.layers, 1, job.model.layers) : 1;
    execution.recomputation.layers = span;
    made->recomputed_layer = 1.0 / span * (time(record({.layers = 2 * span})) - time(record({.layers = span})));
  }
  parts = std::move(made);
  return *parts;
}

const UpdateWork& StepPredictor::update_of(const Job& job, const std::string& key, int rank) {
  const parallel::PipelineLayout layout = layout_of(job);
  std::string name = fmt::format("{} {} {}:", key, rank == 0, rank + 1 == layout.stages);
  for (int chunk = 0; chunk < layout.chunks; ++chunk) {
    name += fmt::format(" {}", layout.layers[static_cast<std::size_t>(chunk * layout.stages + rank)]);
  }
  if (!job.model.experts.layers.empty()) name += fmt::format(" of rank {}", rank);
  std::unique_ptr<UpdateWork>& work = updates_[name];
  if (!work) {
    work = std::make_unique<UpdateWork>(record_update(job.model, job.execution, job.options.optimizer, job.grid, rank));
  }
  return *work;
}

StepPredictor::Stage StepPredictor::stage_of(const Job& job, const Keys& keys, const GroupPlacements& groups,
                                             int rank) {
  using Part = UpdateWork::Unit::Part;
  const Parts& parts = parts_of(job, keys.stage, groups);
  const parallel::PipelineLayout layout = layout_of(job);
  const int positions = layout.stages * layout.chunks;
  Stage stage;
  stage.update = &update_of(job, keys.update, rank);
  for (int chunk = 0; chunk < layout.chunks; ++chunk) {
    const int position = chunk * layout.stages + rank;
    const int layers = layout.layers[static_cast<std::size_t>(position)];
    const bool first = position == 0, last = position + 1 == positions;
    stage.chunks.push_back(parts.chunk(layers, job.execution.recomputation, first, last));
    stage.recomputed += model::recomputed_layers(job.execution.recomputation, layers);
    stage.messages += (first ? 0 : 1) + (last ? 0 : 1);
  }
  const auto unit_time = [&](const ChunkTime& time) {
    return UnitTime{time.forward.total(), time.forward.idle,
                    (has_halves(job) ? time.backward_weight : time.backward).total()};
  };
  for (const UpdateWork::Unit& unit : stage.update->units) {
    const int layers = layout.layers[static_cast<std::size_t>(unit.chunk * layout.stages + rank)];
    const Part part = unit.part;
    stage.units.push_back(unit_time(
        part == Part::embedding ? parts.embedding
        : part == Part::head    ? parts.head
                                : 1.0 / layers * parts.chunk(layers, job.execution.recomputation, false, false)));
  }
  const UpdateTimer timer(cluster_, costs_, groups, *stage.update, stage.units, job.execution.cuda_graphs);
  for (int chunk = 0; chunk < layout.chunks; ++chunk) {
    ChunkTime& time = stage.chunks[static_cast<std::size_t>(chunk)];
    const WorkTime hooks = timer.hooks(chunk);
    time.backward += hooks;
    time.backward_weight += hooks;
  }
  return stage;
}

ScheduleTimes StepPredictor::message_times(const Job& job, const GroupPlacements& groups, double boundary_bytes) const {
  const train::ParallelConfig& parallel = job.execution.parallel;
  const parallel::ProcessGrid& grid = job.grid;
  const int t = grid.tensor_size();
  const bool shards = parallel.scatter_gather && !parallel.sequence_parallel && t > 1;
  // Between neighbours on one node, or on two: the mean.
  const GroupPlacement& pipeline = groups.of(parallel::GroupKind::pipeline);
  const double crossing =
      pipeline.nodes() == 1 ? 0 : static_cast<double>(pipeline.nodes() - 1) / (grid.pipeline_size() - 1);
  const auto time = [&](const GroupPlacement& neighbours) {
    return collective_ms(cluster_, Collective::send_receive, boundary_bytes / (shards ? t : 1), neighbours);
  };
  const double message = (1 - crossing) * time({2, 2}) + crossing * time({2, 1});
  const double gather =
      shards ? collective_ms(cluster_, Collective::all_gather, boundary_bytes, groups.of(parallel::GroupKind::tensor))
             : 0;
  const bool by_own_cores = cluster_.cores_per_node > 0 && pipeline.nodes() == 1;
  const bool hides = parallel.overlap_p2p && !by_own_cores;
  return {{}, hides ? message : 0, gather + (hides ? 0 : message)};
}

StepPrediction StepPredictor::predict(const Job& job) {
  const train::ExecutionConfig& execution = job.execution;
  const parallel::ProcessGrid& grid = job.grid;
  train::validate(execution, job.model, grid.expert_size(), grid.folds_experts());
  train::validate_fp8(execution, job.model, grid.tensor_size(), grid.context_size());
  const parallel::PipelineLayout layout = layout_of(job);
  const bool halves = has_halves(job);
  const int micro_batches = micro_batches_of(job);
  const GroupPlacements groups(cluster_, grid);
  const Keys keys{stage_key(job), update_key(job)};
  const Parts& parts = parts_of(job, keys.stage, groups);

  std::vector<Stage> stages;
  for (int rank = 0; rank < layout.stages; ++rank) stages.push_back(stage_of(job, keys, groups, rank));
  ScheduleTimes times = message_times(job, groups, parts.boundary_bytes);
  for (std::size_t chunk = 0; chunk < stages.front().chunks.size(); ++chunk) {
    for (const Stage& stage : stages) {
      const ChunkTime& time = stage.chunks[chunk];
      times.chunks.push_back(
          halves ? ChunkTimes{time.forward.total(), time.backward_input.total(), time.backward_weight.total()}
                 : ChunkTimes{time.forward.total(), time.backward.total(), 0});
    }
  }

  StepPrediction prediction;
  prediction.schedule = simulate_pipeline(schedule_of(job), layout, micro_batches, times);
  prediction.model_flops = model::model_flops(job.model, job.options.global_batch_size, execution.sequence_length,
                                              execution.max_predictions);
  // The host sums label counts and losses over all ranks.
  const double host_sums =
      2 * collective_ms(cluster_, Collective::all_reduce, 16, placement(cluster_, grid.world_size(), 1));
  double clearing = 0, reduced = 0, updated = 0, most = -1, all_work = 0;
  for (std::size_t r = 0; r < stages.size(); ++r) {
    const Stage& stage = stages[r];
    const UpdateTimer timer(cluster_, costs_, groups, *stage.update, stage.units, execution.cuda_graphs);
    const UpdateTime update = timer.update(prediction.schedule.ranks[r], micro_batches, layout.chunks);
    if (r == 0) clearing = update.clearing.total();
    reduced = std::max(reduced, prediction.schedule.ranks[r].back().end + update.reduction.total());
    updated = std::max(updated, update.norm.total() + update.update.total());
    WorkTime work =
        micro_batches * stage.work(halves) + update.clearing + update.reduction + update.norm + update.update;
    TrafficTime& messages = work.of(Traffic::pipeline);
    messages.exposed_ms += prediction.schedule.times[r].messages;
    messages.hidden_ms += std::max(
        0.0, micro_batches * stage.messages * (times.transfer + times.receive) - prediction.schedule.times[r].messages);
    work.of(Traffic::scalars).exposed_ms += host_sums;
    all_work += work.total() * grid.world_size() / static_cast<double>(stages.size());
    if (work.total() <= most) continue;
    most = work.total();
    prediction.work = work;
    prediction.recompute_ms =
        micro_batches * stage.recomputed * (parts.recomputed_layer.backward.total() - parts.layer.backward.total());
  }
  prediction.step_ms = clearing + reduced + updated + host_sums;
  if (cluster_.cores_per_node > 0) {
    const int nodes = (grid.world_size() + cluster_.ranks_per_node - 1) / cluster_.ranks_per_node;
    prediction.step_ms = std::max(prediction.step_ms, all_work / (nodes * cluster_.cores_per_node));
  }
  prediction.bubble_ms = prediction.step_ms - prediction.work.total();
  return prediction;
}

}  // namespace trireme::plan
