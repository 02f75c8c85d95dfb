#include "src/comm/flight_record.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <chrono>
#include <span>

#include "src/base/machine.hpp"
#include "src/comm/forwarding_communicator.hpp"

namespace trireme {
namespace {

/// Returns the path of a caller's file in the sources, and its line: "src/model/stage/embedding.cpp:88".
std::string line_of(const Caller& caller) {
  const std::string_view own_file = std::source_location::current().file_name();
  const std::size_t root = own_file.size() - std::string_view("src/comm/flight_record.cpp").size();
  std::string_view file = caller.file_name();
  if (file.starts_with(own_file.substr(0, root))) file.remove_prefix(root);
  while (file.starts_with("../")) file.remove_prefix(3);  // a relative path of ccache
  return fmt::format("{}:{}", file, caller.line());
}

/// Returns the function of a caller without the type it returns, arguments and outer namespace:
/// "model::Embedding::forward".
std::string_view function_of(const Caller& caller) {
  std::string_view name = caller.function_name();
  constexpr std::string_view outer = "trireme::";
  name = name.substr(0, name.find('('));
  name.remove_prefix(name.rfind(' ') + 1);
  if (name.starts_with(outer)) name.remove_prefix(outer.size());
  return name;
}

class RecordedCommunicator final : public ForwardingCommunicator {
 public:
  template <class Inner>
  RecordedCommunicator(Inner&& inner, std::vector<int> ranks, const Stream& compute, FlightRecord& record)
      : ForwardingCommunicator(std::forward<Inner>(inner)),
        ranks_(std::move(ranks)),
        sent_(ranks_.size()),
        received_(ranks_.size()),
        compute_(&compute),
        record_(record) {}

  Work all_reduce(StreamPoint stream, TensorView data, ReduceOp op) override {
    add(stream, op == ReduceOp::sum ? "all-reduce" : "all-reduce-max", data);
    return ForwardingCommunicator::all_reduce(stream, data, op);
  }
  Work reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) override {
    add(stream, "reduce-scatter", in);
    return ForwardingCommunicator::reduce_scatter(stream, in, out, op);
  }
  Work all_gather(StreamPoint stream, ConstTensorView in, TensorView out) override {
    add(stream, "all-gather", out);
    return ForwardingCommunicator::all_gather(stream, in, out);
  }
  Work broadcast(StreamPoint stream, TensorView data, int root) override {
    add(stream, "broadcast", data);
    return ForwardingCommunicator::broadcast(stream, data, root);
  }
  std::vector<Work> exchange(StreamPoint stream, std::span<const Transfer> transfers) override {
    add(stream, transfers);
    return ForwardingCommunicator::exchange(stream, transfers);
  }
  Work grouped_exchange(StreamPoint stream, std::span<const Transfer> transfers) override {
    add(stream, transfers);
    return ForwardingCommunicator::grouped_exchange(stream, transfers);
  }
  void barrier(const Caller& caller) override {
    record_.add(call("barrier", ++collectives_, "-", caller));
    ForwardingCommunicator::barrier(caller);
  }

 private:
  FlightRecord::Call call(std::string_view operation, std::int64_t number, std::string_view stream,
                          const Caller& caller) {
    return {.number = number,
            .group = name(),
            .first_rank = ranks_.front(),
            .size = size(),
            .operation = operation,
            .peer = -1,
            .type = "-",
            .elements = 0,
            .stream = stream,
            .function = function_of(caller),
            .line = line_of(caller)};
  }
  std::string_view name_of_stream(const Stream& stream) const {
    if (&stream == compute_) return "compute";
    return dynamic_cast<const ImmediateStream*>(&stream) != nullptr ? "host" : "other";
  }
  void add(const StreamPoint& stream, std::string_view operation, ConstTensorView data) {
    FlightRecord::Call added = call(operation, ++collectives_, name_of_stream(stream), stream.caller());
    added.type = name_of(data.dtype());
    added.elements = data.numel();
    record_.add(added);
  }
  void add(const StreamPoint& stream, std::span<const Transfer> transfers) {
    for (const Transfer& transfer : transfers) {
      const bool sends = transfer.direction == Transfer::Direction::send;
      const auto peer = static_cast<std::size_t>(transfer.peer);
      FlightRecord::Call added = call(sends ? "send" : "receive", ++(sends ? sent_ : received_)[peer],
                                      name_of_stream(stream), stream.caller());
      added.peer = ranks_[peer];
      added.type = name_of(transfer.data.dtype());
      added.elements = transfer.data.numel();
      record_.add(added);
    }
  }

  std::vector<int> ranks_;
  std::int64_t collectives_ = 0;
  std::vector<std::int64_t> sent_, received_;  // by rank of the group
  const Stream* compute_;
  FlightRecord& record_;
};

}  // namespace

std::string utc_text(const char* date) {
  using namespace std::chrono;
  const auto now = system_clock::now();
  const auto second = floor<seconds>(now);
  return fmt::format(
      "{}.{:06}", fmt::format(fmt::runtime(fmt::format("{{:{}}}", date)), fmt::gmtime(system_clock::to_time_t(second))),
      duration_cast<microseconds>(now - second).count());
}

FlightRecord::FlightRecord(Write write, int rank, int world_size) : write_(std::move(write)) {
  this->write(fmt::format("flight record 4 of rank {} of {} on host {:.32}, process {}, since {}Z", rank, world_size,
                          host_name(), getpid(), utc_text()),
              0);
}

void FlightRecord::add(const Call& call) {
  const std::lock_guard lock(mutex_);
  const std::int64_t number = ++calls_;
  const bool has_place = !ranges_.empty() && thread_of_ranges_ == std::this_thread::get_id();
  write(fmt::format("{} {} {}Z {} {} {} {} {} {} {} {} {} {} {}", number, call.number, utc_text(), call.group,
                    call.first_rank, call.size, call.operation, call.peer < 0 ? "-" : fmt::format("{}", call.peer),
                    call.type, call.elements, call.stream, call.function, call.line,
                    has_place ? fmt::format("{}", fmt::join(ranges_, "/")) : "-"),
        1 + (number - 1) % kept);
}

void FlightRecord::begin_range(const char* name) {
  if (next_ != nullptr) next_->begin_range(name);
  const std::lock_guard lock(mutex_);
  thread_of_ranges_ = std::this_thread::get_id();
  ranges_.push_back(name);
}

void FlightRecord::end_range() {
  if (next_ != nullptr) next_->end_range();
  const std::lock_guard lock(mutex_);
  ranges_.pop_back();
}

void FlightRecord::write(std::string line, std::int64_t at) {
  line.resize(line_bytes - 1, ' ');
  write_(line + '\n', at * line_bytes);
}

std::unique_ptr<Communicator> recorded(std::unique_ptr<Communicator> inner, std::vector<int> ranks,
                                       const Stream& compute, FlightRecord& record) {
  return std::make_unique<RecordedCommunicator>(std::move(inner), std::move(ranks), compute, record);
}

std::unique_ptr<Communicator> recorded(Communicator& inner, std::vector<int> ranks, const Stream& compute,
                                       FlightRecord& record) {
  return std::make_unique<RecordedCommunicator>(inner, std::move(ranks), compute, record);
}

}  // namespace trireme
