#include "src/comm/flight_record.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <map>
#include <span>

#include "src/base/machine.hpp"
#include "src/comm/forwarding_communicator.hpp"

namespace trireme {
namespace {

/// Returns the function at an address of code, without arguments and the outer namespace; empty if it has no public
/// symbol, or is part of a communicator or of its helpers, which are in the outer namespace itself.
std::string name_of_caller(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_sname == nullptr) return {};
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> demangled(
      abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), &std::free);
  if (!demangled) return {};
  std::string_view name = demangled.get();
  name = name.substr(0, name.find_first_of("(<"));
  name.remove_prefix(name.rfind(' ') + 1);  // the type that a template returns
  constexpr std::string_view outer = "trireme::";
  if (!name.starts_with(outer) || name.find("Communicat") != name.npos) return {};
  name.remove_prefix(outer.size());
  const bool is_nested = name.find("::") != name.npos && std::islower(static_cast<unsigned char>(name.front())) != 0;
  return is_nested ? std::string(name) : std::string();
}

/// Names of the functions that call a communicator.
class Callers {
 public:
  /// The innermost function on this thread's stack that has a name; "-" if none near the call has one.
  std::string_view innermost() {
    std::array<void*, 12> frames{};
    const int depth = backtrace(frames.data(), static_cast<int>(frames.size()));
    for (void* frame : std::span(frames).first(static_cast<std::size_t>(depth))) {
      const auto [found, is_new] = names_.try_emplace(frame);
      if (is_new) found->second = name_of_caller(frame);
      if (!found->second.empty()) return found->second;
    }
    return "-";
  }

 private:
  std::map<void*, std::string> names_;  // by address in the code
};

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

  Work all_reduce(Stream& stream, TensorView data, ReduceOp op) override {
    add(stream, op == ReduceOp::sum ? "all-reduce" : "all-reduce-max", data);
    return ForwardingCommunicator::all_reduce(stream, data, op);
  }
  Work reduce_scatter(Stream& stream, ConstTensorView in, TensorView out, ReduceOp op) override {
    add(stream, "reduce-scatter", in);
    return ForwardingCommunicator::reduce_scatter(stream, in, out, op);
  }
  Work all_gather(Stream& stream, ConstTensorView in, TensorView out) override {
    add(stream, "all-gather", out);
    return ForwardingCommunicator::all_gather(stream, in, out);
  }
  Work broadcast(Stream& stream, TensorView data, int root) override {
    add(stream, "broadcast", data);
    return ForwardingCommunicator::broadcast(stream, data, root);
  }
  std::vector<Work> exchange(Stream& stream, std::span<const Transfer> transfers) override {
    add(stream, transfers);
    return ForwardingCommunicator::exchange(stream, transfers);
  }
  Work grouped_exchange(Stream& stream, std::span<const Transfer> transfers) override {
    add(stream, transfers);
    return ForwardingCommunicator::grouped_exchange(stream, transfers);
  }
  void barrier() override {
    record_.add(call("barrier", ++collectives_, "-"));
    ForwardingCommunicator::barrier();
  }

 private:
  FlightRecord::Call call(std::string_view operation, std::int64_t number, std::string_view stream) {
    return {.number = number,
            .group = name(),
            .first_rank = ranks_.front(),
            .size = size(),
            .operation = operation,
            .peer = -1,
            .type = "-",
            .elements = 0,
            .stream = stream,
            .caller = callers_.innermost()};
  }
  std::string_view name_of_stream(const Stream& stream) const {
    if (&stream == compute_) return "compute";
    return dynamic_cast<const ImmediateStream*>(&stream) != nullptr ? "host" : "other";
  }
  void add(const Stream& stream, std::string_view operation, ConstTensorView data) {
    FlightRecord::Call added = call(operation, ++collectives_, name_of_stream(stream));
    added.type = name_of(data.dtype());
    added.elements = data.numel();
    record_.add(added);
  }
  void add(const Stream& stream, std::span<const Transfer> transfers) {
    for (const Transfer& transfer : transfers) {
      const bool sends = transfer.direction == Transfer::Direction::send;
      const auto peer = static_cast<std::size_t>(transfer.peer);
      FlightRecord::Call added =
          call(sends ? "send" : "receive", ++(sends ? sent_ : received_)[peer], name_of_stream(stream));
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
  Callers callers_;
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
  this->write(fmt::format("flight record 3 of rank {} of {} on host {:.32}, process {}, since {}Z", rank, world_size,
                          host_name(), getpid(), utc_text()),
              0);
}

void FlightRecord::add(const Call& call) {
  const std::lock_guard lock(mutex_);
  const std::int64_t number = ++calls_;
  const bool has_place = !ranges_.empty() && thread_of_ranges_ == std::this_thread::get_id();
  write(fmt::format("{} {} {}Z {} {} {} {} {} {} {} {} {} {}", number, call.number, utc_text(), call.group,
                    call.first_rank, call.size, call.operation, call.peer < 0 ? "-" : fmt::format("{}", call.peer),
                    call.type, call.elements, call.stream, call.caller,
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
