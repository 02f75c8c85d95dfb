// Invariants of every schedule, of many depths, numbers of chunks and of micro-batches.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "src/parallel/pipeline/schedule.hpp"

namespace trireme::parallel {
namespace {

constexpr int depths[] = {1, 2, 3, 4, 8, 16};

/// Numbers of micro-batches: all up to twice the greatest depth, where the steady state lasts, and a few more.
std::vector<int> micro_batch_counts() {
  std::vector<int> counts(33);
  std::iota(counts.begin(), counts.end(), 1);
  counts.insert(counts.end(), {47, 48, 64});
  return counts;
}

const std::vector<Step>& steps_of(const Schedule& schedule, int rank) {
  return schedule.steps[static_cast<std::size_t>(rank)];
}

enum class Sends {
  buffered,   ///< a send is over at once
  rendezvous  ///< a send is over when its receive is posted, and must be over before the next one to the same rank
};

/// Ranks that run their steps, one after another. As in the executor, a step's receive is posted after the step before
/// it. The receives of all messages that the peer sends earlier are posted with it.
class Ranks {
 public:
  Ranks(const Schedule& schedule, Sends sends)
      : schedule_(schedule), sends_(sends), ranks_(static_cast<std::size_t>(schedule.stages)) {
    for (int rank = 0; rank < schedule.stages; ++rank) {
      for (const Step& step : steps_of(schedule, rank)) {
        const auto message = message_made(schedule, rank, step);
        if (message && message->rank != rank) sent_in_order_[{message->rank, rank}].push_back(*message);
      }
    }
  }

  /// Returns whether all ranks finish.
  bool finish() {
    for (int rank = 0; rank < schedule_.stages; ++rank) post_receive(rank, 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (int rank = 0; rank < schedule_.stages; ++rank) {
        while (advance(rank)) progress = true;
      }
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].next < schedule_.steps[rank].size()) return false;
    }
    return true;
  }

 private:
  struct Rank {
    std::size_t next = 0;              ///< step
    bool computed = false;             ///< the step is computed, its message not yet sent
    std::map<int, Message> last_sent;  ///< by receiver
  };

  /// Posts the receive of step i, and all before it from the same peer.
  void post_receive(int rank, std::size_t i) {
    const std::vector<Step>& steps = steps_of(schedule_, rank);
    const auto message = i < steps.size() ? message_needed(schedule_, rank, steps[i]) : std::nullopt;
    if (!message || posted_.contains(*message)) return;
    for (int peer = 0; peer < schedule_.stages; ++peer) {
      const std::vector<Message>& list = sent_in_order_[{rank, peer}];
      std::size_t& count = posted_count_[{rank, peer}];
      const auto begin = list.begin() + static_cast<std::ptrdiff_t>(count);
      const auto wanted = static_cast<std::size_t>(std::find(begin, list.end(), *message) - list.begin());
      if (wanted == list.size()) continue;
      while (count <= wanted) posted_.insert(list[count++]);
    }
  }

  /// Computes the next step of a rank, or sends its message. Returns whether either was possible.
  bool advance(int number) {
    Rank& rank = ranks_[static_cast<std::size_t>(number)];
    const std::vector<Step>& steps = steps_of(schedule_, number);
    if (rank.next == steps.size()) return false;
    const Step& step = steps[rank.next];
    if (!rank.computed) {
      const auto message = message_needed(schedule_, number, step);
      if (message && !sent_.contains(*message)) return false;
      rank.computed = true;
      post_receive(number, rank.next + 1);
      return true;
    }
    if (const auto message = message_made(schedule_, number, step)) {
      const auto before = rank.last_sent.find(message->rank);
      if (sends_ == Sends::rendezvous && message->rank != number && before != rank.last_sent.end() &&
          !posted_.contains(before->second)) {
        return false;
      }
      rank.last_sent[message->rank] = *message;
      sent_.insert(*message);
    }
    rank.computed = false;
    ++rank.next;
    return true;
  }

  const Schedule& schedule_;
  Sends sends_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, std::vector<Message>> sent_in_order_;  // by receiver and sender
  std::map<std::pair<int, int>, std::size_t> posted_count_;            // likewise
  std::set<Message> posted_;
  std::set<Message> sent_;
};

