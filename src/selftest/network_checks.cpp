#include <algorithm>
#include <array>
#include <vector>

#include "src/base/median.hpp"
#include "src/base/timer.hpp"
#include "src/comm/bus_bandwidth.hpp"
#include "src/selftest/check.hpp"

namespace trireme::selftest {
namespace {

/// Groups share links with others, so their bandwidths differ more than the rates of devices.
constexpr double bandwidth_tolerance = 0.6;
/// Latencies of a healthy network vary with distance.
constexpr double latency_tolerance = 0.3;

constexpr int period = 17;
/// Element i of the data of one rank: small integers, whose sums are exact in fp32.
float element(int rank, std::int64_t i) { return static_cast<float>((i * 7 + rank * 13) % period) - period / 2; }

/// Value of an unwritten element.
constexpr float untouched = -1000;

struct Operation {
  const char* name;
  Collective collective;
  ReduceOp op = ReduceOp::sum;
};
constexpr Operation operations[] = {
    {"all_reduce", Collective::all_reduce},         {"all_reduce max", Collective::all_reduce, ReduceOp::max},
    {"reduce_scatter", Collective::reduce_scatter}, {"all_gather", Collective::all_gather},
    {"broadcast", Collective::broadcast},           {"exchange", Collective::send_receive},
    {"grouped_exchange", Collective::all_to_all}};

/// One operation of one group on n shards of k elements.
class CollectiveTrial {
 public:
  CollectiveTrial(Backend& backend, Communicator& group, const Operation& operation, std::int64_t shard)
      : b_(backend),
        group_(group),
        operation_(operation),
        n_(group.size()),
        k_(shard),
        from_(backend, DType::fp32, {n_ * k_}),
        to_(backend, DType::fp32, {n_ * k_}) {}

  double size_bytes() const { return 4.0 * static_cast<double>(n_ * k_); }

  /// Returns the seconds of an operation on zeros: the median of some runs on the slowest rank. For example, a
  /// broadcast's root ends before the others.
  double seconds() {
    const int runs = b_.memory_is_host() ? 5 : 9, calls = b_.memory_is_host() ? 1 : 4;
    for (const Tensor* tensor : {&from_, &to_}) b_.elementwise().fill(stream(), 0, *tensor);
    std::vector<double> times;
    for (int run = -1; run < runs; ++run) {
      stream().synchronize();
      group_.barrier();
      const Timer timer;
      for (int call = 0; call < calls; ++call) communicate();
      stream().synchronize();
      if (run >= 0) times.push_back(timer.elapsed_s() / calls);
    }
    return slowest(median(std::move(times)));
  }

  /// Communicates data with a known result. Describes the first wrong element; empty: none.
  std::string fault() {
    std::vector<float> host(static_cast<std::size_t>(n_ * k_));
    for (std::size_t i = 0; i < host.size(); ++i) host[i] = element(group_.rank(), static_cast<std::int64_t>(i));
    b_.copy_from_host(stream(), ConstTensorView(host.data(), from_.view().shape()), from_);
    b_.elementwise().fill(stream(), untouched, to_);
    const TensorView result = communicate();
    b_.copy_to_host(stream(), result, TensorView(host.data(), result.shape()));
    stream().synchronize();
    for (std::int64_t i = 0; i < result.numel(); ++i) {
      const float right = expected(i), actual = host[static_cast<std::size_t>(i)];
      if (actual != right) return fmt::format("element {} of {} is {} instead of {}", i, result.numel(), actual, right);
    }
    return "";
  }

 private:
  Stream& stream() { return b_.compute_stream(); }
  int rank() const { return group_.rank(); }
  /// Returns the largest of the ranks' numbers.
  double slowest(double seconds) {
    const Tensor number(b_, DType::fp64, {1});
    b_.copy_from_host(stream(), ConstTensorView(&seconds, {1}), number);
    group_.all_reduce(stream(), number, ReduceOp::max).wait(stream());
    b_.copy_to_host(stream(), number, TensorView(&seconds, {1}));
    stream().synchronize();
    return seconds;
  }

  /// Runs the operation once, and returns its result.
  TensorView communicate() {
    Stream& s = stream();
    const TensorView from = from_.view(), to = to_.view(), shard = to.flat(0, k_);
    switch (operation_.collective) {
      case Collective::all_reduce:
        group_.all_reduce(s, from, operation_.op).wait(s);
        return from;
      case Collective::reduce_scatter:
        group_.reduce_scatter(s, from, shard, operation_.op).wait(s);
        return shard;
      case Collective::all_gather:
        group_.all_gather(s, from.flat(0, k_), to).wait(s);
        return to;
      case Collective::broadcast:
        group_.broadcast(s, from, n_ - 1).wait(s);
        return from;
      case Collective::send_receive: {
        const Transfer transfers[] = {{Transfer::Direction::send, (rank() + 1) % n_, from},
                                      {Transfer::Direction::receive, (rank() + n_ - 1) % n_, to}};
        for (Work& work : group_.exchange(s, transfers)) work.wait(s);
        return to;
      }
      case Collective::all_to_all:
        break;
    }
    std::vector<Transfer> transfers;
    for (int peer = 0; peer < n_; ++peer) {
      if (peer == rank()) continue;
      transfers.push_back({Transfer::Direction::send, peer, from.flat(peer * k_, k_)});
      transfers.push_back({Transfer::Direction::receive, peer, to.flat(peer * k_, k_)});
    }
    group_.grouped_exchange(s, transfers).wait(s);
    return to;
  }

