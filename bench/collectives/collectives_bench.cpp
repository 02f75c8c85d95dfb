// Collectives on host memory: time, algorithm and bus bandwidth of MpiCommunicator, and of MPI's own blocking call on
// the same data in the same run, by operation and size.
//
//   mpirun -np 2 collectives_bench [LARGEST_MB] > results.jsonl
//
// Definitions of nccl-tests: the size is that of the reduced, gathered or sent data of one rank (all of it for
// all-gather and reduce-scatter); algorithm bandwidth = size / time; bus bandwidth = algorithm bandwidth times
// 2 (n-1)/n for all-reduce, (n-1)/n for all-gather and reduce-scatter, 1 for the others. The time of a run is that of
// its slowest rank; background_us is that of operations nobody waits for, while the callers compute. Of all runs the
// median stands, with the fastest and slowest quarter beside it. fp32, sums.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "mpi/error.hpp"
#include "mpi/node.hpp"
#include "mpi/run_main.hpp"
#include "src/base/timer.hpp"

namespace trireme {
namespace {

struct Quartiles {
  double first;
  double median;
  double third;
};

/// Microseconds of the slowest rank.
Quartiles measure(mpi::MpiCommunicator& world, const std::function<void()>& run) {
  constexpr int warm_up_runs = 3;
  constexpr int fewest_runs = 9;
  constexpr double budget_us = 300e3;
  std::vector<double> times_us;
  double total_us = 0;
  for (int i = -warm_up_runs; i < fewest_runs || (total_us < budget_us && i < 300); ++i) {
    world.barrier();
    Timer timer;
    run();
    double time_us = timer.elapsed_ms() * 1000;
    ImmediateStream host;
    world.all_reduce(host, TensorView(&time_us, {1}), ReduceOp::max).wait(host);
    total_us += time_us;
    if (i >= 0) times_us.push_back(time_us);
  }
  std::ranges::sort(times_us);
  const std::size_t n = times_us.size();
  return {times_us[n / 4], times_us[n / 2], times_us[3 * n / 4]};
}

/// Some microseconds of arithmetic, as of a caller who does not look after the communication.
void compute() {
  static volatile double sink = 1;
  double x = sink;
  for (int i = 0; i < 2000; ++i) x = x * 1.0000001 + 1e-9;
  sink = x;
}

struct Case {
  std::string name;
  double bus_factor;
  std::function<std::vector<Work>()> start;
  std::function<void()> mpi;
};

std::vector<Case> cases(mpi::MpiCommunicator& world, std::vector<float>& a, std::vector<float>& b, std::int64_t numel) {
  const int n = world.size();
  const std::int64_t part = std::max<std::int64_t>(1, numel / n);
  const double share = static_cast<double>(n - 1) / n;
  const int next = (world.rank() + 1) % n;
  const int previous = (world.rank() + n - 1) % n;
  const MPI_Comm comm = world.handle();
  const auto count = static_cast<int>(numel);
  const auto part_count = static_cast<int>(part);
  const TensorView x(a.data(), {numel});
  const TensorView x_parts(a.data(), {part * n});
  const TensorView y(b.data(), {numel});
  const TensorView y_part(b.data(), {part});
  static ImmediateStream host;
  const auto one = [](Work work) {
    std::vector<Work> works;
    works.push_back(std::move(work));
    return works;
  };
  return {
      {"all_reduce", 2 * share, [=, &world] { return one(world.all_reduce(host, x, ReduceOp::sum)); },
       [=, &a] {
         mpi::check(MPI_Allreduce(MPI_IN_PLACE, a.data(), count, MPI_FLOAT, MPI_SUM, comm), "MPI_Allreduce");
       }},
      {"reduce_scatter", share, [=, &world] { return one(world.reduce_scatter(host, x_parts, y_part, ReduceOp::sum)); },
       [=, &a, &b] {
         mpi::check(MPI_Reduce_scatter_block(a.data(), b.data(), part_count, MPI_FLOAT, MPI_SUM, comm),
                    "MPI_Reduce_scatter_block");
       }},
      {"all_gather", share, [=, &world] { return one(world.all_gather(host, y_part, x_parts)); },
       [=, &a, &b] {
         mpi::check(MPI_Allgather(b.data(), part_count, MPI_FLOAT, a.data(), part_count, MPI_FLOAT, comm),
                    "MPI_Allgather");
       }},
      {"broadcast", 1, [=, &world] { return one(world.broadcast(host, x, 0)); },
       [=, &a] { mpi::check(MPI_Bcast(a.data(), count, MPI_FLOAT, 0, comm), "MPI_Bcast"); }},
      {"send_receive", 1,
       [=, &world] {
         const Transfer transfers[] = {{Transfer::Direction::send, next, x},
                                       {Transfer::Direction::receive, previous, y}};
         return world.exchange(host, transfers);
       },
       [=, &a, &b] {
         mpi::check(MPI_Sendrecv(a.data(), count, MPI_FLOAT, next, 0, b.data(), count, MPI_FLOAT, previous, 0, comm,
                                 MPI_STATUS_IGNORE),
                    "MPI_Sendrecv");
       }},
  };
}

int run(mpi::MpiEnvironment& environment, std::int64_t largest_bytes) {
  const auto world = environment.make_world();
  const mpi::NodePlace place = mpi::find_node_place(*world);
  const auto largest = static_cast<std::size_t>(largest_bytes / 4 + world->size());
  std::vector<float> a(largest);
  std::vector<float> b(largest);
  ImmediateStream host;
  for (std::int64_t bytes = 1 << 10; bytes <= largest_bytes; bytes *= 4) {
    for (const Case& test : cases(*world, a, b, bytes / 4)) {
      const Quartiles ours = measure(*world, [&] {
        for (Work& work : test.start()) work.wait(host);
      });
      const Quartiles background = measure(*world, [&] {
        std::vector<Work> works = test.start();
        while (!std::ranges::all_of(works, &Work::done)) compute();
      });
      const Quartiles peer = measure(*world, test.mpi);
      if (world->rank() != 0) continue;
      const double algorithm_gbs = static_cast<double>(bytes) / ours.median / 1e3;
      fmt::print(
          "{{\"operation\": \"{}\", \"ranks\": {}, \"ranks_sharing_cores\": {}, \"bytes\": {}, \"time_us\": {:.1f}, "
          "\"quartiles_us\": [{:.1f}, {:.1f}], \"algorithm_gbs\": {:.3f}, \"bus_gbs\": {:.3f}, \"mpi_time_us\": "
          "{:.1f}, "
          "\"speed_to_mpi\": {:.2f}, \"background_us\": {:.1f}}}\n",
          test.name, world->size(), place.ranks_sharing_cores, bytes, ours.median, ours.first, ours.third,
          algorithm_gbs, algorithm_gbs * test.bus_factor, peer.median, peer.median / ours.median, background.median);
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const std::int64_t largest_mb = argc > 1 ? std::atoll(argv[1]) : 16;
  return trireme::mpi::run_main(argc, argv, [&](trireme::mpi::MpiEnvironment& environment) {
    return trireme::run(environment, largest_mb << 20);
  });
}
