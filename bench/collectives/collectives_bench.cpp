// Collectives: time, algorithm and bus bandwidth by operation and size, of the communicator that training would use on
// this grid and backend: MPI on host memory, NCCL or staged on GPUs. On host memory it also times MPI's own blocking
// call on the same data in the same run.
//
//   mpirun -np 8 collectives_bench --tp 2 --group data --communicator nccl > results.jsonl
//
// The definitions are those of nccl-tests. The size is that of the data reduced, gathered or sent by one rank;
// all-gather and reduce-scatter count all ranks' shards. Algorithm bandwidth = size / time; bus bandwidth = algorithm
// bandwidth times the factor in bus_bandwidth.hpp. All groups of a kind work at the same time, as in training. The time
// of a run is that of the slowest rank. On GPUs a run is a sequence of operations that takes at least 2 ms: the host
// sees their end some microseconds late. background_us, on the CPU, is the time of operations while the
// callers compute and do not wait. Printed are the median of all runs, and the first and third quartile. fp32, sums.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "mpi/error.hpp"
#include "mpi/run_main.hpp"
#include "src/app/job/command_line.hpp"
#include "src/app/job/job.hpp"
#include "src/app/options/options.hpp"
#include "src/base/timer.hpp"
#include "src/comm/bus_bandwidth.hpp"
#include "src/comm/host_collectives.hpp"
#include "src/comm/self_communicator.hpp"

namespace trireme {
namespace {

struct BenchOptions {
  app::GridOptions grid;
  app::DeviceOptions device;
  std::optional<parallel::GroupKind> group;  // none: the world
  std::int64_t max_mb = 16;
  std::int64_t runs = 300;

  void declare(app::Options& options) {
    options.section("Benchmark");
    std::vector<Choice<std::optional<parallel::GroupKind>>> groups = {{"world", std::nullopt}};
    for (const auto kind : parallel::all_group_kinds) groups.push_back({name_of(kind), kind});
    options.add_choice("group", &group, std::move(groups), "Groups of the grid that communicate.");
    options.add("largest-mb", &max_mb, "N", "Largest size, in MiB.", at_least(1));
    options.add("runs", &runs, "N", "Largest number for each measurement; it ends earlier after 0.3 s, on GPUs 0.1 s.",
                at_least(1));
    options.section("Grid");
    options.add("tp", &grid.tensor, "N", "Tensor ranks.", at_least(1));
    options.add("pp", &grid.pipeline, "N", "Pipeline ranks.", at_least(1));
    options.add("cp", &grid.context, "N", "Context ranks.", at_least(1));
    options.add("ep", &grid.expert, "N", "Expert ranks.", at_least(1));
    device.declare(options);
  }

