#include "io/metrics/trace_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

/// Stream of a device, whose clock is not the host's: its events have the times that the test sets.
class DeviceStream final : public Stream {
 public:
  std::unique_ptr<Event> record() override { return ImmediateStream().record(); }
  std::unique_ptr<TimedEvent> record_time() override { return std::make_unique<Moment>(now_ms); }
  void wait(const Event&) override {}
  void synchronize() override {}
  double now_ms = 5000;

 private:
  struct Moment final : TimedEvent {
    explicit Moment(double at) : ms(at) {}
    double ms_since(const TimedEvent& earlier) const override { return ms - dynamic_cast<const Moment&>(earlier).ms; }
    double ms;
  };
};

TEST(TraceFile, HoldsTheSpansOfEveryRank) {
  Communicator& world = test::world();
  const test::TemporaryDirectory directory;
  const std::string path = broadcast_text(world, directory.path() + "/trace.json", 0);
  DeviceStream stream;
  TraceRecorder recorder(stream);
  TraceFile file(path, world, recorder);
  for (int i = 0; i <= world.rank(); ++i) {
    const TraceScope scope(&recorder, "forward", "pipeline", 1, i);
    stream.now_ms += 4.5;
  }
  {
    const TraceScope scope(&recorder, "optimizer", "update");
    stream.now_ms += 1;
  }
  file.write("rank " + std::to_string(world.rank()));
  if (world.rank() != 0) return;

  std::ifstream in(path);
  const nlohmann::json trace = nlohmann::json::parse(in);
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
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(spans[rank], rank + 2);
    EXPECT_TRUE(names.contains("rank " + std::to_string(rank)));
  }
}

// Each span begins after the end of the one before, which was another rank's. The clocks differ by more than the time
// of a barrier.
TEST(TraceFile, PutsAllRanksOnOneClock) {
  Communicator& world = test::world();
  const test::TemporaryDirectory directory;
  const std::string path = broadcast_text(world, directory.path() + "/trace.json", 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(60 * world.rank()));
  ImmediateStream stream;
  TraceRecorder recorder(stream);
  TraceFile file(path, world, recorder);
  const int turns = 2 * world.size();
  for (int turn = 0; turn < turns; ++turn) {
    world.barrier();
    if (turn % world.size() == world.rank()) {
      const TraceScope scope(&recorder, "turn", "test", 0, turn);
    }
  }
  const double error_us = file.write("process");
  if (world.rank() != 0) return;
  std::ifstream in(path);
  const nlohmann::json trace = nlohmann::json::parse(in);
  EXPECT_NEAR(trace["otherData"]["clock_error_us"].get<double>(), error_us, 0.1);
  std::map<int, std::pair<double, double>> times;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "X")
      times[event["args"]["micro_batch"]] = {event["ts"], event["ts"].get<double>() + event["dur"].get<double>()};
  }
  ASSERT_EQ(std::ssize(times), turns);
  for (int turn = 1; turn < turns; ++turn) EXPECT_LE(times[turn - 1].second, times[turn].first + 2 * error_us) << turn;
}

TEST(TraceFile, ReplacesAnEarlierOneWhenItIsComplete) {
  Communicator& world = test::world();
  const test::TemporaryDirectory directory;
  const std::string path = broadcast_text(world, directory.path() + "/trace.json", 0);
  const auto text = [&] {
    std::ifstream in(path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  if (world.rank() == 0) std::ofstream(path) << "an earlier one";
  ImmediateStream stream;
  TraceRecorder recorder(stream);
  TraceFile file(path, world, recorder);
  if (world.rank() == 0) {
    EXPECT_EQ(text(), "an earlier one");
  }
  file.write("process");
  if (world.rank() == 0) {
    EXPECT_TRUE(nlohmann::json::accept(text()));
  }
}

TEST(TraceFile, ThatCannotBeCreatedIsAnErrorOnEveryRank) {
  ImmediateStream stream;
  TraceRecorder recorder(stream);
  EXPECT_THROW(TraceFile("/nowhere/at/all.json", test::world(), recorder), Error);
}

TEST(TraceScope, RecordsNestedSpansInTheOrderOfTheirEnds) {
  ImmediateStream stream;
  TraceRecorder recorder(stream);
  {
    const TraceScope outer(&recorder, "outer", "test");
    const TraceScope inner(&recorder, "inner", "test", 0, 3);
  }
  { const TraceScope nowhere(nullptr, "nothing", "test"); }
  EXPECT_EQ(recorder.spans().size(), 0u);
  recorder.resolve();
  ASSERT_EQ(recorder.spans().size(), 2u);
  const TraceSpan& inner = recorder.spans()[0];
  const TraceSpan& outer = recorder.spans()[1];
  EXPECT_STREQ(inner.name, "inner");
  EXPECT_EQ(inner.micro_batch, 3);
  EXPECT_LE(outer.start_us, inner.start_us);
  EXPECT_LE(inner.start_us, inner.end_us);
  EXPECT_LE(inner.end_us, outer.end_us);
}

}  // namespace
}  // namespace trireme::io