bool terminates(const Schedule& schedule, Sends sends) { return Ranks(schedule, sends).finish(); }

/// Calls `check(schedule, kind)` for every kind, depth, number of chunks and of micro-batches; stops at the first
/// fault.
template <class Check>
void for_each_schedule(Check&& check) {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_forward_one_backward,
                                  ScheduleKind::interleaved, ScheduleKind::zero_bubble}) {
    for (const int stages : depths) {
      for (const int chunks : {1, 2, 4, 8}) {
        if (chunks > 1 && kind != ScheduleKind::interleaved) continue;
        for (const int micro_batches : micro_batch_counts()) {
          check(make_schedule(kind, stages, micro_batches, chunks), kind);
          if (!testing::Test::HasFailure()) continue;
          ADD_FAILURE() << name_of(kind) << " of " << stages << " stages, " << chunks << " chunks, " << micro_batches
                        << " micro-batches";
          return;
        }
      }
    }
  }
}

TEST(Schedules, DoEveryStepOnceAndInOrder) {
  for_each_schedule([](const Schedule& schedule, ScheduleKind) {
    const auto all = static_cast<std::size_t>(schedule.micro_batches * schedule.chunks);
    for (int rank = 0; rank < schedule.stages; ++rank) {
      std::set<std::pair<int, int>> forward;
      std::set<std::pair<int, int>> input;
      std::set<std::pair<int, int>> weight;
      const auto later = [](const std::set<std::pair<int, int>>& done, const std::pair<int, int>& key) {
        const auto next = done.upper_bound(key);
        return next != done.end() && next->first == key.first;
      };
      for (const Step& step : steps_of(schedule, rank)) {
        ASSERT_TRUE(step.chunk >= 0 && step.chunk < schedule.chunks && step.micro_batch >= 0 &&
                    step.micro_batch < schedule.micro_batches);
        const std::pair<int, int> key{step.chunk, step.micro_batch};
        // A stage identifies an update's last micro-batch by its number.
        if (step.kind == StepKind::backward || step.kind == StepKind::backward_weight) {
          ASSERT_FALSE(later(weight, key)) << "micro-batches out of order";
        }
        if (step.kind == StepKind::backward || step.kind == StepKind::backward_input) {
          ASSERT_FALSE(later(input, key)) << "micro-batches out of order";
        }
        switch (step.kind) {
          case StepKind::forward:
            ASSERT_TRUE(forward.insert(key).second);
            break;
          case StepKind::backward:
            ASSERT_TRUE(weight.insert(key).second);
            [[fallthrough]];
          case StepKind::backward_input:
            ASSERT_TRUE(forward.contains(key)) << "backward before forward";
            ASSERT_TRUE(input.insert(key).second);
            break;
          case StepKind::backward_weight:
            ASSERT_TRUE(input.contains(key)) << "weights before input";
            ASSERT_TRUE(weight.insert(key).second);
            break;
        }
      }
      ASSERT_EQ(forward.size(), all);
      ASSERT_EQ(input.size(), all);
      ASSERT_EQ(weight.size(), all);
    }
  });
}

TEST(Schedules, EverySendMeetsOneReceive) {
  for_each_schedule([](const Schedule& schedule, ScheduleKind) {
    const int p = schedule.stages;
    std::set<Message> sent;
    std::set<Message> received;
    for (int rank = 0; rank < p; ++rank) {
      for (const Step& step : steps_of(schedule, rank)) {
        if (const auto message = message_made(schedule, rank, step)) {
          ASSERT_EQ(message->rank, (rank + (step.kind == StepKind::forward ? 1 : p - 1)) % p);
          ASSERT_TRUE(sent.insert(*message).second) << "sent twice";
        }
        if (const auto message = message_needed(schedule, rank, step)) {
          ASSERT_EQ(message->rank, rank);
          ASSERT_TRUE(received.insert(*message).second) << "received twice";
        }
      }
    }
    ASSERT_EQ(sent, received);
  });
}

