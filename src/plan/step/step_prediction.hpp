#pragma once

#include <array>
#include <vector>

#include "src/model/model_config.hpp"
#include "src/parallel/grid/process_grid.hpp"
#include "src/plan/cluster/cluster.hpp"
#include "src/plan/simulation.hpp"
#include "src/train/train_options.hpp"

namespace trireme::plan {

/// A training run whose step is predicted.
struct Job {
  model::ModelConfig model;
  train::ExecutionConfig execution;
  train::TrainOptions options;  ///< global batch, clipping and optimizer; the rest is not read
  parallel::ProcessGrid grid;
};

/// Communication by its purpose.
enum class Traffic {
  tensor,      ///< sums, gathers and scatters of activations in a tensor group
  context,     ///< keys and values in a context group
  pipeline,    ///< messages between stages
  gradients,   ///< reduction of gradients over data and context ranks, and of the tied embedding
  parameters,  ///< gathers of updated parameters
  scalars,     ///< loss, norm of gradients
};
constexpr int traffic_count = static_cast<int>(Traffic::scalars) + 1;
const char* name_of(Traffic traffic);

/// Time of communication in a step.
struct TrafficTime {
  double exposed_ms = 0;  ///< while the rank waits
  double hidden_ms = 0;   ///< beside its own work
};

/// A step of training as predicted. The times of work are those of the pipeline rank with the most of it. These times,
/// exposed communication, gaps and the bubble add up to the step.
struct StepPrediction {
  double step_ms = 0;
  double products_ms = 0;
  double attention_ms = 0;
  double memory_bound_ms = 0;  ///< norms, dropout, activations, copies, embedding, cross entropy
  double optimizer_ms = 0;
  double gaps_ms = 0;    ///< launches, and waits of the host
  double bubble_ms = 0;  ///< waits for other stages, beyond the time of messages
  std::array<TrafficTime, traffic_count> traffic{};
  double recompute_ms = 0;  ///< part of the work above that backward repeats
  double model_flops = 0;   ///< FLOPs of all ranks (model::model_flops)
  Simulation schedule;      ///< one data rank's pipeline, in milliseconds

  const TrafficTime& of(Traffic kind) const { return traffic[static_cast<std::size_t>(kind)]; }
};

/// Predicts a step of this program. The work of a rank is that of a rehearsal of its code; its time comes from the
/// cluster's costs. ConfigError where the program could not run the job.
StepPrediction predict_step(const Cluster& cluster, const Job& job);

}  // namespace trireme::plan
