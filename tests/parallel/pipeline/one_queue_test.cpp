// Streams of a GPU may share a queue, from which work begins in the order in which the host enqueued it: work that
// cannot begin yet blocks all later work. Here all streams of a rank share one queue. More queues only block less.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "src/backend/backend.hpp"
#include "src/comm/forwarding_communicator.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/parallel/pipeline/executor.hpp"

namespace trireme::parallel {
namespace {

/// Messages of a rank, and the entries of its queue or queues in the order in which the host enqueued them. Computing
/// is left out: it depends on earlier entries of the compute stream alone.
struct Enqueued {
  struct Message {
    int peer;
    bool sends;
    bool begun = false;
    const Message* before = nullptr;   // on the same stream: one for each peer and direction
    const Message* partner = nullptr;  // at the peer
    bool is_complete() const { return begun && partner->begun; }
  };
  struct Entry {
    std::size_t message;
    bool is_wait;  // the compute stream waits for the message's end; else the message begins
    std::size_t waits_before;
  };
  std::vector<Message> messages;
  std::vector<Entry> entries;
  std::size_t waits = 0;

  void add(std::size_t message, bool is_wait) {
    entries.push_back({message, is_wait, waits});
    waits += is_wait ? 1 : 0;
  }
};

/// Puts messages into the queue as NcclCommunicator does, and moves nothing.
class QueueingCommunicator final : public ForwardingCommunicator {
 public:
  QueueingCommunicator(Communicator& inner, int rank, int size, Enqueued& queue)
      : ForwardingCommunicator(inner), rank_(rank), size_(size), queue_(queue) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::vector<Work> exchange(StreamPoint, std::span<const Transfer> transfers) override {
    std::vector<Work> works(transfers.size());
    for (const bool sends : {true, false}) {
      for (std::size_t i = 0; i < transfers.size(); ++i) {
        if (sends != (transfers[i].direction == Transfer::Direction::send)) continue;
        queue_.add(queue_.messages.size(), false);
        works[i] = Work(std::make_unique<State>(queue_, queue_.messages.size()));
        queue_.messages.push_back({transfers[i].peer, sends});
      }
    }
    return works;
  }

 private:
  class State final : public Work::State {
   public:
    State(Enqueued& queue, std::size_t message) : queue_(queue), message_(message) {}
    bool done() override { return true; }
    void wait(Stream&) override { queue_.add(message_, true); }

   private:
    Enqueued& queue_;
    std::size_t message_;
  };
  int rank_;
  int size_;
  Enqueued& queue_;
};

class EmptyStage final : public Stage {
 public:
  EmptyStage(int rank, int stages, int chunks) : rank_(rank), stages_(stages), chunks_(chunks) {}
  DType boundary_dtype() const override { return DType::fp32; }
  Shape boundary_shape(int) const override { return {1}; }
  bool is_first(int chunk) const override { return rank_ == 0 && chunk == 0; }
  bool is_last(int chunk) const override { return rank_ + 1 == stages_ && chunk + 1 == chunks_; }
  void forward(int, int, ConstTensorView, TensorView) override {}
  void backward_input(int, int, ConstTensorView, TensorView) override {}
  void backward_weight(int, int) override {}

 private:
  int rank_, stages_, chunks_;
};

class OneQueue : public testing::Test {
 protected:
  enum class Sharing {
    all,
    all_but_sends,
    all_but_receives
  };  // messages in the first queue; the others are in a second

  std::vector<Enqueued> enqueue(const Schedule& schedule, bool overlap) {
    std::vector<Enqueued> ranks(static_cast<std::size_t>(schedule.stages));
    for (int rank = 0; rank < schedule.stages; ++rank) {
      QueueingCommunicator group(self_, rank, schedule.stages, ranks[static_cast<std::size_t>(rank)]);
      EmptyStage stage(rank, schedule.stages, schedule.chunks);
      PipelineExecutor(*backend_, group, stage, {.overlap = overlap}).run(schedule);
    }
    return ranks;
  }

