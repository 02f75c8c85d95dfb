#include "bench/step/prediction.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <ostream>

#include "src/backend/rehearsal_backend.hpp"
#include "src/base/check.hpp"
#include "src/plan/work/device_stand_in.hpp"

namespace trireme::bench {
namespace {

/// Stand-in GPU: device memory has only addresses, host memory is real, and all results are 0.
class RehearsedGpu final : public ObservedBackend {
 public:
  RehearsedGpu(RehearsalBackend& rehearsal, plan::DeviceStandIn& properties)
      : ObservedBackend(rehearsal), properties_(properties) {}
  bool supports(Capability capability) const override {
    return capability == Capability::results || ObservedBackend::supports(capability);
  }
  Allocator& host_memory() override { return properties_.host_memory(); }
  void copy_to_host(Stream& stream, ConstTensorView device, TensorView host) override {
    ObservedBackend::copy_to_host(stream, device, host);
    std::memset(host.data(), 0, host.size_bytes());
  }

 private:
  plan::DeviceStandIn& properties_;
};

class Recorder final : public CallObserver {
 public:
  void begin(Stream&, const KernelCall& call) override {
    if (call.kind != KernelKind::inputs) calls.push_back(call);
  }
  void end(Stream&, const KernelCall&) override {}
  std::vector<KernelCall> calls;
};

}  // namespace

std::vector<KernelCall> rehearse(const StepCase& c) {
  plan::DeviceStandIn properties;
  RehearsalBackend rehearsal(properties);
  RehearsedGpu gpu(rehearsal, properties);
  SelfCommunicator devices("world", [](Stream&, ConstTensorView, TensorView) {});
  StepRig rig(c, gpu, devices);
  rig.advance();  // the first one prepares later ones
  Recorder recorder;
  gpu.observe(&recorder);
  rig.advance();
  gpu.observe(nullptr);
  return std::move(recorder.calls);
}

double Prediction::ms() const {
  double sum = gaps_ms - hidden_update_ms;
  for (const LineCost& line : lines) sum += line.ms;
  return sum;
}
double Prediction::tokens_per_second() const {
  return static_cast<double>((step.decodes ? 1 : step.s) * step.b * step.micro_batches) / ms() * 1e3;
}

Prediction predict(const StepCase& c, const Device& gpu, std::span<const KernelCall> calls) {
  Prediction p{.step = c, .gpu = &gpu, .lines = {}};
  double forward_idle_ms = 0;
  for (const KernelCall& call : calls) {
    const Cost cost = cost_of(gpu, call, c.graphs);
    if (p.line(KernelKind::cross_entropy).calls == 0) forward_idle_ms += cost.gap + cost.idle;
    LineCost& line = p.lines[static_cast<std::size_t>(call.kind)];
    ++line.calls;
    line.flops += call.flops();
    line.bytes += call.product ? call.product->bytes : call.bytes;
    line.ms += cost.main + cost.end;
    line.end_ms += cost.end;
    p.launches += cost.launches;
    p.gaps_ms += cost.gap;
    if (call.kind == KernelKind::optimizer) continue;  // not the model's
    p.model_flops += call.flops();
    p.causal_flops += call.flops(true);
    if (!c.decodes) continue;
    const auto size = static_cast<double>(size_of(c.dtype));
    if (call.product) p.weight_bytes += size * static_cast<double>(call.product->n * call.product->k);
    if (call.attention) {
      const AttentionProblem& a = *call.attention;
      p.cache_bytes += size * static_cast<double>(2 * a.batch * a.keys * a.kv_heads * a.head_dim);
    }
  }
  const LineCost& update = p.line(KernelKind::optimizer);
  p.hidden_update_ms = hidden_update_ms(update.ms, static_cast<std::size_t>(update.calls), forward_idle_ms);
  return p;
}

namespace {

constexpr const char* row_format = "{:<36} {:>6} {:>9} {:>8} {:>8} {:>6}\n";

void print_row(std::ostream& out, std::string_view name, const LineCost& line, double total) {
  fmt::print(out, row_format, name, line.calls, line.flops == 0 ? "" : fmt::format("{:.0f}", 1e-9 * line.flops),
             line.bytes == 0 ? "" : fmt::format("{:.2f}", 1e-9 * line.bytes), fmt::format("{:.2f}", line.ms),
             fmt::format("{:.1f}%", 100 * line.ms / total));
}

}  // namespace

void print(std::ostream& out, const Prediction& p) {
  const double total = p.ms();
  fmt::print(out, "{}: {}\n", p.gpu->name, to_string(p.step));
  if (p.step.tensor_ranks > 1) {
    fmt::print(out, "communication takes no time{}\n",
               p.step.sequence_parallel ? "; nearly all copies stand for gathered tensors" : "");
  }
  fmt::print(out, row_format, "line", "calls", "GFLOP", "GB", "ms", "share");
  for (int i = 0; i < kernel_kind_count; ++i) {
    const LineCost& line = p.lines[static_cast<std::size_t>(i)];
    if (line.calls == 0) continue;
    print_row(out, name_of(static_cast<KernelKind>(i)), line, total);
    if (line.end_ms > 0) {
      fmt::print(out, row_format, "  of it kernels after the products", "", "", "", fmt::format("{:.2f}", line.end_ms),
                 fmt::format("{:.1f}%", 100 * line.end_ms / total));
    }
  }
  fmt::print(out, row_format, "gaps and waits", p.launches, "", "", fmt::format("{:.2f}", p.gaps_ms),
             fmt::format("{:.1f}%", 100 * p.gaps_ms / total));
  if (p.hidden_update_ms > 0) {
    fmt::print(out, row_format, "optimizer beside the next forward", "", "", "",
               fmt::format("{:.2f}", -p.hidden_update_ms), fmt::format("{:.1f}%", -100 * p.hidden_update_ms / total));
  }
  if (p.step.decodes) {
    fmt::print(out,
               "step {:.2f} ms, {:.0f} tokens/s, {:.2f} of the memory's limit: {:.2f} ms for {:.2f} GB of weights and "
               "{:.2f} GB of keys and values\n\n",
               total, p.tokens_per_second(), total / p.memory_limit_ms(), p.memory_limit_ms(), 1e-9 * p.weight_bytes,
               1e-9 * p.cache_bytes);
    return;
  }
  const double peak = p.gpu->peak_tflops * 1e9 * total;  // FLOPs in the step at the peak
  fmt::print(out,
             "step {:.1f} ms, {:.0f} tokens/s{}, MFU {:.1f}% with attention in full, {:.1f}% with its causal half\n\n",
             total, p.tokens_per_second(), p.step.tensor_ranks > 1 ? " of the tensor group" : "",
             100 * p.model_flops / peak, 100 * p.causal_flops / peak);
}

void print_json(std::ostream& out, const Prediction& p) {
  fmt::print(out,
             R"({{"gpu": "{}", "predicted": true, {}, "ms": {:.3f}, "launches": {}, "full_attention_tflops": {:.1f}, )"
             R"("lines": [)",
             p.gpu->name, json_fields(p.step), p.ms(), p.launches, 1e-9 * p.model_flops / p.ms());
  for (int i = 0; i < kernel_kind_count; ++i) {
    const LineCost& line = p.lines[static_cast<std::size_t>(i)];
    if (line.calls == 0) continue;
    fmt::print(out, R"({{"line": "{}", "calls": {}, "gflop": {:.3f}, "gb": {:.4f}, "ms": {:.4f}}}, )",
               name_of(static_cast<KernelKind>(i)), line.calls, 1e-9 * line.flops, 1e-9 * line.bytes, line.ms);
  }
  fmt::print(out, R"({{"line": "gaps and waits", "ms": {:.4f}}})", p.gaps_ms);
  if (p.hidden_update_ms > 0) {
    fmt::print(out, R"(, {{"line": "optimizer beside the next forward", "ms": {:.4f}}})", -p.hidden_update_ms);
  }
  out << "]}\n";
}

namespace {

using nlohmann::json;

constexpr const char* compared_row = "{:<36} {:>10} {:>10} {:>20}\n";

void print_compared(std::ostream& out, std::string_view name, double predicted, double measured) {
  fmt::print(out, compared_row, name, fmt::format("{:.2f}", predicted), fmt::format("{:.2f}", measured),
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
          .dropout = step.value("dropout", 0.1),
          .fp8 = step.value("fp8", false)};
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
  fmt::print(out, compared_row, "line", "predicted", "measured", "predicted / measured");
  double timed = 0;
  for (const json& line : step.value("lines", json::array())) {
    const std::string name = line.at("line");
    for (int i = 0; i < kernel_kind_count; ++i) {
      if (name != name_of(static_cast<KernelKind>(i))) continue;
      timed += line.at("ms").get<double>();
      print_compared(out, name, p.lines[static_cast<std::size_t>(i)].ms, line.at("ms"));
    }
  }
  if (timed > 0) print_compared(out, "gaps and waits", p.gaps_ms, measured_ms - timed);
  print_compared(out, "step, ms", p.ms(), measured_ms);
  fmt::print(out, compared_row, "launches", p.launches, step.at("launches").get<int>(), "");
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
