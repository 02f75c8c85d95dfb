#include "mpi/messages.hpp"

#include <algorithm>

#include "mpi/error.hpp"
#include "src/base/check.hpp"

namespace trireme::mpi {
namespace {

constexpr std::size_t largest_message = std::size_t{1} << 30;  // an MPI count is an int
constexpr int no_peer = -1;

/// Calls `issue(offset, count)` for each message of at most largest_message bytes.
template <class Issue>
void in_pieces(std::size_t size_bytes, Issue issue) {
  for (std::size_t offset = 0; offset < size_bytes; offset += largest_message) {
    issue(offset, static_cast<int>(std::min(largest_message, size_bytes - offset)));
  }
}

}  // namespace

void Messages::add(MPI_Request request, Expected expected) {
  requests_.push_back(request);
  expected_.push_back(expected);
}

void Messages::send(const std::byte* data, std::size_t size_bytes, int peer) {
  in_pieces(size_bytes, [&](std::size_t offset, int count) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Isend(data + offset, count, MPI_BYTE, peer, tag_, comm_, &request), "MPI_Isend");
    add(request, {0, no_peer});
  });
}

void Messages::receive(std::byte* data, std::size_t size_bytes, int peer) {
  in_pieces(size_bytes, [&](std::size_t offset, int count) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Irecv(data + offset, count, MPI_BYTE, peer, tag_, comm_, &request), "MPI_Irecv");
    add(request, {static_cast<std::size_t>(count), peer});
  });
}

void Messages::broadcast(std::byte* data, std::size_t size_bytes, int root) {
  in_pieces(size_bytes, [&](std::size_t offset, int count) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibcast(data + offset, count, MPI_BYTE, root, comm_, &request), "MPI_Ibcast");
    add(request, {0, no_peer});
  });
}

void Messages::barrier() {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
  add(request, {0, no_peer});
}

bool Messages::test() {
  if (requests_.empty()) return true;
  statuses_.resize(requests_.size());
  int done = 0;
  const int code = MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses_.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (const MPI_Status& status : statuses_) {
      if (status.MPI_ERROR != MPI_ERR_PENDING) check(status.MPI_ERROR, "a message between ranks");
    }
  }
  check(code, "MPI_Testall");
  if (done == 0) return false;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (expected_[i].peer == no_peer) continue;
    int count = 0;
    check(MPI_Get_count(&statuses_[i], MPI_BYTE, &count), "MPI_Get_count");
    TRIREME_CHECK(static_cast<std::size_t>(count) == expected_[i].size_bytes, MpiError,
                  fmt::format("{} received {} bytes from rank {} of its group where {} were expected: the ranks do not "
                              "call the same operations in the same order",
                              this_rank_and_host(), count, expected_[i].peer, expected_[i].size_bytes));
  }
  requests_.clear();
  expected_.clear();
  return true;
}

}  // namespace trireme::mpi
