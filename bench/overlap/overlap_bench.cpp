// Cost of data-parallel communication that overlaps with computing. The time of the communication is given by a model,
// a link with a latency and a bandwidth, and passes without work. Prints, for each step:
//
//   computing       all of the step but its waits.
//   alone           the same steps with communication that takes no time, alternating in the same run. The difference
//                   of the two is the time by which communication slows computing down.
//   communication   the sum of the modelled times.
//   critical path   plan::critical_path of the computing between calls and of the modelled times.
//
//   overlap_bench [ROUNDS] [--check]                One process: rank 0 of a modelled group of 8.
//   mpirun -np 2 overlap_bench [ROUNDS] [--check]   Real sums and gathers, which take at least the modelled time.
//
// Each case is a line of JSON: medians over the rounds, for the slowest rank. With --check the exit status is 1 if a
// step with overlap is more than 5 % above the critical path. Where communication is at most half the computing, the
// limit is also 1.1 times the longer of the two. GPT-2 of 12 layers x 256, with a bucket per layer and one for the
// embeddings.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "mpi/run_main.hpp"
#include "src/plan/overlap.hpp"
#include "tests/fakes/slow_communicator.hpp"
#include "tests/support/training_run.hpp"

namespace trireme {
namespace {

using parallel::DataSharding;
using test::SlowCommunicator;
using Clock = SlowCommunicator::Clock;

constexpr int modelled_ranks = 8;
constexpr int steps_timed = 4;
constexpr double latency_s = 50e-6;

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// A training run whose data group is slow.
struct SlowRun {
  SlowRun(Communicator& world, const test::TrainingRunConfig& config, const test::Layout& layout)
      : run(world, config, layout, [this](parallel::GridCommunicators& communicators) {
          if (communicators.data->size() == 1) {
            communicators.data = std::make_unique<test::LonelyCommunicator>(modelled_ranks);
            communicators.gradient = std::make_unique<test::LonelyCommunicator>(modelled_ranks);
          }
          auto slow_group = std::make_unique<SlowCommunicator>(std::move(communicators.gradient), test::Link{});
          slow = slow_group.get();
          communicators.gradient = std::move(slow_group);
        }) {}
  SlowCommunicator* slow = nullptr;
  test::TrainingRun run;
};

/// Consecutive steps, timed from the end of the first, with their communication calls.
struct Block {
  double step_s = 0;
  Clock::time_point begin;
  std::vector<Clock::time_point> ends;  // ends of steps
  std::vector<SlowCommunicator::Call> calls;
};

Block run_block(SlowRun& run, const test::Link& link) {
  run.slow->set_link({});
  run.run.step();  // completes work left by the previous block
  run.slow->set_link(link);
  run.slow->take_calls();
  Block block;
  block.begin = Clock::now();
  for (int i = 0; i <= steps_timed; ++i) {
    run.run.step();
    block.ends.push_back(Clock::now());
  }
  block.step_s = seconds(block.ends.back() - block.ends.front()) / steps_timed;
  block.calls = run.slow->take_calls();
  return block;
}

/// Predicted times of one step, from the computing and the modelled communication of each block.
struct Prediction {
  double computing_s = 0;
  double communication_s = 0;
  double path_s = 0;
};

Prediction predict(const Block& block, const SlowCommunicator& slow) {
  std::vector<plan::OverlapStep> steps;
  std::map<int, bool> started;
  Clock::time_point last = block.begin;
  double first_end = 0;
  Prediction result;
  std::size_t next = 0;
  int end_mark = 0;  // a number after all operations
  for (const SlowCommunicator::Call& call : block.calls) end_mark = std::max(end_mark, call.operation + 1);
  const auto end_steps = [&](Clock::time_point until) {
    for (; next < block.ends.size() && block.ends[next] <= until; ++next) {
      // An operation that takes no time marks the end.
      steps.push_back({seconds(block.ends[next] - last), plan::OverlapStep::Kind::start, end_mark, 0});
      last = block.ends[next];
      if (next == 0) {
        first_end = plan::critical_path(steps).time;
        result = {};
      } else {
        result.computing_s += steps.back().compute / steps_timed;
      }
    }
  };
  for (const SlowCommunicator::Call& call : block.calls) {
    end_steps(call.begin);
    if (call.is_wait && !started[call.operation]) continue;  // begun before the block
    started[call.operation] = true;
    const auto kind = call.is_wait ? plan::OverlapStep::Kind::wait : plan::OverlapStep::Kind::start;
    const double duration_s = call.is_wait ? 0 : slow.duration_s(call.sent_bytes);
    steps.push_back({seconds(call.begin - last), kind, call.operation, duration_s});
    last = call.end;
    result.computing_s += steps.back().compute / steps_timed;
    result.communication_s += duration_s / steps_timed;
  }
  end_steps(block.ends.back());
  result.path_s = (plan::critical_path(steps).time - first_end) / steps_timed;
  return result;
}

struct Case {
  const char* name;
  DataSharding sharding;
  bool overlap;
  double communication;  // over computing
};

/// A small model whose gradients fill one bucket for each layer.
test::TrainingRunConfig config_of(int ranks, int rounds) {
  test::TrainingRunConfig config;
  config.model = {.layers = 12, .hidden = 256, .heads = 4, .ffn_hidden = 1024, .max_positions = 64, .vocabulary = 256};
  config.s = 64;
  config.dtype = DType::fp32;
  config.batch = 2 * ranks;
  config.steps = 4 + rounds * 2 * (steps_timed + 2);
  return config;
}

test::Layout layout_of(const Case& one, std::int64_t h) {
  test::Layout layout;
  layout.options.micro_batch_size = 2;
  parallel::DataParallelOptions& options = layout.options.parallel.data_parallel;
  options.sharding = one.sharding;
  options.overlap_reduce = one.overlap;
  options.overlap_gather = one.overlap && one.sharding != DataSharding::none;
  options.bucket_elements = 12 * h * h + 13 * h;
  return layout;
}

/// Runs a case. Returns whether it meets its limits.
bool run_case(Communicator& world, const Case& one, int rounds) {
  const int ranks = world.size() == 1 ? modelled_ranks : world.size();
  const test::TrainingRunConfig config = config_of(ranks, rounds);
  SlowRun run(world, config, layout_of(one, config.model.hidden));
  for (int i = 0; i < 3; ++i) run.run.step();

  ImmediateStream host;
  const auto slowest = [&](double mine) {
    world.all_reduce(host, TensorView(&mine, {1}), ReduceOp::max).wait(host);
    return mine;
  };
  test::Link link;
  std::vector<double> step_s, alone_s, computing_s, communication_s, path_s, to_path, to_longer;
  for (int round = 0; round < rounds; ++round) {
    const Block instant = run_block(run, {});
    alone_s.push_back(slowest(instant.step_s));
    if (round == 0) {
      double bytes = 0;
      double operations = 0;
      for (const SlowCommunicator::Call& call : instant.calls) {
        if (call.is_wait || call.begin < instant.ends.front()) continue;
        bytes += call.sent_bytes / steps_timed;
        operations += 1.0 / steps_timed;
      }
      link = {latency_s, std::max(0.0, one.communication * alone_s.front() - latency_s * operations) / bytes};
    }
    const Block delayed = run_block(run, link);
    const Prediction mine = predict(delayed, *run.slow);
    step_s.push_back(slowest(delayed.step_s));
    computing_s.push_back(slowest(mine.computing_s));
    communication_s.push_back(slowest(mine.communication_s));
    path_s.push_back(slowest(mine.path_s));
    to_path.push_back(step_s.back() / path_s.back());
    to_longer.push_back(step_s.back() / std::max(computing_s.back(), communication_s.back()));
  }
  const double path_ratio = median(to_path), longer_ratio = median(to_longer);
  const bool mostly_computing = median(communication_s) <= 0.5 * median(computing_s);
  const bool holds = !one.overlap || (path_ratio < 1.05 && (!mostly_computing || longer_ratio <= 1.1));
  if (world.rank() == 0) {
    fmt::print(
        "{{\"case\": \"{}\", \"overlap\": {}, \"ranks\": {}, \"buckets\": {}, \"alone_ms\": {:.1f}, "
        "\"computing_ms\": {:.1f}, \"communication_ms\": {:.1f}, \"critical_path_ms\": {:.1f}, \"step_ms\": {:.1f}, "
        "\"step_to_critical_path\": {:.3f}, \"step_to_longer\": {:.3f}}}\n",
        one.name, one.overlap, ranks, run.run.gpt.parameters().layout().buckets().size(), 1e3 * median(alone_s),
        1e3 * median(computing_s), 1e3 * median(communication_s), 1e3 * median(path_s), 1e3 * median(step_s),
        path_ratio, longer_ratio);
    std::fflush(stdout);
  }
  return holds;
}

int run(mpi::MpiEnvironment& environment, int rounds, bool check) {
  const auto world = environment.make_world();
  bool all = true;
  for (const auto& [name, sharding] :
       {std::pair("all-reduce", DataSharding::none), std::pair("ZeRO 1", DataSharding::optimizer),
        std::pair("ZeRO 2", DataSharding::optimizer_and_gradients)}) {
    for (const bool overlap : {true, false}) {
      for (const double communication : {0.25, 0.45, 1.0}) {
        all = run_case(*world, {name, sharding, overlap, communication}, rounds) && all;
      }
    }
  }
  return all || !check ? 0 : 1;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  int rounds = 5;
  bool check = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--check") == 0) {
      check = true;
    } else {
      rounds = std::max(1, std::atoi(argv[i]));
    }
  }
  return trireme::mpi::run_main(
      argc, argv, [&](trireme::mpi::MpiEnvironment& environment) { return trireme::run(environment, rounds, check); });
}
