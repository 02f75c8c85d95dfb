#include "io/metrics/trace_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/fakes/clock_stream.hpp"
#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

class TraceFileTest : public testing::Test {
 protected:
  std::string content() const { return test::content_of(path_); }
  nlohmann::json trace() const { return nlohmann::json::parse(content()); }

  Communicator& world_ = test::world();
  const test::TemporaryDirectory directory_;
  const std::string path_ = broadcast_text(world_, directory_.path() + "/trace.json", 0);
  ImmediateStream stream_;
  TraceRecorder recorder_{stream_};
};

TEST_F(TraceFileTest, HoldsTheSpansOfEveryRank) {
  test::ClockStream stream;
  TraceRecorder recorder(stream);
  TraceFile file(path_, world_, recorder);
  for (int i = 0; i <= world_.rank(); ++i) {
    const TraceScope scope(&recorder, "forward", "pipeline", 1, i);
    stream.now_ms += 4.5;
  }
  {
    const TraceScope scope(&recorder, "optimizer", "update");
    stream.now_ms += 1;
  }
  file.write("rank " + std::to_string(world_.rank()));
  if (world_.rank() != 0) return;

  const nlohmann::json trace = this->trace();
  std::map<int, int> spans;
  std::set<std::string> names;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "M") {
      if (event["name"] == "process_name") names.insert(event["args"]["name"].get<std::string>());
      continue;
    }
    EXPECT_EQ(event["ph"], "X");
    spans[event["pid"].get<int>()]++;
    if (event["name"] == "forward") {
      EXPECT_EQ(event["args"]["chunk"], 1);
      EXPECT_NEAR(event["dur"].get<double>(), 4500, 1);
    } else {
      EXPECT_FALSE(event.contains("args"));
    }
  }
  for (int rank = 0; rank < world_.size(); ++rank) {
    EXPECT_EQ(spans[rank], rank + 2);
    EXPECT_TRUE(names.contains("rank " + std::to_string(rank)));
  }
}

// Each span begins after the end of the one before, which was another rank's. The clocks differ by more than the time
// of a barrier.
TEST_F(TraceFileTest, PutsAllRanksOnOneClock) {
  std::this_thread::sleep_for(std::chrono::milliseconds(60 * world_.rank()));
  TraceFile file(path_, world_, recorder_);
  const int turns = 2 * world_.size();
  for (int turn = 0; turn < turns; ++turn) {
    world_.barrier();
    if (turn % world_.size() == world_.rank()) {
      const TraceScope scope(&recorder_, "turn", "test", 0, turn);
    }
  }
  const double error_us = file.write("process");
  if (world_.rank() != 0) return;
  const nlohmann::json trace = this->trace();
  EXPECT_NEAR(trace["otherData"]["clock_error_us"].get<double>(), error_us, 0.1);
  std::map<int, std::pair<double, double>> times;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X")
      times[event["args"]["micro_batch"]] = {event["ts"], event["ts"].get<double>() + event["dur"].get<double>()};
  }
  ASSERT_EQ(std::ssize(times), turns);
  for (int turn = 1; turn < turns; ++turn) EXPECT_LE(times[turn - 1].second, times[turn].first + 2 * error_us) << turn;
}

TEST_F(TraceFileTest, ReplacesAnEarlierOneWhenItIsComplete) {
  if (world_.rank() == 0) std::ofstream(path_) << "an earlier one";
  TraceFile file(path_, world_, recorder_);
  if (world_.rank() == 0) {
    EXPECT_EQ(content(), "an earlier one");
  }
  file.write("process");
  if (world_.rank() == 0) {
    EXPECT_TRUE(nlohmann::json::accept(content()));
  }
}

}  // namespace
}  // namespace trireme::io
