#include "io/metrics/trace_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/mpi_world.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::io {
namespace {

TEST(TraceFile, HoldsTheSpansOfEveryRank) {
  Communicator& world = test::world();
  const test::TemporaryDirectory directory;
  const std::string path = broadcast_text(world, directory.path() + "/trace.json", 0);
  TraceRecorder recorder;
  for (int i = 0; i <= world.rank(); ++i) recorder.add({"forward", "pipeline", 1, i, 10.0 * i, 10.0 * i + 4.5});
  recorder.add({"optimizer", "update", -1, -1, 100, 101});
  TraceFile file(path, world);
  file.write(recorder, "rank " + std::to_string(world.rank()));
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
      EXPECT_EQ(event["ts"], 10.0 * event["args"]["micro_batch"].get<int>());
      EXPECT_EQ(event["dur"], 4.5);
    } else {
      EXPECT_FALSE(event.contains("args"));
    }
  }
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(spans[rank], rank + 2);
    EXPECT_TRUE(names.contains("rank " + std::to_string(rank)));
  }
}

TEST(TraceFile, ThatCannotBeCreatedIsAnErrorOnEveryRank) {
  EXPECT_THROW(TraceFile("/nowhere/at/all.json", test::world()), Error);
}

TEST(TraceScope, RecordsNestedSpansInTheOrderOfTheirEnds) {
  TraceRecorder recorder;
  {
    const TraceScope outer(&recorder, "outer", "test");
    const TraceScope inner(&recorder, "inner", "test", 0, 3);
  }
  { const TraceScope nowhere(nullptr, "nothing", "test"); }
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
