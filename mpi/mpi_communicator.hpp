#pragma once

#include <mpi.h>

#include <memory>
#include <string>

#include "mpi/operations.hpp"
#include "mpi/progress.hpp"
#include "src/comm/communicator.hpp"

namespace trireme::mpi {

/// Collectives among MPI ranks on host memory. Communication progresses asynchronously between start and wait (see
/// ProgressEngine). Sums are formed in rank order, so they depend bitwise on the contributions only; a maximum is NaN
/// if any contribution is. `out` of reduce_scatter may be this rank's shard of `in`.
///
/// Destruction is collective: all ranks destroy groups in the same order. While an exception unwinds, nothing is freed.
/// Throws MpiError if MPI reports a failure or the ranks' calls do not match.
class MpiCommunicator final : public Communicator {
 public:
  /// Duplicates `comm` to isolate its messages. Collective.
  MpiCommunicator(std::shared_ptr<ProgressEngine> engine, MPI_Comm comm, std::string name);
  ~MpiCommunicator() override;
  MpiCommunicator& operator=(MpiCommunicator&&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }
  Work all_reduce(StreamPoint stream, TensorView data, ReduceOp op) override;
  Work reduce_scatter(StreamPoint stream, ConstTensorView in, TensorView out, ReduceOp op) override;
  Work all_gather(StreamPoint stream, ConstTensorView in, TensorView out) override;
  Work broadcast(StreamPoint stream, TensorView data, int root) override;
  std::vector<Work> exchange(StreamPoint stream, std::span<const Transfer> transfers) override;
  void barrier(const Caller& caller = Caller::current()) override;
  std::unique_ptr<Communicator> split(int colour, int key, const std::string& name,
                                      GroupUse use = GroupUse::general) override;

  MPI_Comm handle() const { return comm_; }

 private:
  struct Owned {};
  MpiCommunicator(Owned, std::shared_ptr<ProgressEngine> engine, MPI_Comm comm, std::string name);
  Channel next_channel();
  Work start(Operation operation, const char* kind);

  std::shared_ptr<ProgressEngine> engine_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int max_tag_ = 0;
  int operations_ = 0;  // operations so far; determines the tag of the next
  std::string name_;
};

}  // namespace trireme::mpi
