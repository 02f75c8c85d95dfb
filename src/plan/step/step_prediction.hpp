#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/model/model_config.hpp"
#include "src/parallel/grid/process_grid.hpp"
#include "src/plan/simulation.hpp"
#include "src/plan/step/work_time.hpp"
#include "src/plan/work/update_work.hpp"
#include "src/train/train_options.hpp"

namespace trireme::plan {

/// A training run whose step is predicted.
struct Job {
  model::ModelConfig model;
  train::ExecutionConfig execution;
  train::TrainOptions options;  ///< global batch, clipping and optimizer; the rest is not read
  parallel::ProcessGrid grid;
};

/// A step of training as predicted. The work is that of the pipeline rank with the most of it. Work, with its exposed
/// communication, and the bubble add up to the step. Where ranks share cores (Cluster::cores_per_node), those of a node
/// have at least the time that their cores take for the work of all: a rank that waits leaves its core to others.
struct StepPrediction {
  double step_ms = 0;
  WorkTime work;
  double bubble_ms = 0;     ///< waits for other stages, for messages between them, and for a core
  double recompute_ms = 0;  ///< part of the work that backward repeats
  double model_flops = 0;   ///< FLOPs of all ranks (model::model_flops)
  Simulation schedule;      ///< one data rank's pipeline, in milliseconds; of a long one the first and last rounds
};

/// Predicts steps of this program on a cluster. The work of a rank is that of a rehearsal of its code, which is kept
/// for later predictions; its time comes from the cluster's costs.
class StepPredictor {
 public:
  explicit StepPredictor(Cluster cluster);
  ~StepPredictor();
  StepPredictor(const StepPredictor&) = delete;

  const Cluster& cluster() const { return cluster_; }
  /// ConfigError where the program could not run the job.
  StepPrediction predict(const Job& job);

 private:
  struct Parts;
  struct Stage;
  const Parts& parts_of(const Job& job, const std::string& key, const GroupPlacements& groups);
  const UpdateWork& update_of(const Job& job, const std::string& key, const parallel::PipelineLayout& layout, int rank);
  Stage stage_of(const Job& job, const std::string& key, const GroupPlacements& groups,
                 const parallel::PipelineLayout& layout, int rank);
  /// Times of all chunks, in the order in which data passes them.
  static std::vector<ChunkTimes> chunk_times(const std::vector<Stage>& stages, bool halves);
  /// Times of messages between stages, without those of chunks.
  ScheduleTimes message_times(const Job& job, const GroupPlacements& groups, double boundary_bytes) const;

  Cluster cluster_;
  std::map<std::string, std::unique_ptr<Parts>> parts_;         ///< by what the work of a stage depends on
  std::map<std::string, std::unique_ptr<UpdateWork>> updates_;  ///< by that of updates
};

/// One prediction.
inline StepPrediction predict_step(const Cluster& cluster, const Job& job) {
  return StepPredictor(cluster).predict(job);
}

}  // namespace trireme::plan
