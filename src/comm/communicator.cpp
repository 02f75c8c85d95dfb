#include "src/comm/communicator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <sstream>
#include <utility>

#include "src/base/hash.hpp"
#include "src/comm/host_collectives.hpp"

namespace trireme {

namespace {

/// Digest of a text as two numbers, for comparison by a collective.
using DigestWords = std::array<std::int64_t, 2>;

DigestWords digest_words(const std::string& text) {
  const std::string hex = digest(text.data(), text.size());
  const auto word = [&](std::size_t begin) {
    return static_cast<std::int64_t>(std::stoull(hex.substr(begin, 16), nullptr, 16));
  };
  return {word(0), word(16)};
}

/// Communications that are complete together.
class AllOf final : public Work::State {
 public:
  explicit AllOf(std::vector<Work> works) : works_(std::move(works)) {}
  bool done() override {
    return std::ranges::all_of(works_, [](Work& work) { return work.done(); });
  }
  void wait(Stream& stream) override {
    for (Work& work : works_) work.wait(stream);
  }

 private:
  std::vector<Work> works_;
};

/// Returns the first line in which `other` differs from `mine`, for both.
std::string first_difference(const std::string& mine, const std::string& other) {
  std::istringstream a(mine);
  std::istringstream b(other);
  std::string line_a;
  std::string line_b;
  for (int number = 1;; ++number) {
    const bool more_a = static_cast<bool>(std::getline(a, line_a));
    const bool more_b = static_cast<bool>(std::getline(b, line_b));
    if (!more_a && !more_b) return "the end of the text";
    if (more_a && more_b && line_a == line_b) continue;
    return fmt::format("line {}: \"{}\" against \"{}\"", number, more_a ? line_a : "", more_b ? line_b : "");
  }
}

}  // namespace

Work& Work::operator=(Work&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Work::~Work() {
  // While an error unwinds this rank, the others may never reach the same point. Hence no wait; the state ends its own
  // operations.
  if (!state_ || std::uncaught_exceptions() > 0) return;
  ImmediateStream host;
  try {
    state_->wait(host);
  } catch (...) {
    // Communication errors reach the caller that waits for the result; during unwinding there is none.
  }
}

void Work::wait(Stream& stream) {
  if (!state_) return;
  const std::unique_ptr<State> state = std::move(state_);
  state->wait(stream);
}

std::vector<std::string> all_gather_text(Communicator& comm, const std::string& text, const Caller& caller) {
  const std::vector<std::int64_t> sizes = all_gather_number(comm, static_cast<std::int64_t>(text.size()), caller);
  const std::size_t ranks = sizes.size();
  // Padded to the longest, for one all-gather of equal shards.
  const std::int64_t max_size = *std::ranges::max_element(sizes);
  if (max_size == 0) return std::vector<std::string>(ranks);
  std::vector<std::uint8_t> padded(static_cast<std::size_t>(max_size));
  std::memcpy(padded.data(), text.data(), text.size());
  const std::vector<std::uint8_t> all = all_gather_numbers<std::uint8_t>(comm, padded, caller);
  std::vector<std::string> texts(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    texts[r].assign(reinterpret_cast<const char*>(all.data()) + r * padded.size(), static_cast<std::size_t>(sizes[r]));
  }
  return texts;
}

std::vector<std::string> gather_text(Communicator& comm, const std::string& text, int root, const Caller& caller) {
  ImmediateStream host;
  const auto view_of = [](std::string& bytes) {
    return TensorView(reinterpret_cast<std::uint8_t*>(bytes.data()), {static_cast<std::int64_t>(bytes.size())});
  };
  const std::vector<std::int64_t> sizes = all_gather_number(comm, static_cast<std::int64_t>(text.size()), caller);
  const std::size_t ranks = sizes.size();
  std::string mine = text;
  std::vector<std::string> texts;
  std::vector<Transfer> transfers;
  if (comm.rank() == root) {
    texts.resize(ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
      texts[r].resize(static_cast<std::size_t>(sizes[r]));
      const int peer = static_cast<int>(r);
      if (peer != root && sizes[r] > 0) transfers.push_back({Transfer::Direction::receive, peer, view_of(texts[r])});
    }
    texts[static_cast<std::size_t>(root)] = text;
  } else if (!mine.empty()) {
    transfers.push_back({Transfer::Direction::send, root, view_of(mine)});
  }
  for (Work& work : comm.exchange({host, caller}, transfers)) work.wait(host);
  return texts;
}

Work Communicator::grouped_exchange(StreamPoint stream, std::span<const Transfer> transfers) {
  return Work(std::make_unique<AllOf>(exchange(stream, transfers)));
}

std::vector<std::string> gather_distinct_text(Communicator& comm, const std::string& text, int root,
                                              const Caller& caller) {
  const DigestWords own = digest_words(text);
  const std::vector<std::int64_t> all = all_gather_numbers<std::int64_t>(comm, own, caller);
  const bool is_first = std::ranges::search(all, own).begin() - all.begin() == 2 * comm.rank();
  std::vector<std::string> texts = gather_text(comm, is_first ? text : "", root, caller);
  std::erase(texts, "");
  return texts;
}

std::string broadcast_text(Communicator& comm, const std::string& text, int root, const Caller& caller) {
  ImmediateStream host;
  std::int64_t size = static_cast<std::int64_t>(text.size());
  comm.broadcast({host, caller}, TensorView(&size, {1}), root).wait(host);
  std::string result = comm.rank() == root ? text : std::string(static_cast<std::size_t>(size), '\0');
  if (size > 0) {
    comm.broadcast({host, caller}, TensorView(reinterpret_cast<std::uint8_t*>(result.data()), {size}), root).wait(host);
  }
  return result;
}

void collectively(Communicator& comm, const std::function<void()>& function, const Caller& caller) {
  if (comm.size() == 1) return function();
  std::string report;  // "<exit code> <message>", empty on success
  try {
    function();
  } catch (const HungError&) {
    throw;  // the ranks that do not answer would not answer the report either
  } catch (const Error& error) {
    report = std::to_string(static_cast<int>(error.exit_code())) + " " + error.what();
  } catch (const std::exception& error) {
    report = std::to_string(static_cast<int>(ExitCode::environment)) + " " + error.what();
  }
  // The first failed rank, counted from the end so the maximum finds it; 0 if none.
  const std::int64_t first =
      all_reduce_number<std::int64_t>(comm, report.empty() ? 0 : comm.size() - comm.rank(), ReduceOp::max, caller);
  if (first == 0) return;
  const int rank = comm.size() - static_cast<int>(first);
  report = broadcast_text(comm, report, rank, caller);
  const std::size_t space = report.find(' ');
  throw CollectiveError(static_cast<ExitCode>(std::stoi(report.substr(0, space))),
                        (rank == 0 ? "" : "rank " + std::to_string(rank) + ": ") + report.substr(space + 1));
}

void check_same_everywhere(Communicator& comm, const std::string& what, const std::string& text, const Caller& caller) {
  // The minimum digest is the complement of the maximum complement. All are equal if it equals the maximum.
  const DigestWords own = digest_words(text);
  std::array<std::int64_t, 4> extremes = {own[0], ~own[0], own[1], ~own[1]};
  all_reduce_numbers(comm, extremes, ReduceOp::max, caller);
  if (extremes[0] == ~extremes[1] && extremes[2] == ~extremes[3]) return;
  const std::vector<std::string> digests = all_gather_text(comm, digest(text.data(), text.size()), caller);
  std::string different;
  int first = 0;
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (digests[static_cast<std::size_t>(rank)] == digests[0]) continue;
    if (different.empty()) first = rank;
    different += (different.empty() ? "" : ", ") + std::to_string(rank);
  }
  const std::string of_rank_0 = broadcast_text(comm, text, 0, caller);
  const std::string of_first = broadcast_text(comm, text, first, caller);
  throw CollectiveError(
      ExitCode::usage,
      fmt::format("{} differs between ranks: not the same as on rank 0 on rank(s) {} of {}. First difference, rank 0 "
                  "against rank {}: {}. Start every rank with the same program, options, files and environment",
                  what, different, comm.size(), first, first_difference(of_rank_0, of_first)));
}

}  // namespace trireme
