#include "io/json/plan_json.hpp"

#include <nlohmann/json.hpp>

namespace trireme::io {
namespace {

using Json = nlohmann::ordered_json;

Json axes_of(const parallel::ProcessGrid& grid) {
  return {{"tensor", grid.tensor_size()},
          {"pipeline", grid.pipeline_size()},
          {"context", grid.context_size()},
          {"data", grid.data_size()}};
}

const char* recomputation_of(const plan::Job& job) {
  const char* names[] = {"none", "selective", "full"};
  return names[static_cast<int>(job.execution.recomputation.granularity)];
}

Json parts_of(const plan::StepPrediction& step) {
  const plan::WorkTime& work = step.work;
  Json parts = {{"products", work.products},   {"attention", work.attention}, {"memory_bound", work.memory_bound},
                {"optimizer", work.optimizer}, {"gaps", work.gaps},           {"bubble", step.bubble_ms}};
  Json exposed, hidden;
  for (int kind = 0; kind < plan::traffic_count; ++kind) {
    const auto traffic = static_cast<plan::Traffic>(kind);
    exposed[plan::name_of(traffic)] = work.of(traffic).exposed_ms;
    hidden[plan::name_of(traffic)] = work.of(traffic).hidden_ms;
  }
  parts["exposed"] = exposed;
  return {{"parts_ms", parts}, {"hidden_ms", hidden}, {"recomputed_ms", step.recompute_ms}};
}

Json json_of(const plan::RankedGrid& grid, const plan::Cluster& cluster) {
  const plan::Job& job = grid.job;
  const train::ParallelConfig& parallel = job.execution.parallel;
  const double seconds = grid.step.step_ms / 1000;
  const double tflops = grid.step.model_flops / seconds / 1e12 / job.grid.world_size();
  Json memory = Json::array();
  for (const train::MemoryEstimate& stage : grid.memory) memory.push_back(stage.total());
  Json result = axes_of(job.grid);
  result.update(Json{{"chunks", plan::chunks_of(job)},
                     {"micro_batch_size", job.execution.micro_batch_size},
                     {"micro_batches", plan::micro_batches_of(job)},
                     {"global_batch_size", job.options.global_batch_size},
                     {"sequence_length", job.execution.sequence_length},
                     {"dtype", name_of(job.execution.dtype)},
                     {"schedule", parallel::to_string(plan::schedule_of(job))},
                     {"recomputation", recomputation_of(job)},
                     {"zero", static_cast<int>(parallel.data_parallel.sharding)},
                     {"sequence_parallel", parallel.sequence_parallel},
                     {"overlap_p2p", parallel.overlap_p2p},
                     {"overlap_reduce", parallel.data_parallel.overlap_reduce},
                     {"overlap_gather", parallel.data_parallel.overlap_gather},
                     {"memory_bytes", std::move(memory)},
                     {"step_ms", grid.step.step_ms},
                     {"tokens_per_second",
                      static_cast<double>(job.options.global_batch_size * job.execution.sequence_length) / seconds},
                     {"tflops_per_rank", tflops},
                     {"mfu", tflops / cluster.device.peak_tflops}});
  result.update(parts_of(grid.step));
  return result;
}

}  // namespace

std::string plan_json(const PlanReport& report) {
  const plan::SearchResult& result = report.result;
  Json grids = Json::array(), rejected = Json::array();
  for (const plan::RankedGrid& grid : result.grids) grids.push_back(json_of(grid, report.cluster));
  for (const plan::Rejection& rejection : result.rejections) {
    Json entry = axes_of(rejection.grid);
    entry.update(Json{{"reason", rejection.reason}, {"amount", rejection.amount}});
    rejected.push_back(std::move(entry));
  }
  const Json whole = {{"cluster", report.cluster.name},
                      {"nodes", report.nodes},
                      {"ranks", report.nodes * report.cluster.ranks_per_node},
                      {"memory_limit_bytes", result.limit_bytes},
                      {"layouts", result.layouts},
                      {"predicted", result.predicted},
                      {"rehearsed", result.rehearsed},
                      {"train_options", report.train_options},
                      {"grids", std::move(grids)},
                      {"rejected", std::move(rejected)}};
  return whole.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace trireme::io