  float expected(std::int64_t i) const {
    switch (operation_.collective) {
      case Collective::all_reduce:
        return reduced(i);
      case Collective::reduce_scatter:
        return reduced(rank() * k_ + i);
      case Collective::all_gather:
        return element(static_cast<int>(i / k_), i % k_);
      case Collective::broadcast:
        return element(n_ - 1, i);
      case Collective::all_to_all: {
        const auto sender = static_cast<int>(i / k_);
        return sender == rank() ? untouched : element(sender, rank() * k_ + i % k_);
      }
      case Collective::send_receive:
        break;
    }
    return element((rank() + n_ - 1) % n_, i);
  }

  /// Sum or maximum over the ranks of element i. Elements repeat after `period` ranks.
  float reduced(std::int64_t i) const {
    float sum = 0, maximum = -period;
    for (int turn = 0; turn < std::min(n_, period); ++turn) {
      const float value = element(turn, i);
      sum += value * static_cast<float>((n_ - turn + period - 1) / period);
      maximum = std::max(maximum, value);
    }
    return operation_.op == ReduceOp::sum ? sum : maximum;
  }

  Backend& b_;
  Communicator& group_;
  Operation operation_;
  int n_;
  std::int64_t k_;
  Tensor from_, to_;
};

/// Results of one operation in this rank's group.
void test_operation(Context& context, const Group& group, const Operation& operation, std::vector<Result>& results) {
  const bool is_small = context.quick || context.backend.memory_is_host();
  const std::int64_t large = std::int64_t{1} << (is_small ? 18 : 24);
  const int n = group.members->size();
  const std::string place =
      fmt::format("group of {} ranks {}", n, group.spans_nodes ? "across nodes" : "inside one node");
  std::string fault;
  for (const std::int64_t elements : {std::int64_t{1000}, large}) {
    CollectiveTrial trial(context.backend, *group.members, operation, std::max<std::int64_t>(1, elements / n) + 1);
    if (elements == large && operation.op == ReduceOp::sum) {
      results.push_back({.check = fmt::format("{} {} bandwidth", group.name, operation.name),
                         .item = fmt::format("{}, {:.0f} MiB", place, trial.size_bytes() / (1 << 20)),
                         .kind = Kind::rate,
                         .value = 1e-9 * trial.size_bytes() * bus_factor(operation.collective, n) / trial.seconds(),
                         .unit = "GB/s",
                         .min_share = context.min_share * bandwidth_tolerance});
    }
    const std::string found = trial.fault();
    if (fault.empty() && !found.empty()) fault = fmt::format("{} elements: {}", elements, found);
  }
  results.push_back({.check = fmt::format("{} collectives", group.name),
                     .item = fmt::format("{}, {}", operation.name, place),
                     .passed = fault.empty(),
                     .value = fault.empty() ? 0.0 : 1.0,
                     .unit = "wrong",
                     .detail = fault});
}

/// Returns microseconds of an exchange with another rank: the median of some.
double latency_us(Communicator& world, int peer) {
  constexpr int warm_up = 5, runs = 50;
  std::array<std::int64_t, 2> data{};
  const Transfer transfers[] = {{Transfer::Direction::send, peer, TensorView(data.data(), {1})},
                                {Transfer::Direction::receive, peer, TensorView(data.data() + 1, {1})}};
  ImmediateStream host;
  std::vector<double> times;
  for (int run = -warm_up; run < runs; ++run) {
    const Timer timer;
    for (Work& work : world.exchange(host, transfers)) work.wait(host);
    if (run >= 0) times.push_back(1000 * timer.elapsed_ms());
  }
  return median(std::move(times));
}

std::vector<Result> check_collectives(Context& context) {
  std::vector<Result> results;
  for (const Group& group : context.groups) {
    context.world.barrier();
    if (group.members == nullptr || group.members->size() == 1) continue;
    for (const Operation& operation : operations) test_operation(context, group, operation, results);
  }
  return results;
}

std::vector<Result> check_latencies(Context& context) {
  const int size = context.world.size(), rank = context.place.rank, half = size / 2;
  const std::vector<int> nodes = nodes_of_ranks(context);
  const int neighbour = rank ^ 1, far = rank < half ? rank + half : rank - half;
  std::vector<Result> results;
  for (const auto& [peer, is_there] : {std::pair{neighbour, neighbour < size}, std::pair{far, rank < 2 * half}}) {
    context.world.barrier();
    if (!is_there || (peer == neighbour && !results.empty())) continue;
    const bool is_inside = nodes[static_cast<std::size_t>(peer)] == context.place.node;
    results.push_back({.check = fmt::format("MPI latency {}", is_inside ? "inside a node" : "across nodes"),
                       .item = peer == neighbour ? "with the neighbour" : "with the rank half the job apart",
                       .kind = Kind::time,
                       .value = latency_us(context.world, peer),
                       .unit = "us",
                       .min_share = context.min_share * latency_tolerance,
                       .detail = fmt::format("rank {}", peer)});
  }
  return results;
}

}  // namespace

Check latency_check() { return {"MPI latency", "time of small messages between ranks", Scope::ranks, check_latencies}; }

Check collectives_check() {
  return {"collectives", "results and bandwidths in the groups of the grid", Scope::devices, check_collectives};
}

}  // namespace trireme::selftest
