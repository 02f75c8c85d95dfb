#include "src/plan/step/step_prediction.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/plan/overlap.hpp"
#include "src/plan/step/update_time.hpp"
#include "src/train/batch_schedule.hpp"

namespace trireme::plan {
namespace {

using model::RecomputeGranularity;
using parallel::Schedule;
using parallel::ScheduleKind;
using parallel::StepKind;

/// Times of a chunk with a micro-batch, and its parameters on one rank.
struct ChunkTime {
  WorkTime forward, backward, backward_input, backward_weight;
  double parameters = 0;
  double embedding_parameters = 0;

  ChunkTime& operator+=(const ChunkTime& other) {
    forward += other.forward;
    backward += other.backward;
    backward_input += other.backward_input;
    backward_weight += other.backward_weight;
    parameters += other.parameters;
    return *this;
  }
  friend ChunkTime operator*(double factor, ChunkTime chunk) {
    chunk.forward = factor * chunk.forward;
    chunk.backward = factor * chunk.backward;
    chunk.backward_input = factor * chunk.backward_input;
    chunk.backward_weight = factor * chunk.backward_weight;
    chunk.parameters *= factor;
    return chunk;
  }
  friend ChunkTime operator+(ChunkTime a, const ChunkTime& b) { return a += b; }
  friend ChunkTime operator-(ChunkTime a, const ChunkTime& b) { return a += -1 * b; }
};

ChunkTime time_of(const Cluster& cluster, const StageWork& work, const StageGroups& groups, bool graphs) {
  const auto step = [&](StepKind kind) { return plan::time_of(cluster, work.steps.at(kind), groups, graphs); };
  return {step(StepKind::forward), step(StepKind::backward), step(StepKind::backward_input),
          step(StepKind::backward_weight), static_cast<double>(work.parameters)};
}

model::Recomputation recompute_every_layer() {
  return {.granularity = RecomputeGranularity::full, .method = model::RecomputeMethod::uniform, .layers = 1};
}

/// Recomputed layers of a chunk.
int recomputed_layers(const model::Recomputation& recomputation, int layers) {
  if (recomputation.granularity != RecomputeGranularity::full) return 0;
  return recomputation.method == model::RecomputeMethod::uniform ? layers : std::min(recomputation.layers, layers);
}

GroupPlacement group_of(const Cluster& cluster, const parallel::ProcessGrid& grid, parallel::GroupKind kind) {
  const int t = grid.tensor_size(), c = grid.context_size(), d = grid.data_size();
  switch (kind) {
    case parallel::GroupKind::tensor:
      return placement(cluster, t, 1);
    case parallel::GroupKind::context:
      return placement(cluster, c, t);
    case parallel::GroupKind::gradient:
      return placement(cluster, c * d, t);
    case parallel::GroupKind::pipeline:
      return placement(cluster, grid.pipeline_size(), t * c * d);
    default:
      return placement(cluster, 2, t * c * d * std::max(1, grid.pipeline_size() - 1));
  }
}

}  // namespace

/// Parts of which chunks consist.
struct StepPredictor::Parts {
  ChunkTime layer, recomputed_layer;
  ChunkTime rest;  ///< part of every chunk beside its layers
  ChunkTime embedding, head;
  double boundary_bytes = 0;

  ChunkTime chunk(int layers, const model::Recomputation& recomputation, bool first, bool last) const {
    const int recomputed = recomputed_layers(recomputation, layers);
    ChunkTime chunk = rest + (layers - recomputed) * layer + recomputed * recomputed_layer;
    if (first) chunk += embedding;
    if (last) chunk += head;
    return chunk;
  }
};

StepPredictor::StepPredictor(Cluster cluster) : cluster_(std::move(cluster)) {}
StepPredictor::~StepPredictor() = default;

const StepPredictor::Parts& StepPredictor::parts_of(const Job& job) {
  const train::ExecutionConfig& e = job.execution;
  const bool full = e.recomputation.granularity == RecomputeGranularity::full;
  std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", job.grid.tensor_size(), job.grid.context_size(),
                  group_of(cluster_, job.grid, parallel::GroupKind::context).ranks_per_node, static_cast<int>(e.dtype),
                  e.sequence_length, e.micro_batch_size, e.cuda_graphs, static_cast<int>(e.recomputation.granularity),
                  e.recomputation.distribute, e.parallel.sequence_parallel, e.parallel.async_tensor_all_reduce,
                  job.model.hidden_dropout + 2 * job.model.attention_dropout);
  const Attributes shape = model::attributes_of(job.model);
  for (const auto& [name, value] : shape.texts()) key += fmt::format(" {}={}", name, value);
  std::unique_ptr<Parts>& parts = parts_[key];
  if (parts) return *parts;

  const LayerGrid grid{job.grid.tensor_size(), job.grid.context_size()};
  const StageGroups groups{group_of(cluster_, job.grid, parallel::GroupKind::tensor),
                           group_of(cluster_, job.grid, parallel::GroupKind::context)};
  train::ExecutionConfig execution = e;
  const auto record = [&](const train::StageRehearsal::Layers& layers) {
    return record_stage(job.model, execution, grid, layers);
  };
  const auto time = [&](const StageWork& work) { return time_of(cluster_, work, groups, e.cuda_graphs); };
  auto made = std::make_unique<Parts>();
  if (full) execution.recomputation = {};
  const StageWork one = record({.layers = 1});
  const ChunkTime middle = time(one);
  made->boundary_bytes = one.boundary_bytes;
  made->layer = time(record({.layers = 2})) - middle;
  made->rest = middle - made->layer;
  made->embedding = time(record({.layers = 1, .first = true})) - middle;
  made->head = time(record({.layers = 1, .last = true})) - middle;
  made->recomputed_layer = made->layer;
  if (full) {
    execution.recomputation = recompute_every_layer();
    execution.recomputation.distribute = e.recomputation.distribute;
    made->recomputed_layer = time(record({.layers = 2})) - time(record({.layers = 1}));
  }
  parts = std::move(made);
  return *parts;
}

