#include "src/plan/search/job_costs.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::plan {

namespace {

bool is_cpu(const Cluster& cluster) { return cluster.cores_per_node > 0; }

std::unique_ptr<Backend> device_of(const Cluster& cluster) {
  if (is_cpu(cluster)) return make_backend(BackendChoice::cpu, 1);
  return std::make_unique<DeviceStandIn>(static_cast<std::size_t>(cluster.device.memory_gb * 1e9));
}

}  // namespace

ClusterCosts::ClusterCosts(const Cluster& cluster) : predictor_(cluster), device_(device_of(cluster)) {}
ClusterCosts::~ClusterCosts() = default;

double ClusterCosts::limit_bytes() const {
  constexpr double share = 0.95;
  const Cluster& cluster = predictor_.cluster();
  // A node's memory is that of all of its cores.
  const double devices = is_cpu(cluster) ? static_cast<double>(cluster.cores_per_node) / cluster.ranks_per_node : 1;
  return share * cluster.device.memory_gb * 1e9 * devices;
}

std::size_t ClusterCosts::layer_bytes(const Job& job) {
  const train::ExecutionConfig& e = job.execution;
  const std::string key =
      fmt::format("{} {} {} {} {}", job.grid.tensor_size(), job.grid.context_size(), e.micro_batch_size,
                  static_cast<int>(e.recomputation.granularity), e.parallel.sequence_parallel);
  const auto known = layer_bytes_.find(key);
  if (known != layer_bytes_.end()) return known->second;
  const std::size_t bytes =
      train::layer_activations(*device_, job.model, e, job.grid.tensor_size(), job.grid.context_size()).kept;
  return layer_bytes_[key] = bytes;
}

double ClusterCosts::min_bytes(const Job& job) {
  const parallel::PipelineLayout layout = layout_of(job);
  const train::MinMemory minimum = train::min_memory(job.model, job.execution, job.grid, job.options.optimizer);
  const double parameters = minimum.parameters / job.grid.world_size();
  if (!has_equal_chunks(job)) return parameters;
  const int chunks = in_flight(schedule_of(job), layout.stages, layout.chunks, micro_batches_of(job));
  return parameters + static_cast<double>(layer_bytes(job)) * layout.layers.front() * chunks;
}

train::MemoryEstimate ClusterCosts::memory(const Job& job, int stage) {
  return train::estimate_memory(*device_, job.model, job.execution, job.options, job.grid,
                                job.grid.rank({.pipeline = stage}));
}

int in_flight(parallel::ScheduleKind kind, int stages, int chunks, int micro_batches) {
  switch (kind) {
    case parallel::ScheduleKind::gpipe:
      return micro_batches;
    case parallel::ScheduleKind::interleaved:
      return std::min(2 * (stages - 1) + (chunks - 1) * stages + 1, micro_batches * chunks);
    default:
      return std::min(stages, micro_batches);
  }
}

}  // namespace trireme::plan
