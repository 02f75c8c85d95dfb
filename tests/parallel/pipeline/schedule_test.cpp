#include "src/parallel/pipeline/schedule.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "src/base/error.hpp"

namespace trireme::parallel {
namespace {

constexpr ScheduleKind one_f_one_b = ScheduleKind::one_forward_one_backward;
constexpr ScheduleKind kinds[] = {ScheduleKind::gpipe, one_f_one_b};
constexpr int depths[] = {1, 2, 3, 4, 8, 16};

const std::vector<Step>& steps_of(const Schedule& schedule, int rank) {
  return schedule.steps[static_cast<std::size_t>(rank)];
}

std::optional<Message> made(const Schedule& schedule, int rank, const Step& step) {
  Message message;
  return message_made(schedule, rank, step, message) ? std::optional(message) : std::nullopt;
}

std::optional<Message> needed(const Schedule& schedule, int rank, const Step& step) {
  Message message;
  return message_needed(schedule, rank, step, message) ? std::optional(message) : std::nullopt;
}

/// The steps of a rank as text: "F0 F1 B0 B1".
std::string text(const std::vector<Step>& steps) {
  std::string line;
  for (const Step& step : steps) {
    line += line.empty() ? "" : " ";
    line += step.kind == StepKind::forward ? "F" : "B";
    line += std::to_string(step.micro_batch);
  }
  return line;
}

/// Micro-batches whose forward is done and whose backward is not, at the most.
int most_in_flight(const std::vector<Step>& steps) {
  int now = 0;
  int most = 0;
  for (const Step& step : steps) {
    now += step.kind == StepKind::forward ? 1 : -1;
    most = std::max(most, now);
  }
  return most;
}

/// Runs all ranks side by side; a step begins when the message it needs is there, a send never blocks. Returns the time
/// at which the last rank ends, with a forward taking 1 and a backward 2, or nothing where the ranks wait for one
/// another for ever.
std::optional<int> simulate(const Schedule& schedule) {
  const auto ranks = static_cast<std::size_t>(schedule.stages);
  std::vector<std::size_t> next(ranks, 0);
  std::vector<int> time(ranks, 0);
  std::map<Message, int> arrived;
  for (bool progress = true; progress;) {
    progress = false;
    for (int rank = 0; rank < schedule.stages; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      while (next[r] < schedule.steps[r].size()) {
        const Step& step = schedule.steps[r][next[r]];
        if (const auto message = needed(schedule, rank, step)) {
          const auto found = arrived.find(*message);
          if (found == arrived.end()) break;
          time[r] = std::max(time[r], found->second);
        }
        time[r] += step.kind == StepKind::forward ? 1 : 2;
        if (const auto message = made(schedule, rank, step)) arrived[*message] = time[r];
        ++next[r];
        progress = true;
      }
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    if (next[r] < schedule.steps[r].size()) return std::nullopt;
  }
  return *std::ranges::max_element(time);
}

/// Calls `check(schedule, kind)` for every kind, depth and number of micro-batches.
template <class Check>
void for_each_schedule(Check&& check) {
  for (const ScheduleKind kind : kinds) {
    for (const int stages : depths) {
      for (int micro_batches = 1; micro_batches <= 64; ++micro_batches) {
        SCOPED_TRACE(testing::Message() << (kind == ScheduleKind::gpipe ? "GPipe" : "1F1B") << " of " << stages
                                        << " stages, " << micro_batches << " micro-batches");
        check(make_schedule(kind, stages, micro_batches), kind);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Schedule, OneForwardOneBackwardOfFourStagesIsThePublishedOne) {
  const Schedule schedule = make_schedule(one_f_one_b, 4, 6);
  EXPECT_EQ(text(schedule.steps[0]), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  EXPECT_EQ(text(schedule.steps[1]), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5");
  EXPECT_EQ(text(schedule.steps[2]), "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5");
  EXPECT_EQ(text(schedule.steps[3]), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
}

TEST(Schedule, FewerMicroBatchesThanStagesOnlyWarmUp) {
  const Schedule schedule = make_schedule(one_f_one_b, 4, 2);
  EXPECT_EQ(text(schedule.steps[0]), "F0 F1 B0 B1");
  EXPECT_EQ(text(schedule.steps[1]), "F0 F1 B0 B1");
  EXPECT_EQ(text(schedule.steps[2]), "F0 F1 B0 B1");
  EXPECT_EQ(text(schedule.steps[3]), "F0 B0 F1 B1");
}

TEST(Schedule, OneStageAlternatesAndSendsNothing) {
  const Schedule schedule = make_schedule(one_f_one_b, 1, 3);
  EXPECT_EQ(text(schedule.steps[0]), "F0 B0 F1 B1 F2 B2");
  for (const Step& step : schedule.steps[0]) {
    EXPECT_FALSE(made(schedule, 0, step));
    EXPECT_FALSE(needed(schedule, 0, step));
  }
}

TEST(Schedule, GPipeDoesAllForwardsFirst) {
  const Schedule schedule = make_schedule(ScheduleKind::gpipe, 3, 3);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(text(steps_of(schedule, rank)), "F0 F1 F2 B0 B1 B2");
}

TEST(Schedule, EveryMicroBatchGoesForwardAndBackwardOnceOnEveryRank) {
  for_each_schedule([](const Schedule& schedule, ScheduleKind) {
    const auto all = static_cast<std::size_t>(schedule.micro_batches);
    for (int rank = 0; rank < schedule.stages; ++rank) {
      std::set<int> forward;
      std::set<int> backward;
      for (const Step& step : steps_of(schedule, rank)) {
        EXPECT_TRUE(step.chunk == 0 && step.micro_batch >= 0 && step.micro_batch < schedule.micro_batches);
        if (step.kind == StepKind::forward) {
          EXPECT_TRUE(forward.insert(step.micro_batch).second);
        } else {
          EXPECT_TRUE(forward.contains(step.micro_batch)) << "backward before forward";
          EXPECT_TRUE(backward.insert(step.micro_batch).second);
        }
      }
      EXPECT_EQ(forward.size(), all);
      EXPECT_EQ(backward.size(), all);
    }
  });
}

TEST(Schedule, EverySendMeetsOneReceive) {
  for_each_schedule([](const Schedule& schedule, ScheduleKind) {
    std::set<Message> sent;
    std::set<Message> received;
    for (int rank = 0; rank < schedule.stages; ++rank) {
      for (const Step& step : steps_of(schedule, rank)) {
        if (const auto message = made(schedule, rank, step)) {
          EXPECT_EQ(message->rank, step.kind == StepKind::forward ? rank + 1 : rank - 1);
          EXPECT_TRUE(sent.insert(*message).second) << "sent twice";
        }
        if (const auto message = needed(schedule, rank, step)) {
          EXPECT_EQ(message->rank, rank);
          EXPECT_TRUE(received.insert(*message).second) << "received twice";
        }
      }
    }
    EXPECT_EQ(sent, received);
  });
}

TEST(Schedule, MessagesAreNeededInTheOrderTheyAreSent) {
  for_each_schedule([](const Schedule& schedule, ScheduleKind) {
    for (int rank = 0; rank < schedule.stages; ++rank) {
      for (const bool gradients : {false, true}) {
        std::vector<Message> sent;
        std::vector<Message> wanted;
        for (int peer = 0; peer < schedule.stages; ++peer) {
          for (const Step& step : steps_of(schedule, peer)) {
            const auto out = made(schedule, peer, step);
            if (out && out->rank == rank && out->is_gradient == gradients) sent.push_back(*out);
            const auto in = needed(schedule, peer, step);
            if (in && peer == rank && in->is_gradient == gradients) wanted.push_back(*in);
          }
        }
        EXPECT_EQ(sent, wanted);
      }
    }
  });
}

// With F the time of a forward and B that of a backward both schedules end after (m + p - 1) (F + B): a bubble of
// (p - 1) / m, which is the least a schedule without virtual stages can have.
TEST(Schedule, NeverDeadlocksAndHasTheLeastBubble) {
  for_each_schedule([](const Schedule& schedule, ScheduleKind) {
    const std::optional<int> time = simulate(schedule);
    ASSERT_TRUE(time.has_value()) << "the ranks wait for one another";
    EXPECT_EQ(*time, (schedule.micro_batches + schedule.stages - 1) * 3);
  });
}

TEST(Schedule, KeepsItsBoundOfActivationsInFlight) {
  for_each_schedule([](const Schedule& schedule, ScheduleKind kind) {
    for (int rank = 0; rank < schedule.stages; ++rank) {
      const int bound = kind == ScheduleKind::gpipe ? schedule.micro_batches
                                                    : std::min(schedule.stages - rank, schedule.micro_batches);
      EXPECT_EQ(most_in_flight(steps_of(schedule, rank)), bound);
    }
  });
}

TEST(Schedule, TheSimulatorSeesADeadlock) {
  Schedule schedule = make_schedule(one_f_one_b, 2, 2);
  std::swap(schedule.steps[0][0], schedule.steps[0][2]);  // B0 before the F0 it depends on
  EXPECT_FALSE(simulate(schedule).has_value());
}

TEST(Schedule, EvaluationRunsForwardsOnly) {
  for (const int stages : depths) {
    const Schedule schedule = make_forward_schedule(stages, 3);
    EXPECT_EQ(schedule.steps.size(), static_cast<std::size_t>(stages));
    for (const auto& steps : schedule.steps) EXPECT_EQ(text(steps), "F0 F1 F2");
    EXPECT_EQ(simulate(schedule), 3 + stages - 1);
  }
}

TEST(Schedule, ChunksPassFromTheLastRankToTheNextChunkOfTheFirst) {
  const Schedule schedule{2, 2, 1, {}};
  EXPECT_EQ(made(schedule, 1, {StepKind::forward, 0, 7}), (Message{false, 0, 1, 7}));
  EXPECT_EQ(needed(schedule, 0, {StepKind::forward, 1, 7}), (Message{false, 0, 1, 7}));
  EXPECT_FALSE(made(schedule, 1, {StepKind::forward, 1, 7}));
  EXPECT_EQ(made(schedule, 0, {StepKind::backward, 1, 7}), (Message{true, 1, 0, 7}));
  EXPECT_EQ(needed(schedule, 1, {StepKind::backward_input, 0, 7}), (Message{true, 1, 0, 7}));
  EXPECT_FALSE(made(schedule, 0, {StepKind::backward, 0, 7}));
  EXPECT_FALSE(made(schedule, 0, {StepKind::backward_weight, 1, 7}));
  EXPECT_FALSE(needed(schedule, 0, {StepKind::backward_weight, 1, 7}));
}

TEST(Schedule, RefusesAnEmptyPipeline) {
  EXPECT_THROW(make_schedule(one_f_one_b, 0, 1), ConfigError);
  EXPECT_THROW(make_schedule(one_f_one_b, 1, 0), ConfigError);
  EXPECT_THROW(make_forward_schedule(2, 0), ConfigError);
}

}  // namespace
}  // namespace trireme::parallel
