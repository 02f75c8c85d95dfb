#include <fmt/format.h>
#include <fmt/ostream.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/step/prediction.hpp"
#include "src/base/check.hpp"

namespace trireme::bench {
namespace {

using nlohmann::json;

constexpr const char* row_format = "{:<36} {:>10} {:>10} {:>20}\n";

void print_row(std::ostream& out, std::string_view name, double predicted, double measured) {
  fmt::print(out, row_format, name, fmt::format("{:.2f}", predicted), fmt::format("{:.2f}", measured),
             measured == 0 ? "-" : fmt::format("{:.2f}", predicted / measured));
}

StepCase case_of(const json& step) {
  return {.model = step.at("model"),
          .s = step.at("s"),
          .b = step.at("micro_batch"),
          .micro_batches = step.at("micro_batches"),
          .graphs = step.at("cuda_graphs"),
          .tensor_ranks = step.at("tensor_ranks"),
          .sequence_parallel = step.at("sequence_parallel"),
          .moments = dtype_from_name(step.value("moments", "fp32")),
          .dropout = step.value("dropout", 0.1)};
}

void compare_step(std::ostream& out, const json& step, const Device* gpu) {
  const StepCase c = case_of(step);
  const std::string device = step.value("gpu", "");
  if (gpu == nullptr) gpu = find_gpu(device);
  if (gpu == nullptr) {
    fmt::print(out, "{}: no constants for the device '{}'; --gpu NAME chooses some\n\n", to_string(c), device);
    return;
  }
  const Prediction p = predict(c, *gpu, rehearse(c));
  const double measured_ms = step.at("ms");
  fmt::print(out, "{}, by the constants of {}, measured on {}\n", to_string(c), gpu->name,
             device.empty() ? "an unnamed device" : device);
  fmt::print(out, row_format, "line", "predicted", "measured", "predicted / measured");
  double timed = 0;
  for (const json& line : step.value("lines", json::array())) {
    const std::string name = line.at("line");
    for (int i = 0; i < kernel_kind_count; ++i) {
      if (name != name_of(static_cast<KernelKind>(i))) continue;
      timed += line.at("ms").get<double>();
      print_row(out, name, p.lines[static_cast<std::size_t>(i)].ms, line.at("ms"));
    }
  }
  if (timed > 0) print_row(out, "gaps and waits", p.gaps_ms, measured_ms - timed);
  print_row(out, "step, ms", p.ms(), measured_ms);
  fmt::print(out, row_format, "launches", p.launches, step.at("launches").get<int>(), "");
  out << "\n";
}

}  // namespace

void compare(std::ostream& out, const std::string& file, const Device* gpu) {
  std::ifstream in(file);
  if (!in) throw DataError("reading " + file + " failed; expected what step_gpu_bench printed");
  std::string line;
  bool found = false;
  for (int number = 1; std::getline(in, line); ++number) {
    if (!line.starts_with('{')) continue;  // a warning
    try {
      compare_step(out, json::parse(line), gpu);
    } catch (const json::exception& error) {
      throw DataError(fmt::format("{}:{}: not a line of step_gpu_bench: {}", file, number, error.what()));
    }
    found = true;
  }
  if (!found) throw DataError(file + " has no step that step_gpu_bench printed");
}

}  // namespace trireme::bench
