// Ranks of the fake NCCL in tests of one process. The other ranks of a group do not exist: they contribute the same
// data, accept every message, and send zeros.
#include <cstring>

#include "tests/fakes/nccl/fake_nccl.hpp"

namespace fake_nccl {
namespace {

bool at_once() { return true; }

class LoneRank final : public Ranks {
 public:
  LoneRank(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  /// Groups of one split into groups of one, larger groups into pairs. The key is the rank in a pair.
  std::unique_ptr<Ranks> split(int colour, int key) override {
    if (colour == NCCL_SPLIT_NOCOLOR) return nullptr;
    return size_ == 1 ? std::make_unique<LoneRank>(0, 1) : std::make_unique<LoneRank>(key, 2);
  }
  void close() override {}
  Done all_gather(const std::byte* mine, std::byte* all, std::size_t bytes) override {
    for (int i = 0; i < size_; ++i) std::memcpy(all + static_cast<std::size_t>(i) * bytes, mine, bytes);
    return at_once;
  }
  Done send(const std::byte*, std::size_t, int, Channel) override { return at_once; }
  Done receive(std::byte*, std::size_t, int, Channel) override { return at_once; }

 private:
  int rank_;
  int size_;
};

}  // namespace

std::unique_ptr<Ranks> join_ranks(int rank, int size) { return std::make_unique<LoneRank>(rank, size); }

}  // namespace fake_nccl
