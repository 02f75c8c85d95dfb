// Kernels of training steps at the shapes of small layers, for `trireme plan --calibrate`: the time of every different
// call, by its shape. All ranks work at the same time, each on a separate step, and share cores and memory as the
// ranks of a job do.
//
//   mpirun -np 2 kernels_calibration --dtype fp32 > kernels.jsonl
//
// One object a line: "kernel" is the line of a step's table; "shape" is [m, n, k] of a product (rows, columns, terms of
// a sum), [queries, keys, head size] of attention, [bytes] of other kernels; "work" is in FLOP of products and
// attention, else in bytes; "us" is the mean over the calls of the first rank but the slowest tenth. "step" has the
// time per call outside kernels.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "bench/step/step_rig.hpp"
#include "mpi/node.hpp"
#include "mpi/run_main.hpp"
#include "src/app/job/command_line.hpp"
#include "src/app/options/options.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/base/thread_pool.hpp"
#include "src/base/timer.hpp"
#include "src/plan/cluster/measured_kernels.hpp"

namespace trireme::bench {
namespace {

struct CalibrationOptions {
  DType dtype = DType::fp32;
  std::int64_t steps = 7;
  bool dry_run = false;

  void declare(app::Options& options) {
    options.add_choice("dtype", &dtype, {{"fp32", DType::fp32}, {"bf16", DType::bf16}, {"fp16", DType::fp16}},
                       "Type of weights and activations.");
    options.add("steps", &steps, "N", "Steps of each size; the first one does not count.", at_least(2));
    options.add_flag("dry-run", &dry_run, "Tiny shapes: shows whether this program works.");
  }
};

/// Times calls by the host's clock: kernels of the CPU run within the call.
class CallTimer final : public CallObserver {
 public:
  /// Kernel, shape and work.
  using Key = std::tuple<std::string, std::vector<double>, double>;
  void begin(Stream&, const KernelCall&) override { timer_ = Timer(); }
  void end(Stream&, const KernelCall& call) override {
    const double us = 1e3 * timer_.elapsed_ms();
    MeasuredKernel form = measured_form(call);
    times_us_[{form.kernel, form.shape, form.work}].push_back(us);
    sum_us_ += us;
    ++calls_;
  }
  std::map<Key, std::vector<double>>& times_us() { return times_us_; }
  /// Time of all calls since the last time, and their number.
  std::pair<double, int> take_sum() { return {std::exchange(sum_us_, 0), std::exchange(calls_, 0)}; }

 private:
  Timer timer_;
  std::map<Key, std::vector<double>> times_us_;
  double sum_us_ = 0;
  int calls_ = 0;
};

/// Mean of all except the slowest tenth, which other work on the machine has delayed.
double usual(std::vector<double>& values) {
  std::ranges::sort(values);
  const std::size_t count = values.size() - values.size() / 10;
  return std::accumulate(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count), 0.0) /
         static_cast<double>(count);
}

/// A rank of layers `hidden` wide, with heads of 64, on micro-batches of b x s tokens.
struct Size {
  std::int64_t hidden, s, b;
  int tensor_ranks = 1;
};
std::vector<Size> sizes(bool dry_run) {
  if (dry_run) return {{64, 16, 2}};
  std::vector<Size> list;
  for (const std::int64_t hidden : {128, 256, 512}) {
    for (const std::int64_t b : {1, 2, 4}) {
      for (const int tensor_ranks : {1, 2, 4}) {
        if (64 * tensor_ranks <= hidden) list.push_back({hidden, 128, b, tensor_ranks});
      }
    }
  }
  list.push_back({256, 256, 4});
  list.push_back({256, 256, 4, 2});
  return list;
}

StepCase case_of(const Size& size, DType dtype) {
  StepCase c{.model = fmt::format("{} wide", size.hidden), .s = size.s, .b = size.b};
  c.dtype = dtype;
  c.tensor_ranks = size.tensor_ranks;
  c.config = model::ModelConfig{.layers = 2,
                                .hidden = size.hidden,
                                .heads = size.hidden / 64,
                                .ffn_hidden = 4 * size.hidden,
                                .max_positions = size.s,
                                .vocabulary = 2048};
  return c;
}

int run(mpi::MpiEnvironment& environment, const std::vector<std::string>& arguments) {
  CalibrationOptions o;
  app::Options options("kernels_calibration", "Measures kernels on the CPU for trireme plan --calibrate.");
  o.declare(options);
  if (app::asks_for_help(arguments) && environment.rank() != 0) return 0;
  if (!options.parse(arguments)) return 0;
  const auto world = environment.make_world();
  const mpi::NodeLocation node = mpi::find_node_location(*world);
  const int threads = default_thread_count(node.ranks_sharing_cores);
  const auto cpu = cpu::make_backend(threads);
  CallTimer timer;
  std::vector<double> beside_us;
  for (const Size& size : sizes(o.dry_run)) {
    ObservedBackend backend(*cpu);
    SelfCommunicator devices("world");
    StepRig rig(case_of(size, o.dtype), backend, devices);
    rig.initialise();
    rig.step();
    backend.observe(&timer);
    for (std::int64_t step = 1; step < o.steps; ++step) {
      world->barrier();
      const Timer whole;
      rig.step();
      const double us = 1e3 * whole.elapsed_ms();
      const auto [kernels_us, calls] = timer.take_sum();
      beside_us.push_back((us - kernels_us) / calls);
    }
    backend.observe(nullptr);
  }
  world->barrier();
  if (environment.rank() != 0) return 0;
  const std::string common =
      fmt::format(R"("dtype": "{}", "ranks": {}, "threads": {})", name_of(o.dtype), node.local_size, threads);
  for (auto& [key, times] : timer.times_us()) {
    const auto& [kernel, shape, work] = key;
    if (work == 0) continue;
    fmt::print(R"({{"kernel": "{}", "shape": [{}], "work": {:.0f}, "us": {:.2f}, "calls": {}, {}}})"
               "\n",
               kernel, fmt::join(shape, ", "), work, usual(times), times.size(), common);
  }
  fmt::print(R"({{"kernel": "step", "shape": [], "work": 1, "us": {:.2f}, "calls": {}, {}}})"
             "\n",
             usual(beside_us), beside_us.size(), common);
  return 0;
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return trireme::mpi::run_main(argc, argv, [&](trireme::mpi::MpiEnvironment& environment) {
    return trireme::bench::run(environment, arguments);
  });
}
