#include "mpi/mpi_communicator.hpp"

#include <exception>
#include <utility>

#include "mpi/error.hpp"
#include "src/base/check.hpp"

namespace trireme::mpi {
namespace {

constexpr int exchange_tag = 0;  // messages between two ranks arrive in order, so one tag suffices

MPI_Comm duplicate(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  return copy;
}

class MpiWork final : public Work::State {
 public:
  MpiWork(std::shared_ptr<ProgressEngine> engine, std::shared_ptr<ProgressEngine::Entry> entry)
      : engine_(std::move(engine)), entry_(std::move(entry)) {}
  ~MpiWork() override {
    // Destroyed without a wait: an error is unwinding this rank, and the operation's memory is about to be freed.
    if (!done()) engine_->abandon();
  }
  bool done() override { return entry_->finished.load(std::memory_order_acquire); }
  void wait(Stream&) override { engine_->wait(*entry_); }

 private:
  std::shared_ptr<ProgressEngine> engine_;
  std::shared_ptr<ProgressEngine::Entry> entry_;
};

}  // namespace

MpiCommunicator::MpiCommunicator(std::shared_ptr<ProgressEngine> engine, MPI_Comm comm, std::string name)
    : MpiCommunicator(Owned{}, std::move(engine), duplicate(comm), std::move(name)) {}

MpiCommunicator::MpiCommunicator(Owned, std::shared_ptr<ProgressEngine> engine, MPI_Comm comm, std::string name)
    : engine_(std::move(engine)), comm_(comm), name_(std::move(name)) {
  check(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  void* value = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(comm_, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr");
  max_tag_ = found != 0 ? *static_cast<int*>(value) : 32767;  // minimum guaranteed by the standard
}

MpiCommunicator::~MpiCommunicator() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && std::uncaught_exceptions() == 0 && !engine_->abandoned()) MPI_Comm_free(&comm_);
}

Channel MpiCommunicator::next_channel() {
  const int tag = 1 + operations_;
  operations_ = tag < max_tag_ ? operations_ + 1 : 0;
  return {*engine_, comm_, rank_, size_, tag};
}

Work MpiCommunicator::start(Operation operation, const char* kind) {
  std::string description = fmt::format("{} of the group {}", kind, name_);
  return Work(std::make_unique<MpiWork>(engine_, engine_->submit(std::move(operation), std::move(description))));
}

Work MpiCommunicator::all_reduce(StreamPoint stream, TensorView data, ReduceOp op) {
  stream->synchronize();
  if (size_ == 1 || data.numel() == 0) return {};
  return start(mpi::all_reduce(next_channel(), data, op), "an all-reduce");
}

Work MpiCommunicator::reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) {
  TRIREME_CHECK(in.numel() == out.numel() * size_ && in.dtype() == out.dtype(), ShapeError,
                "reduce-scatter over {} ranks of {} from {} {} to {} {}", size_, name_, name_of(in.dtype()),
                to_string(in.shape()), name_of(out.dtype()), to_string(out.shape()));
  stream->synchronize();
  if (out.numel() == 0) return {};
  return start(mpi::reduce_scatter(next_channel(), in, out, op), "a reduce-scatter");
}

Work MpiCommunicator::all_gather(StreamPoint stream, ConstTensorView in, TensorView out) {
  TRIREME_CHECK(in.numel() * size_ == out.numel() && in.dtype() == out.dtype(), ShapeError,
                "all-gather over {} ranks of {} from {} {} to {} {}", size_, name_, name_of(in.dtype()),
                to_string(in.shape()), name_of(out.dtype()), to_string(out.shape()));
  stream->synchronize();
  if (in.numel() == 0) return {};
  return start(mpi::all_gather(next_channel(), in, out), "an all-gather");
}

Work MpiCommunicator::broadcast(StreamPoint stream, TensorView data, int root) {
  TRIREME_CHECK(root >= 0 && root < size_, ShapeError, "broadcast from rank {} of {}, which has {}", root, name_,
                size_);
  stream->synchronize();
  if (size_ == 1 || data.numel() == 0) return {};
  return start(mpi::broadcast(next_channel(), data, root), "a broadcast");
}

std::vector<Work> MpiCommunicator::exchange(StreamPoint stream, std::span<const Transfer> transfers) {
  stream->synchronize();
  std::vector<Messages> messages(transfers.size(), Messages(comm_, exchange_tag));
  // Receives first: a message with a posted receive is copied only once.
  for (const Transfer::Direction direction : {Transfer::Direction::receive, Transfer::Direction::send}) {
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      const Transfer& transfer = transfers[i];
      if (transfer.direction != direction) continue;
      if (direction == Transfer::Direction::send) {
        messages[i].send(transfer.data.data(), transfer.data.size_bytes(), transfer.peer);
      } else {
        messages[i].receive(transfer.data.data(), transfer.data.size_bytes(), transfer.peer);
      }
    }
  }
  std::vector<Work> works;
  works.reserve(transfers.size());
  for (Messages& one : messages) works.push_back(start(completion(std::move(one)), "an exchange"));
  return works;
}

void MpiCommunicator::barrier(const Caller&) {
  ImmediateStream host;
  start(mpi::barrier(next_channel()), "a barrier").wait(host);
}

std::unique_ptr<Communicator> MpiCommunicator::split(int colour, int key, const std::string& name, GroupUse) {
  MPI_Comm group = MPI_COMM_NULL;
  check(MPI_Comm_split(comm_, colour < 0 ? MPI_UNDEFINED : colour, key, &group), "MPI_Comm_split");
  if (group == MPI_COMM_NULL) return nullptr;
  return std::unique_ptr<Communicator>(new MpiCommunicator(Owned{}, engine_, group, name));
}

}  // namespace trireme::mpi
