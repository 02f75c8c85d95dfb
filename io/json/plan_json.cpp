#include "io/json/plan_json.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/json/json_text.hpp"
#include "io/posix/file.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::io {

namespace {

using nlohmann::json;
using plan::Calibration;

[[noreturn]] void refuse(const json& value, const char* name, const std::string& wanted, const std::string& where) {
  throw DataError("{}: \"{}\" is {}: it must be {}", where, name, json_quotation(value), wanted);
}

std::string text_of(const json& object, const char* name, const std::string& where) {
  const json& value = required_member(object, name, where);
  if (!value.is_string()) refuse(value, name, "a text", where);
  return value.get<std::string>();
}

double positive(const json& value, const char* name, const std::string& where) {
  const bool good = value.is_number() && value.get<double>() > 0 && std::isfinite(value.get<double>());
  if (!good) refuse(value, name, "a number above 0", where);
  return value.get<double>();
}
double positive_of(const json& object, const char* name, const std::string& where) {
  return positive(required_member(object, name, where), name, where);
}

int count_of(const json& object, const char* name, const std::string& where) {
  constexpr std::int64_t max_ranks = 1 << 20;
  const json& value = required_member(object, name, where);
  const bool good =
      value.is_number_integer() && value.get<std::int64_t>() > 0 && value.get<std::int64_t>() <= max_ranks;
  if (!good) refuse(value, name, fmt::format("a whole number from 1 to {}", max_ranks), where);
  return value.get<int>();
}

/// Value of a field that is one of several words.
template <class T, std::size_t n>
T choice_of(const json& object, const char* name, const std::pair<const char*, T> (&choices)[n],
            const std::string& where) {
  const std::string word = text_of(object, name, where);
  std::string words;
  for (const auto& [known, value] : choices) {
    if (word == known) return value;
    words += fmt::format("{}{}", words.empty() ? "" : ", ", known);
  }
  refuse(word, name, "one of " + words, where);
}

DType dtype_of(const json& object, const std::string& where) {
  constexpr std::pair<const char*, DType> types[] = {
      {"fp32", DType::fp32}, {"bf16", DType::bf16}, {"fp16", DType::fp16}, {"fp64", DType::fp64}};
  return choice_of(object, "dtype", types, where);
}

Calibration::Kernel kernel_of(const json& object, const std::string& where) {
  Calibration::Kernel kernel;
  kernel.call = {
      text_of(object, "kernel", where), {}, positive_of(object, "work", where), positive_of(object, "us", where)};
  const json& shape = required_member(object, "shape", where);
  if (!shape.is_array()) refuse(shape, "shape", "a list of numbers", where);
  for (const json& extent : shape) kernel.call.shape.push_back(positive(extent, "shape", where));
  kernel.dtype = dtype_of(object, where);
  kernel.ranks = count_of(object, "ranks", where);
  return kernel;
}

Calibration::Share share_of(const json& object, const std::string& where) {
  constexpr std::pair<const char*, bool> units[] = {{"GB/s", true}, {"TFLOP/s", false}};
  return {text_of(object, "kernel", where), choice_of(object, "unit", units, where),
          positive_of(object, "ceiling", where), positive_of(object, "share", where)};
}

Calibration::Transfer transfer_of(const json& object, const std::string& where) {
  using enum Collective;
  constexpr std::pair<const char*, Collective> operations[] = {
      {"all_reduce", all_reduce}, {"reduce_scatter", reduce_scatter}, {"all_gather", all_gather},
      {"broadcast", broadcast},   {"send_receive", send_receive},     {"all_to_all", all_to_all}};
  Calibration::Transfer transfer{.collective = choice_of(object, "operation", operations, where),
                                 .ranks = count_of(object, "ranks", where),
                                 .bytes = positive_of(object, "bytes", where),
                                 .us = positive_of(object, "time_us", where)};
  if (object.contains("nodes")) transfer.nodes = count_of(object, "nodes", where);
  TRIREME_CHECK(transfer.nodes <= transfer.ranks, DataError, "{}: \"nodes\" is {}, more than \"ranks\", {}", where,
                transfer.nodes, transfer.ranks);
  return transfer;
}

using Json = nlohmann::ordered_json;

Json axes_of(const parallel::ProcessGrid& grid) {
  return {{"tensor", grid.tensor_size()},   {"pipeline", grid.pipeline_size()},
          {"context", grid.context_size()}, {"data", grid.data_size()},
          {"expert", grid.expert_size()},   {"expert_tensor", grid.expert_tensor_size()}};
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
  Json host_memory = Json::array();
  for (const train::MemoryEstimate& stage : grid.memory) {
    memory.push_back(stage.total());
    host_memory.push_back(stage.host());
  }
  Json result = axes_of(job.grid);
  result.update(Json{{"chunks", plan::chunks_of(job)},
                     {"micro_batch_size", job.execution.micro_batch_size},
                     {"micro_batches", plan::micro_batches_of(job)},
                     {"global_batch_size", job.options.global_batch_size},
                     {"sequence_length", job.execution.sequence_length},
                     {"dtype", name_of(job.execution.dtype)},
                     {"schedule", parallel::name_of(plan::schedule_of(job))},
                     {"recomputation", name_of(job.execution.recomputation.granularity)},
                     {"zero", static_cast<int>(parallel.data_parallel.sharding)},
                     {"sequence_parallel", parallel.sequence_parallel},
                     {"expert_load_factor", parallel.expert_load},
                     {"overlap_p2p", parallel.overlap_p2p},
                     {"overlap_reduce", parallel.data_parallel.overlap_reduce},
                     {"overlap_gather", parallel.data_parallel.overlap_gather},
                     {"memory_bytes", std::move(memory)},
                     {"host_memory_bytes", std::move(host_memory)},
                     {"step_ms", grid.step.step_ms},
                     {"tokens_per_second",
                      static_cast<double>(job.options.global_batch_size * job.execution.sequence_length) / seconds},
                     {"tflops_per_rank", tflops},
                     {"mfu", tflops / cluster.device.peak_tflops}});
  result.update(parts_of(grid.step));
  return result;
}

Json number_or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json error_percent(double predicted, const std::optional<double>& published) {
  return published ? Json(100 * (predicted / *published - 1)) : Json();
}

}  // namespace

