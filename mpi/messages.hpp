#pragma once

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace trireme::mpi {

/// Non-blocking requests that are waited for together. Sizes are in bytes and may exceed the maximum of one MPI
/// message.
class Messages {
 public:
  Messages(MPI_Comm comm, int tag) : comm_(comm), tag_(tag) {}

  void send(const std::byte* data, std::size_t size_bytes, int peer);
  void receive(std::byte* data, std::size_t size_bytes, int peer);
  void broadcast(std::byte* data, std::size_t size_bytes, int root);
  void barrier();

  /// Returns whether all are complete; then new ones may be added. Throws MpiError if one failed, or a peer sent less
  /// than expected: the ranks then called different operations.
  bool test();

  /// Returns the world ranks with messages in flight, each once. Excludes those of a broadcast or a barrier, which MPI
  /// does not report.
  std::vector<int> awaited_ranks() const;

 private:
  struct Expected {
    bool received;  // otherwise sent
    std::size_t size_bytes;
    int peer;
  };
  /// Adds a request, which the caller starts.
  MPI_Request* add(Expected expected);

  MPI_Comm comm_;
  int tag_;
  std::vector<MPI_Request> requests_;
  std::vector<Expected> expected_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace trireme::mpi
