#include "src/train/exposed_communication.hpp"

#include <numeric>

#include "src/comm/forwarding_communicator.hpp"
#include "src/comm/host_collectives.hpp"
#include "src/parallel/grid/decorated_groups.hpp"

namespace trireme::train {

/// Operation whose waits are timed.
class ExposedCommunication::TimedState final : public Work::State {
 public:
  TimedState(std::vector<Wait>& waits, std::size_t group, Work inner)
      : waits_(waits), group_(group), inner_(std::move(inner)) {}
  bool done() override { return inner_.done(); }
  void wait(Stream& stream) override {
    std::unique_ptr<TimedEvent> begin = stream.record_time();
    inner_.wait(stream);
    waits_.push_back({group_, std::move(begin), stream.record_time()});
  }

 private:
  std::vector<Wait>& waits_;
  std::size_t group_;
  Work inner_;
};

class ExposedCommunication::TimedCommunicator final : public ForwardingCommunicator {
 public:
  template <class Inner>
  TimedCommunicator(Inner&& inner, std::vector<Wait>& waits, std::size_t group)
      : ForwardingCommunicator(std::forward<Inner>(inner)), waits_(waits), group_(group) {}
  Work all_reduce(StreamPoint stream, TensorView data, ReduceOp op) override {
    return timed(ForwardingCommunicator::all_reduce(stream, data, op));
  }
  Work reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) override {
    return timed(ForwardingCommunicator::reduce_scatter(stream, in, out, op));
  }
  Work all_gather(StreamPoint stream, ConstTensorView in, TensorView out) override {
    return timed(ForwardingCommunicator::all_gather(stream, in, out));
  }
  Work broadcast(StreamPoint stream, TensorView data, int root) override {
    return timed(ForwardingCommunicator::broadcast(stream, data, root));
  }
  std::vector<Work> exchange(StreamPoint stream, std::span<const Transfer> transfers) override {
    std::vector<Work> works = ForwardingCommunicator::exchange(stream, transfers);
    for (Work& work : works) work = timed(std::move(work));
    return works;
  }
  Work grouped_exchange(StreamPoint stream, std::span<const Transfer> transfers) override {
    return timed(ForwardingCommunicator::grouped_exchange(stream, transfers));
  }

 private:
  Work timed(Work work) { return Work(std::make_unique<TimedState>(waits_, group_, std::move(work))); }

  std::vector<Wait>& waits_;
  std::size_t group_;
};

ExposedCommunication::ExposedCommunication(Communicator& world, parallel::GridCommunicators& groups)
    : world_(world), groups_(groups), timed_world_(std::make_unique<TimedCommunicator>(world, waits_, 0)) {
  // Every rank lists the same names, so that the sums over ranks match by group.
  names_.emplace_back("world");
  for (const parallel::GroupKind kind : parallel::all_group_kinds) names_.push_back(name_of(kind));
  parallel::decorate(groups, [this](parallel::GroupKind kind, std::unique_ptr<Communicator> group) {
    return std::make_unique<TimedCommunicator>(std::move(group), waits_, 1 + static_cast<std::size_t>(kind));
  });
}

ExposedCommunication::~ExposedCommunication() { parallel::undecorate(groups_); }

void ExposedCommunication::restart() { waits_.clear(); }

std::vector<ExposedTime> ExposedCommunication::take_ms(double elapsed_ms) {
  std::vector<double> sums(names_.size());
  for (const Wait& wait : waits_) sums[wait.group] += wait.end->ms_since(*wait.begin);
  waits_.clear();
  own_ms_ = std::accumulate(sums.begin(), sums.end(), 0.0);
  sums.push_back(elapsed_ms);
  all_reduce_numbers(world_, sums, ReduceOp::sum);
  const double of_sums = elapsed_ms / sums.back();
  std::vector<ExposedTime> exposed;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (sums[i] > 0) exposed.emplace_back(names_[i], sums[i] * of_sums);
  }
  return exposed;
}

}  // namespace trireme::train