  static void link(std::vector<Enqueued>& all) {
    std::map<std::pair<int, int>, std::vector<Enqueued::Message*>> sent, received;  // by sender and receiver
    for (int rank = 0; rank < static_cast<int>(all.size()); ++rank) {
      for (Enqueued::Message& message : all[static_cast<std::size_t>(rank)].messages) {
        auto& stream = message.sends ? sent[{rank, message.peer}] : received[{message.peer, rank}];
        message.before = stream.empty() ? nullptr : stream.back();
        stream.push_back(&message);
      }
    }
    for (const auto& [ranks, stream] : sent) {
      const std::vector<Enqueued::Message*>& others = received[ranks];
      ASSERT_EQ(stream.size(), others.size());
      for (std::size_t i = 0; i < stream.size(); ++i) {
        stream[i]->partner = others[i];
        others[i]->partner = stream[i];
      }
    }
  }

  /// Executes the work of all ranks as far as possible. Returns whether none is left.
  static bool run_empty(std::vector<Enqueued>& ranks, Sharing sharing) {
    std::vector<std::array<std::deque<Enqueued::Entry>, 2>> queues(ranks.size());
    std::vector<std::size_t> waits_done(ranks.size(), 0);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (const Enqueued::Entry& entry : ranks[rank].entries) {
        const bool sends = ranks[rank].messages[entry.message].sends;
        const bool alone =
            !entry.is_wait && (sends ? sharing == Sharing::all_but_sends : sharing == Sharing::all_but_receives);
        queues[rank][alone].push_back(entry);
      }
    }
    for (bool moved = true; std::exchange(moved, false);) {
      for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
        for (std::deque<Enqueued::Entry>& queue : queues[rank]) {
          for (; !queue.empty(); queue.pop_front(), moved = true) {
            const Enqueued::Entry& entry = queue.front();
            Enqueued::Message& message = ranks[rank].messages[entry.message];
            const Enqueued::Message* const awaited = entry.is_wait ? &message : message.before;
            if (waits_done[rank] < entry.waits_before || (awaited != nullptr && !awaited->is_complete())) break;
            message.begun = true;
            waits_done[rank] += entry.is_wait ? 1 : 0;
          }
        }
      }
    }
    return std::ranges::all_of(queues, [](const auto& both) { return both[0].empty() && both[1].empty(); });
  }

  void expect_to_end(const Schedule& schedule, bool overlap, Sharing sharing) {
    SCOPED_TRACE(testing::Message() << schedule.stages << " stages, " << schedule.chunks << " chunks, "
                                    << schedule.micro_batches << " micro-batches"
                                    << (overlap ? ", receives ahead" : ""));
    std::vector<Enqueued> ranks = enqueue(schedule, overlap);
    link(ranks);
    EXPECT_TRUE(run_empty(ranks, sharing));
  }

  std::unique_ptr<Backend> backend_ = make_backend(BackendChoice::cpu, 1);
  SelfCommunicator self_{"pipeline"};
};

TEST_F(OneQueue, NoScheduleDeadlocks) {
  for (const bool overlap : {false, true}) {
    for (const int p : {2, 3, 4, 7}) {
      for (const int m : {1, 2, 3, 4, 7, 16}) {
        for (const ScheduleKind kind :
             {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward, ScheduleKind::zero_bubble}) {
          SCOPED_TRACE(name_of(kind));
          expect_to_end(make_schedule(kind, p, m), overlap, Sharing::all);
        }
        for (const int chunks : {1, 2, 3}) expect_to_end(make_forward_schedule(p, m, chunks), overlap, Sharing::all);
        for (const int chunks : {2, 3}) {
          const Schedule interleaved = make_schedule(ScheduleKind::interleaved, p, m, chunks);
          if (p > 2 || overlap) {
            expect_to_end(interleaved, overlap, Sharing::all);
            continue;
          }
          // Each of two ranks may send twice before it posts a receive, which takes a second queue.
          expect_to_end(interleaved, overlap, Sharing::all_but_sends);
          expect_to_end(interleaved, overlap, Sharing::all_but_receives);
        }
      }
    }
  }
}

}  // namespace
}  // namespace trireme::parallel