StepPrediction StepPredictor::predict(const Job& job) {
  const train::ExecutionConfig& execution = job.execution;
  const train::ParallelConfig& parallel = execution.parallel;
  train::validate(execution);
  const parallel::ProcessGrid& grid = job.grid;
  const auto layout = parallel::PipelineLayout::of(job.model.layers, grid.pipeline_size(), parallel.pipeline);
  const ScheduleKind kind = parallel::schedule_for(parallel.schedule, layout.chunks);
  const auto micro_batches = static_cast<int>(
      train::micro_batches_of(job.options.global_batch_size, execution.micro_batch_size, grid.data_size()));
  const Parts& parts = parts_of(job);

  const bool halves = kind == ScheduleKind::zero_bubble;
  const auto stages = static_cast<std::size_t>(layout.stages);
  std::vector<ChunkTime> ranks(stages);
  std::vector<int> rank_layers(stages);
  std::vector<WorkTime> last_backward(stages);
  ScheduleTimes times;
  double recompute = 0;
  for (int position = 0; position < layout.stages * layout.chunks; ++position) {
    const auto rank = static_cast<std::size_t>(position % layout.stages);
    const int layers = layout.layers[static_cast<std::size_t>(position)];
    const bool first = position == 0, last = position + 1 == layout.stages * layout.chunks;
    const ChunkTime chunk = parts.chunk(layers, execution.recomputation, first, last);
    ranks[rank] += chunk;
    rank_layers[rank] += layers;
    times.chunks.push_back(
        halves ? ChunkTimes{chunk.forward.total(), chunk.backward_input.total(), chunk.backward_weight.total()}
               : ChunkTimes{chunk.forward.total(), chunk.backward.total(), 0});
    last_backward[rank] = halves ? chunk.backward_weight : chunk.backward;
    if (rank == 0) {
      recompute += recomputed_layers(execution.recomputation, layers) *
                   (parts.recomputed_layer.backward.total() - parts.layer.backward.total());
    }
  }

  // A message between stages, and its gathering where each tensor rank sends its shard.
  const bool shards = parallel.scatter_gather && !parallel.sequence_parallel && grid.tensor_size() > 1;
  const GroupPlacement neighbours = placement(cluster_, 2, grid.tensor_size() * grid.context_size() * grid.data_size());
  const double message_bytes = parts.boundary_bytes / (shards ? grid.tensor_size() : 1);
  times.transfer = collective_ms(cluster_, Collective::send_receive, message_bytes, neighbours);
  if (shards) {
    times.transfer += collective_ms(cluster_, Collective::all_gather, parts.boundary_bytes,
                                    group_of(cluster_, grid, parallel::GroupKind::tensor));
  }

  StepPrediction prediction;
  prediction.schedule = simulate(make_schedule(kind, layout.stages, micro_batches, layout.chunks), times);
  prediction.model_flops = model::model_flops(job.model, job.options.global_batch_size, execution.sequence_length);

  // The update, and the rank with the most work.
  const UpdateGroups groups{.gradient = group_of(cluster_, grid, parallel::GroupKind::gradient),
                            .embedding = group_of(cluster_, grid, parallel::GroupKind::embedding),
                            .model = placement(cluster_, grid.world_size() / grid.gradient_size(), 1)};
  double reduced = 0, updated = 0, most = -1;
  for (std::size_t r = 0; r < stages; ++r) {
    const bool shares_embedding = job.model.has_tied_head() && stages > 1 && (r == 0 || r + 1 == stages);
    const UpdateTime update = update_time(
        cluster_, job, groups,
        {.parameters = ranks[r].parameters,
         .shared_parameters =
             shares_embedding ? static_cast<double>(job.model.vocabulary * job.model.hidden) / grid.tensor_size() : 0,
         .layers = rank_layers[r],
         .micro_batches = micro_batches,
         .forward_ms = ranks[r].forward.total(),
         .last_backward_ms = last_backward[r].total(),
         .backward_ms = ranks[r].backward.total()});
    const double end = prediction.schedule.ranks[r].empty() ? 0 : prediction.schedule.ranks[r].back().end;
    reduced = std::max(reduced, end + update.reduction.total());
    updated = std::max(updated, update.after.total());
    const WorkTime work =
        micro_batches *
            (ranks[r].forward + (halves ? ranks[r].backward_input + ranks[r].backward_weight : ranks[r].backward)) +
        update.reduction + update.after;
    if (work.total() <= most) continue;
    most = work.total();
    prediction.work = work;
  }
  prediction.step_ms = reduced + updated;
  prediction.bubble_ms = prediction.step_ms - prediction.work.total();
  prediction.recompute_ms = micro_batches * recompute;
  return prediction;
}

}  // namespace trireme::plan
