#include "src/checkpoint/file_copies.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <vector>

namespace trireme::checkpoint {
namespace {

/// Copies of one turn of this rank, of which it sends and receives at most one.
struct Turn {
  const FileCopy* sent = nullptr;
  const FileCopy* received = nullptr;
};

/// Divides the copies of this rank into turns. All ranks compute the same turns, so their messages meet.
std::map<int, Turn> turns_of(int rank, std::span<const FileCopy> copies) {
  std::map<int, int> sends, receives;  // first free turn of a rank
  std::map<int, Turn> turns;
  for (const FileCopy& copy : copies) {
    const int turn = std::max(sends[copy.from], receives[copy.to]);
    sends[copy.from] = receives[copy.to] = turn + 1;
    if (copy.from == rank) turns[turn].sent = &copy;
    if (copy.to == rank) turns[turn].received = &copy;
  }
  return turns;
}

/// Blocks of a file, of which each has a buffer.
class Blocks {
 public:
  explicit Blocks(const FileEntry& file) : left_(static_cast<std::size_t>(file.size_bytes)) {}
  /// Moves to the next block; it has no bytes after the last.
  std::span<std::byte> next() {
    memory_.resize(std::min(left_, copied_block_bytes));
    offset_ += static_cast<std::int64_t>(size_);
    size_ = memory_.size();
    left_ -= size_;
    return memory_;
  }
  std::int64_t offset() const { return offset_; }

 private:
  std::size_t left_;
  std::size_t size_ = 0;
  std::int64_t offset_ = 0;
  std::vector<std::byte> memory_;
};

Transfer transfer_of(Transfer::Direction direction, int peer, std::span<std::byte> bytes) {
  return {direction, peer,
          TensorView(reinterpret_cast<std::uint8_t*>(bytes.data()), {static_cast<std::int64_t>(bytes.size())})};
}

/// Copies one file of this rank each way. After a failure it goes on with undefined bytes, since the peers wait for
/// them, and returns the failure.
std::exception_ptr take_turn(Communicator& world, Store& store, StepReader& step, const Turn& turn) {
  std::exception_ptr failure;
  const auto attempt = [&](const auto& action) {
    if (failure) return;
    try {
      action();
    } catch (...) {
      failure = std::current_exception();
    }
  };
  const auto blocks_of = [&](const FileCopy* copy) {
    return Blocks(copy != nullptr ? step.manifest().files[copy->file] : FileEntry{});
  };
  Blocks out = blocks_of(turn.sent), in = blocks_of(turn.received);
  std::unique_ptr<FileSink> sink;
  if (turn.received != nullptr) {
    const Manifest& manifest = step.manifest();
    attempt([&] { sink = store.add_file(store.step_name(manifest.step), manifest.files[turn.received->file]); });
  }
  ImmediateStream host;
  for (;;) {
    const std::span<std::byte> sent = out.next(), received = in.next();
    if (sent.empty() && received.empty()) break;
    std::vector<Transfer> transfers;
    if (!sent.empty()) {
      attempt([&] { step.read(turn.sent->file, out.offset(), sent); });
      transfers.push_back(transfer_of(Transfer::Direction::send, turn.sent->to, sent));
    }
    if (!received.empty()) {
      transfers.push_back(transfer_of(Transfer::Direction::receive, turn.received->from, received));
    }
    world.grouped_exchange(host, transfers).wait(host);
    if (!received.empty()) attempt([&] { sink->append(received); });
  }
  if (turn.received != nullptr) attempt([&] { sink->finish(); });
  return failure;
}

}  // namespace

void for_each_block(StepReader& step, std::size_t file, const std::function<void(std::span<const std::byte>)>& use) {
  Blocks blocks(step.manifest().files[file]);
  for (std::span<std::byte> block = blocks.next(); !block.empty(); block = blocks.next()) {
    step.read(file, blocks.offset(), block);
    use(block);
  }
}

void copy_files(Communicator& world, Store& store, StepReader& step, std::span<const FileCopy> copies) {
  std::exception_ptr failure;
  for (const auto& [number, turn] : turns_of(world.rank(), copies)) {
    const std::exception_ptr own = take_turn(world, store, step, turn);
    if (!failure) failure = own;
  }
  collectively(world, [&] {
    if (failure) std::rethrow_exception(failure);
  });
}

}  // namespace trireme::checkpoint