void add_calibration(std::string_view text, const std::string& path, plan::Calibration& calibration) {
  bool empty = true;
  int number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    empty = false;
    const std::string where = fmt::format("{}:{}", path, number);
    const json object = parse_json_line(line, where);
    TRIREME_CHECK(object.is_object() && (object.contains("kernel") || object.contains("operation")), DataError,
                  "{}: neither a \"kernel\" nor an \"operation\": expected a line of kernels_calibration, "
                  "kernels_gpu_bench or collectives_bench",
                  where);
    if (object.contains("operation"))
      calibration.transfers.push_back(transfer_of(object, where));
    else if (object.contains("work"))
      calibration.kernels.push_back(kernel_of(object, where));
    else
      calibration.shares.push_back(share_of(object, where));
  }
  TRIREME_CHECK(!empty, DataError, "{}: there are no measurements", path);
}

plan::Calibration read_calibration(const std::vector<std::string>& paths) {
  constexpr std::int64_t max_bytes = 64 << 20;
  plan::Calibration calibration;
  for (const std::string& path : paths) {
    add_calibration(read_whole_file(path, max_bytes, Symlinks::follow), path, calibration);
  }
  return calibration;
}

std::string plan_json(const PlanReport& report) {
  const plan::SearchResult& result = report.result;
  Json grids = Json::array(), rejected = Json::array();
  for (const plan::RankedGrid& grid : result.grids) grids.push_back(json_of(grid, report.cluster));
  for (const plan::Rejection& rejection : result.rejections) {
    Json entry = axes_of(rejection.grid);
    entry.update(Json{{"reason", rejection.reason}, {"amount", rejection.amount}});
    rejected.push_back(std::move(entry));
  }
  Json whole = {{"cluster", report.cluster.name},
                {"nodes", report.nodes},
                {"ranks", report.nodes * report.cluster.ranks_per_node},
                {"memory_limit_bytes", result.limit_bytes},
                {"layouts", result.layouts},
                {"predicted", result.predicted},
                {"rehearsed", result.rehearsed},
                {"train_options", report.train_options},
                {"grids", std::move(grids)},
                {"rejected", std::move(rejected)}};
  for (const plan::EventDifference& row : report.comparison) {
    whole["comparison"].push_back({{"event", row.name},
                                   {"rank", row.rank},
                                   {"measured_ms", row.measured_ms},
                                   {"predicted_ms", row.predicted_ms},
                                   {"measured_count", row.measured_count},
                                   {"predicted_count", row.predicted_count}});
  }
  return json_dump(whole, 1) + "\n";
}

std::string run_prediction_json(const plan::PublishedRun& run, const plan::RunPrediction& p) {
  const auto field = [&](const char* column) {
    const auto found = run.text.find(column);
    return found == run.text.end() ? std::string() : found->second;
  };
  Json json = {{"line", run.line},
               {"source", field("source")},
               {"model", field("model")},
               {"hardware", field("hardware")},
               {"gpus", run.gpus},
               {"tp", run.tp},
               {"pp", run.pp},
               {"dp", run.dp},
               {"experts", run.experts.count},
               {"ep", run.experts.ep},
               {"etp", run.experts.etp},
               {"mbs", run.micro_batch},
               {"gbs", run.global_batch},
               {"recompute", field("recompute")},
               {"schedule", field("schedule")},
               {"zero3", run.is_fsdp()},
               {"framework", run.framework.name},
               {"iter_s", p.seconds},
               {"tflops_gpu", p.tflops_gpu},
               {"tflops_convention", plan::name_of(run.convention)}};
  json["published"] = {{"iter_s", number_or_null(run.iter_s)}, {"tflops_gpu", number_or_null(run.tflops_gpu)}};
  json["error_pct"] = {{"iter_s", error_percent(p.seconds, run.iter_s)},
                       {"tflops_gpu", error_percent(p.tflops_gpu, run.tflops_gpu)}};
  json["breakdown_ms"] = {{"products", p.work.products},
                          {"attention", p.work.attention},
                          {"memory_bound", p.work.memory_bound},
                          {"tensor", p.work.of(plan::Traffic::tensor).exposed_ms},
                          {"experts", p.work.of(plan::Traffic::experts).exposed_ms},
                          {"pipeline", p.pipeline_ms},
                          {"data", p.data_ms},
                          {"optimizer", p.optimizer_ms}};
  json["bubble_pct"] = 100 * p.bubble;
  return json_dump(json) + "\n";
}

std::string bad_row_json(const plan::PublishedRow& row) {
  return json_dump(Json{{"line", row.line}, {"error", row.error}}) + "\n";
}

}  // namespace trireme::io