TEST(Schedules, NeedMessagesInTheOrderInWhichTheyAreSent) {
  for_each_schedule([](const Schedule& schedule, ScheduleKind) {
    for (int rank = 0; rank < schedule.stages; ++rank) {
      for (const bool gradients : {false, true}) {
        const int peer = (rank + (gradients ? 1 : schedule.stages - 1)) % schedule.stages;
        std::vector<Message> sent;
        std::vector<Message> wanted;
        for (const Step& step : steps_of(schedule, peer)) {
          const auto out = message_made(schedule, peer, step);
          if (out && out->is_gradient == gradients) sent.push_back(*out);
        }
        for (const Step& step : steps_of(schedule, rank)) {
          const auto in = message_needed(schedule, rank, step);
          if (in && in->is_gradient == gradients) wanted.push_back(*in);
        }
        ASSERT_EQ(sent, wanted);
      }
    }
  });
}

TEST(Schedules, NeverDeadlock) {
  for_each_schedule([](const Schedule& schedule, ScheduleKind) {
    ASSERT_TRUE(terminates(schedule, Sends::buffered));
    ASSERT_TRUE(terminates(schedule, Sends::rendezvous));
  });
}

TEST(Schedules, EvaluationNeverDeadlocks) {
  for (const int stages : depths) {
    for (const int chunks : {1, 2, 4, 8}) {
      for (const int micro_batches : micro_batch_counts()) {
        const Schedule schedule = make_forward_schedule(stages, micro_batches, chunks);
        ASSERT_TRUE(terminates(schedule, Sends::buffered));
        ASSERT_TRUE(terminates(schedule, Sends::rendezvous));
      }
    }
  }
}

TEST(Schedules, ADeadlockIsDetected) {
  Schedule schedule = make_schedule(ScheduleKind::one_forward_one_backward, 2, 2);
  std::swap(schedule.steps[0][0], schedule.steps[0][2]);  // B0 before the F0 it depends on
  EXPECT_FALSE(terminates(schedule, Sends::buffered));
  // Both ranks send much before they look at what the other one sends: that needs buffers.
  const auto forward = [](int chunk, int i) { return Step{StepKind::forward, chunk, i}; };
  const auto backward = [](int chunk, int i) { return Step{StepKind::backward, chunk, i}; };
  schedule = {2, 2, 5, {}};
  schedule.steps.push_back({forward(0, 0), forward(0, 1), forward(1, 0), forward(1, 1), forward(0, 2), forward(0, 3),
                            forward(0, 4), backward(1, 0), backward(1, 1)});
  schedule.steps.push_back({forward(0, 0), forward(0, 1), forward(1, 0), forward(1, 1), backward(1, 0), backward(1, 1),
                            forward(0, 2), forward(0, 3), forward(0, 4)});
  EXPECT_TRUE(terminates(schedule, Sends::buffered));
  EXPECT_FALSE(terminates(schedule, Sends::rendezvous));
}

TEST(Schedules, KeepTheirBoundsOfActivationsInFlight) {
  for_each_schedule([](const Schedule& schedule, ScheduleKind kind) {
    const int p = schedule.stages;
    const int v = schedule.chunks;
    const int m = schedule.micro_batches;
    for (int rank = 0; rank < p; ++rank) {
      const int max_count = max_in_flight(steps_of(schedule, rank));
      switch (kind) {
        case ScheduleKind::gpipe:
          ASSERT_EQ(max_count, m);
          break;
        case ScheduleKind::one_forward_one_backward:
          ASSERT_EQ(max_count, std::min(p - rank, m));
          break;
        case ScheduleKind::interleaved:
          if (m % p == 0) {
            ASSERT_EQ(max_count, std::min(2 * (p - rank - 1) + (v - 1) * p + 1, m * v));
          } else {
            ASSERT_LE(max_count, std::min(2 * (p - rank - 1) + (v - 1) * p + 1, m * v));
          }
          break;
        case ScheduleKind::zero_bubble:
          ASSERT_EQ(max_count, std::min(p, m));
          break;
      }
    }
  });
}

}  // namespace
}  // namespace trireme::parallel
