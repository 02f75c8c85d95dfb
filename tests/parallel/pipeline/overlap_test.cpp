// Gain from receives posted ahead: steps and messages have known lengths, and the simulation computes their sum.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <list>
#include <thread>

#include "src/comm/forwarding_communicator.hpp"
#include "src/parallel/pipeline/executor.hpp"
#include "src/plan/simulation.hpp"
#include "tests/support/mpi_world.hpp"

namespace trireme::parallel {
namespace {

using Clock = std::chrono::steady_clock;  // the same for all processes of a machine

constexpr std::chrono::milliseconds unit{10};

/// Messages that take one unit from when they are sent and their receive is posted, whichever is later. Every message
/// carries, in a second one, the time at which it was sent.
class SlowMessages final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  std::vector<Work> exchange(StreamPoint stream, std::span<const Transfer> transfers) override {
    const Clock::time_point now = Clock::now();
    std::vector<Transfer> all;
    std::vector<std::int64_t*> stamps;
    for (const Transfer& transfer : transfers) {
      std::int64_t& stamp = stamps_.emplace_back(now.time_since_epoch().count());
      stamps.push_back(&stamp);
      all.push_back(transfer);
      all.push_back({transfer.direction, transfer.peer, TensorView(&stamp, {1})});
    }
    std::vector<Work> works = ForwardingCommunicator::exchange(stream, all);
    std::vector<Work> result;
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      result.emplace_back(std::make_unique<State>(std::move(works[2 * i]), std::move(works[2 * i + 1]), *stamps[i], now,
                                                  transfers[i].direction == Transfer::Direction::receive));
    }
    return result;
  }

 private:
  class State final : public Work::State {
   public:
    State(Work data, Work stamp_work, std::int64_t& stamp, Clock::time_point posted, bool receives)
        : data_(std::move(data)),
          stamp_work_(std::move(stamp_work)),
          stamp_(stamp),
          posted_(posted),
          receives_(receives) {}
    bool done() override { return data_.done() && stamp_work_.done(); }
    void wait(Stream& stream) override {
      data_.wait(stream);
      stamp_work_.wait(stream);
      const Clock::time_point sent{Clock::duration(stamp_)};
      if (receives_) std::this_thread::sleep_until(std::max(posted_, sent) + unit);
    }

   private:
    Work data_;
    Work stamp_work_;
    std::int64_t& stamp_;
    Clock::time_point posted_;
    bool receives_;
  };
  std::list<std::int64_t> stamps_;
};

/// Computes nothing, for two units forward and for two in each half of a backward.
class SleepingStage final : public Stage {
 public:
  SleepingStage(int rank, int stages) : rank_(rank), stages_(stages) {}
  DType boundary_dtype() const override { return DType::fp64; }
  Shape boundary_shape(int) const override { return {8}; }
  bool is_first(int) const override { return rank_ == 0; }
  bool is_last(int) const override { return rank_ + 1 == stages_; }
  void forward(int, int, ConstTensorView, TensorView) override { std::this_thread::sleep_for(2 * unit); }
  void backward_input(int, int, ConstTensorView, TensorView) override { std::this_thread::sleep_for(2 * unit); }
  void backward_weight(int, int) override { std::this_thread::sleep_for(2 * unit); }

 private:
  int rank_;
  int stages_;
};

/// One run on the slowest rank, in units.
double measure(Communicator& world, const Schedule& schedule, bool overlap) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  SleepingStage stage(world.rank(), schedule.stages);
  SlowMessages messages(world);
  PipelineExecutor executor(*backend, messages, stage, {.overlap = overlap});
  world.barrier();
  const Clock::time_point begin = Clock::now();
  executor.run(schedule);
  double elapsed = std::chrono::duration<double>(Clock::now() - begin) / unit;
  ImmediateStream host;
  world.all_reduce(host, TensorView(&elapsed, {1}), ReduceOp::max).wait(host);
  return elapsed;
}

TEST(OverlappedMessages, OverlapWithComputationAsSimulated) {
  Communicator& world = test::world();
  const int p = world.size();
  for (const ScheduleKind kind : {ScheduleKind::one_forward_one_backward, ScheduleKind::zero_bubble}) {
    const Schedule schedule = make_schedule(kind, p, 2 * p);
    const double simulated = plan::simulate(schedule, plan::ScheduleTimes::uniform(schedule, {2, 2, 2}, 1)).makespan;
    // A busy machine makes a run longer, never shorter: one in sixty that takes the time simulated is enough.
    double with = measure(world, schedule, true);
    for (int attempt = 1; attempt < 60 && with > 1.05 * simulated; ++attempt) {
      with = std::min(with, measure(world, schedule, true));
    }
    const double without = measure(world, schedule, false);
    if (world.rank() == 0) {
      std::printf("%s, %d stages: simulated %.1f, overlapped %.2f, not overlapped %.2f units\n", name_of(kind), p,
                  simulated, with, without);
    }
    EXPECT_LE(with, 1.05 * simulated);
    EXPECT_GT(without, simulated + 0.5);  // at least one message shows
  }
}

}  // namespace
}  // namespace trireme::parallel
