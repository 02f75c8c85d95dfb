#include "src/comm/flight_record.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "src/base/machine.hpp"
#include "src/comm/forwarding_communicator.hpp"

namespace trireme {
namespace {

std::string time_text() {
  using namespace std::chrono;
  const auto now = system_clock::now();
  const auto second = floor<seconds>(now);
  return fmt::format("{:%FT%T}.{:06}Z", second, duration_cast<microseconds>(now - second).count());
}

class RecordedCommunicator final : public ForwardingCommunicator {
 public:
  RecordedCommunicator(Communicator& inner, std::unique_ptr<Communicator> owned, std::vector<int> ranks,
                       std::shared_ptr<FlightRecord> record)
      : ForwardingCommunicator(inner),
        owned_(std::move(owned)),
        ranks_(std::move(ranks)),
        sent_(ranks_.size()),
        received_(ranks_.size()),
        record_(std::move(record)) {}

  Work all_reduce(Stream& stream, TensorView data, ReduceOp op) override {
    add(op == ReduceOp::sum ? "all-reduce" : "all-reduce-max", data);
    return ForwardingCommunicator::all_reduce(stream, data, op);
  }
  Work reduce_scatter(Stream& stream, ConstTensorView in, TensorView out, ReduceOp op) override {
    add("reduce-scatter", in);
    return ForwardingCommunicator::reduce_scatter(stream, in, out, op);
  }
  Work all_gather(Stream& stream, ConstTensorView in, TensorView out) override {
    add("all-gather", out);
    return ForwardingCommunicator::all_gather(stream, in, out);
  }
  Work broadcast(Stream& stream, TensorView data, int root) override {
    add("broadcast", data);
    return ForwardingCommunicator::broadcast(stream, data, root);
  }
  std::vector<Work> exchange(Stream& stream, std::span<const Transfer> transfers) override {
    add(transfers);
    return ForwardingCommunicator::exchange(stream, transfers);
  }
  Work grouped_exchange(Stream& stream, std::span<const Transfer> transfers) override {
    add(transfers);
    return ForwardingCommunicator::grouped_exchange(stream, transfers);
  }
  void barrier() override {
    record_->add(call("barrier", ++collectives_));
    ForwardingCommunicator::barrier();
  }

 private:
  FlightRecord::Call call(std::string_view operation, std::int64_t number) const {
    return {.number = number,
            .group = name(),
            .first_rank = ranks_.front(),
            .size = size(),
            .operation = operation,
            .peer = -1,
            .type = "-",
            .elements = 0};
  }
  void add(std::string_view operation, ConstTensorView data) {
    FlightRecord::Call added = call(operation, ++collectives_);
    added.type = name_of(data.dtype());
    added.elements = data.numel();
    record_->add(added);
  }
  void add(std::span<const Transfer> transfers) {
    for (const Transfer& transfer : transfers) {
      const bool sends = transfer.direction == Transfer::Direction::send;
      const auto peer = static_cast<std::size_t>(transfer.peer);
      FlightRecord::Call added = call(sends ? "send" : "receive", ++(sends ? sent_ : received_)[peer]);
      added.peer = ranks_[peer];
      added.type = name_of(transfer.data.dtype());
      added.elements = transfer.data.numel();
      record_->add(added);
    }
  }

  std::unique_ptr<Communicator> owned_;
  std::vector<int> ranks_;
  std::int64_t collectives_ = 0;
  std::vector<std::int64_t> sent_, received_;  // by rank of the group
  std::shared_ptr<FlightRecord> record_;
};

}  // namespace

FlightRecord::FlightRecord(Write write, int rank, int world_size) : write_(std::move(write)) {
  this->write(fmt::format("flight record 1 of rank {} of {} on host {:.32}, process {}, since {}", rank, world_size,
                          host_name(), getpid(), time_text()),
              0);
}

void FlightRecord::add(const Call& call) {
  const std::lock_guard lock(mutex_);
  const std::int64_t number = ++calls_;
  write(fmt::format("{} {} {} {} {} {} {} {} {} {}", number, call.number, time_text(), call.group, call.first_rank,
                    call.size, call.operation, call.peer < 0 ? "-" : fmt::format("{}", call.peer), call.type,
                    call.elements),
        1 + (number - 1) % kept);
}

void FlightRecord::write(std::string line, std::int64_t at) {
  line.resize(line_bytes - 1, ' ');
  write_(line + '\n', at * line_bytes);
}

std::unique_ptr<Communicator> recorded(std::unique_ptr<Communicator> inner, std::vector<int> ranks,
                                       std::shared_ptr<FlightRecord> record) {
  Communicator& reference = *inner;
  return std::make_unique<RecordedCommunicator>(reference, std::move(inner), std::move(ranks), std::move(record));
}

std::unique_ptr<Communicator> recorded(Communicator& inner, std::vector<int> ranks,
                                       std::shared_ptr<FlightRecord> record) {
  return std::make_unique<RecordedCommunicator>(inner, nullptr, std::move(ranks), std::move(record));
}

}  // namespace trireme
