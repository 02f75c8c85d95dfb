#include "mpi/messages.hpp"

#include <algorithm>

#include "mpi/error.hpp"
#include "src/base/check.hpp"

namespace trireme::mpi {
namespace {

constexpr std::size_t max_message_bytes = std::size_t{1} << 30;  // an MPI count is an int
constexpr int no_peer = -1;

/// Calls `issue(offset, count)` for each message of at most max_message_bytes bytes.
template <class Issue>
void in_pieces(std::size_t size_bytes, Issue issue) {
  for (std::size_t offset = 0; offset < size_bytes; offset += max_message_bytes) {
    issue(offset, static_cast<int>(std::min(max_message_bytes, size_bytes - offset)));
  }
}

}  // namespace

MPI_Request* Messages::add(Expected expected) {
  expected_.push_back(expected);
  return &requests_.emplace_back(MPI_REQUEST_NULL);
}

void Messages::send(const std::byte* data, std::size_t size_bytes, int peer) {
  in_pieces(size_bytes, [&](std::size_t offset, int count) {
    check(MPI_Isend(data + offset, count, MPI_BYTE, peer, tag_, comm_, add({false, 0, peer})), "MPI_Isend");
  });
}

void Messages::receive(std::byte* data, std::size_t size_bytes, int peer) {
  in_pieces(size_bytes, [&](std::size_t offset, int count) {
    check(MPI_Irecv(data + offset, count, MPI_BYTE, peer, tag_, comm_,
                    add({true, static_cast<std::size_t>(count), peer})),
          "MPI_Irecv");
  });
}

void Messages::broadcast(std::byte* data, std::size_t size_bytes, int root) {
  in_pieces(size_bytes, [&](std::size_t offset, int count) {
    check(MPI_Ibcast(data + offset, count, MPI_BYTE, root, comm_, add({false, 0, no_peer})), "MPI_Ibcast");
  });
}

void Messages::barrier() { check(MPI_Ibarrier(comm_, add({false, 0, no_peer})), "MPI_Ibarrier"); }

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
    if (!expected_[i].received) continue;
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

std::vector<int> Messages::awaited_ranks() const {
  std::vector<int> peers;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    if (expected_[i].peer == no_peer || MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      continue;
    }
    if (done == 0) peers.push_back(expected_[i].peer);
  }
  std::vector<int> ranks(peers.size());
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  check(MPI_Comm_group(comm_, &group), "MPI_Comm_group");
  check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check(MPI_Group_translate_ranks(group, static_cast<int>(peers.size()), peers.data(), world, ranks.data()),
        "MPI_Group_translate_ranks");
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace trireme::mpi