  /// This rank's group; null if it is in none.
  Communicator* find(app::Job& job) const {
    if (group) return job.communicators.of(*group).get();
    return job.device_world ? job.device_world.get() : job.world.get();
  }
};

struct Quartiles {
  double first;
  double median;
  double third;
};

/// Length of a measurement: at least nine runs, if that many are wanted, and then until either is exhausted.
struct Effort {
  std::int64_t runs;
  double budget_us;
};

/// Microseconds of the slowest rank.
Quartiles measure(mpi::MpiCommunicator& world, const Effort& effort, const std::function<void()>& run) {
  constexpr int warm_up_runs = 3;
  const std::int64_t min_runs = std::min<std::int64_t>(9, effort.runs);
  std::vector<double> times_us;
  double total_us = 0;
  for (std::int64_t i = -warm_up_runs; i < min_runs || (total_us < effort.budget_us && i < effort.runs); ++i) {
    world.barrier();
    Timer timer;
    run();
    const double time_us = all_reduce_number(world, timer.elapsed_ms() * 1000, ReduceOp::max);
    total_us += time_us;
    if (i >= 0) times_us.push_back(time_us);
  }
  std::ranges::sort(times_us);
  const std::size_t n = times_us.size();
  return {times_us[n / 4], times_us[n / 2], times_us[3 * n / 4]};
}

/// Computes for some microseconds, like a caller that does not poll the communication.
void compute() {
  static volatile double sink = 1;
  double x = sink;
  for (int i = 0; i < 2000; ++i) x = x * 1.0000001 + 1e-9;
  sink = x;
}

struct Case {
  std::string name;
  Collective collective;
  std::function<std::vector<Work>()> start;
  std::function<void(MPI_Comm)> mpi;
};

std::vector<Case> cases(Communicator& group, Stream& stream, TensorView a, TensorView b, std::int64_t numel) {
  const int n = group.size();
  const std::int64_t shard = std::max<std::int64_t>(1, numel / n);
  const int next = (group.rank() + 1) % n;
  const int previous = (group.rank() + n - 1) % n;
  const auto count = static_cast<int>(numel);
  const auto shard_count = static_cast<int>(shard);
  const TensorView x = a.flat(0, numel), x_shards = a.flat(0, shard * n), y = b.flat(0, numel),
                   y_shard = b.flat(0, shard), y_shards = b.flat(0, shard * n);
  void *const from = a.data(), *const to = b.data();
  const auto one = [](Work work) {
    std::vector<Work> works;
    works.push_back(std::move(work));
    return works;
  };
  using enum Collective;
  return {
      {"all_reduce", all_reduce, [=, &group, &stream] { return one(group.all_reduce(stream, x, ReduceOp::sum)); },
       [=](MPI_Comm comm) {
         mpi::check(MPI_Allreduce(MPI_IN_PLACE, from, count, MPI_FLOAT, MPI_SUM, comm), "MPI_Allreduce");
       }},
      {"reduce_scatter", reduce_scatter,
       [=, &group, &stream] { return one(group.reduce_scatter(stream, x_shards, y_shard, ReduceOp::sum)); },
       [=](MPI_Comm comm) {
         mpi::check(MPI_Reduce_scatter_block(from, to, shard_count, MPI_FLOAT, MPI_SUM, comm),
                    "MPI_Reduce_scatter_block");
       }},
      {"all_gather", all_gather, [=, &group, &stream] { return one(group.all_gather(stream, y_shard, x_shards)); },
       [=](MPI_Comm comm) {
         mpi::check(MPI_Allgather(to, shard_count, MPI_FLOAT, from, shard_count, MPI_FLOAT, comm), "MPI_Allgather");
       }},
      {"broadcast", broadcast, [=, &group, &stream] { return one(group.broadcast(stream, x, 0)); },
       [=](MPI_Comm comm) { mpi::check(MPI_Bcast(from, count, MPI_FLOAT, 0, comm), "MPI_Bcast"); }},
      {"send_receive", send_receive,
       [=, &group, &stream] {
         const Transfer transfers[] = {{Transfer::Direction::send, next, x},
                                       {Transfer::Direction::receive, previous, y}};
         return group.exchange(stream, transfers);
       },
       [=](MPI_Comm comm) {
         mpi::check(
             MPI_Sendrecv(from, count, MPI_FLOAT, next, 0, to, count, MPI_FLOAT, previous, 0, comm, MPI_STATUS_IGNORE),
             "MPI_Sendrecv");
       }},
      {"all_to_all", all_to_all,
       [=, &group, &stream] {
         std::vector<Transfer> transfers;
         for (int peer = 0; peer < n; ++peer) {
           if (peer == group.rank()) continue;
           transfers.push_back({Transfer::Direction::send, peer, x_shards.flat(peer * shard, shard)});
           transfers.push_back({Transfer::Direction::receive, peer, y_shards.flat(peer * shard, shard)});
         }
         return one(group.grouped_exchange(stream, transfers));
       },
       [=](MPI_Comm comm) {
         mpi::check(MPI_Alltoall(from, shard_count, MPI_FLOAT, to, shard_count, MPI_FLOAT, comm), "MPI_Alltoall");
       }},
  };
}

/// Number of machines of the first group. Collective.
int count_nodes(const BenchOptions& o, const app::Job& job) {
  const std::vector<std::int64_t> nodes = all_gather_number<std::int64_t>(*job.world, job.node.first_rank);
  if (!o.group) return static_cast<int>(std::set(nodes.begin(), nodes.end()).size());
  std::set<std::int64_t> of_group;
  for (const int rank : job.grid.group(*o.group, 0)) of_group.insert(nodes[static_cast<std::size_t>(rank)]);
  return static_cast<int>(of_group.size());
}

/// Prints one line of JSON, ending with the members `more`.
void print(const BenchOptions& o, const app::Job& job, const Case& test, int group_size, int nodes, std::int64_t bytes,
           const Quartiles& time, const std::string& more) {
  const double algorithm_gbs = static_cast<double>(bytes) / time.median / 1e3;
  const bool is_cpu = job.backend->memory_is_host();
  const char* kind = is_cpu ? "mpi" : o.device.communicator == DeviceTransport::staged ? "staged" : "nccl";
  fmt::print(
      "{{\"operation\": \"{}\", \"communicator\": \"{}\", \"group\": \"{}\", \"ranks\": {}, \"nodes\": {}, \"groups\": "
      "{}, "
      "\"ranks_sharing_cores\": {}, \"bytes\": {}, \"time_us\": {:.1f}, \"quartiles_us\": [{:.1f}, {:.1f}], "
      "\"algorithm_gbs\": {:.3f}, \"bus_gbs\": {:.3f}{}}}\n",
      test.name, kind, o.group ? name_of(*o.group) : "world", group_size, nodes,
      o.group ? job.grid.groups(*o.group).size() : 1, job.node.ranks_sharing_cores, bytes, time.median, time.first,
      time.third, algorithm_gbs, algorithm_gbs * bus_factor(test.collective, group_size), more);
  std::fflush(stdout);
}

int run(mpi::MpiEnvironment& environment, const std::vector<std::string>& arguments) {
  BenchOptions o;
  app::Options options("collectives_bench", "Measures collective operations.");
  o.declare(options);
  if (app::asks_for_help(arguments) && environment.rank() != 0) return 0;
  if (!options.parse(arguments)) return 0;
  app::Job job(environment, options, o.grid, o.device);
  TRIREME_CHECK(!o.group || job.grid.has(*o.group), ConfigError, "--group {}: there is none without --ep above 1",
                name_of(*o.group));
  Communicator* const group = o.find(job);
  const auto* const on_host = dynamic_cast<const mpi::MpiCommunicator*>(group);
  const bool is_cpu = job.backend->memory_is_host();
  const Effort effort{o.runs, is_cpu ? 300e3 : 100e3};
  Stream& stream = job.backend->compute_stream();
  const std::int64_t max_bytes = o.max_mb << 20;
  const Tensor a(*job.backend, DType::fp32, {max_bytes / 4 + job.world->size()});
  const Tensor b(*job.backend, DType::fp32, a.view().shape());
  for (const Tensor* tensor : {&a, &b}) job.backend->elementwise().fill(stream, 0, *tensor);

  const int nodes = count_nodes(o, job);
  SelfCommunicator none;  // stands in if this rank is in no group, so it takes part in collective work
  for (std::int64_t bytes = 1 << 10; bytes <= max_bytes; bytes *= 4) {
    for (const Case& test : cases(group != nullptr ? *group : none, stream, a, b, bytes / 4)) {
      int repeats = is_cpu ? 1 : 4;
      const auto run_repeats = [&] {
        if (group == nullptr) return;
        for (int i = 0; i < repeats; ++i) {
          for (Work& work : test.start()) work.wait(stream);
        }
        stream.synchronize();
      };
      if (!is_cpu) {
        constexpr double enough_us = 2e3;
        const double once_us = measure(*job.world, {1, 0}, run_repeats).median / repeats;  // the same on all ranks
        repeats = std::clamp(static_cast<int>(std::ceil(enough_us / once_us)), 2, 400);
      }
      Quartiles time = measure(*job.world, effort, run_repeats);
      for (double* value : {&time.first, &time.median, &time.third}) *value /= repeats;
      std::string more;
      if (is_cpu) {
        const Quartiles background = measure(*job.world, effort, [&] {
          if (group == nullptr) return;
          std::vector<Work> works = test.start();
          while (!std::ranges::all_of(works, &Work::done)) compute();
        });
        const Quartiles peer = measure(*job.world, effort, [&] {
          if (on_host != nullptr) test.mpi(on_host->handle());
        });
        more = fmt::format(", \"mpi_time_us\": {:.1f}, \"speed_to_mpi\": {:.2f}, \"background_us\": {:.1f}",
                           peer.median, peer.median / time.median, background.median);
      }
      if (job.world->rank() != 0) continue;
      print(o, job, test, group->size(), nodes, bytes, time, more);
    }
  }
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return trireme::mpi::run_main(
      argc, argv, [&](trireme::mpi::MpiEnvironment& environment) { return trireme::run(environment, arguments); });
}
