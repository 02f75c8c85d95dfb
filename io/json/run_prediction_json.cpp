#include "io/json/run_prediction_json.hpp"

#include <nlohmann/json.hpp>

namespace trireme::io {
namespace {

using nlohmann::ordered_json;

ordered_json number_or_null(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json();
}

ordered_json error_percent(double predicted, const std::optional<double>& published) {
  return published ? ordered_json(100 * (predicted / *published - 1)) : ordered_json();
}

std::string line_of(const ordered_json& json) {
  // Bytes in the file's texts that are not UTF-8 become U+FFFD.
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string run_prediction_json(const plan::PublishedRun& run, const plan::RunPrediction& p) {
  const auto field = [&](const char* column) {
    const auto found = run.text.find(column);
    return found == run.text.end() ? std::string() : found->second;
  };
  ordered_json json = {{"line", run.line},
                       {"source", field("source")},
                       {"model", field("model")},
                       {"hardware", field("hardware")},
                       {"gpus", run.gpus},
                       {"tp", run.tp},
                       {"pp", run.pp},
                       {"dp", run.dp},
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
  json["breakdown_ms"] = {
      {"products", p.work.products},         {"attention", p.work.attention},
      {"memory_bound", p.work.memory_bound}, {"tensor", p.work.of(plan::Traffic::tensor).exposed_ms},
      {"pipeline", p.pipeline_ms},           {"data", p.data_ms},
      {"optimizer", p.optimizer_ms}};
  json["bubble_pct"] = 100 * p.bubble;
  return line_of(json);
}

std::string bad_row_json(const plan::PublishedRow& row) { return line_of({{"line", row.line}, {"error", row.error}}); }

}  // namespace trireme::io
