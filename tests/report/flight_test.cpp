#include "src/report/flight.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <source_location>
#include <string_view>
#include <thread>

#include "src/base/error.hpp"
#include "src/comm/flight_record.hpp"
#include "src/comm/self_communicator.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

/// The file of a record.
class File {
 public:
  FlightRecord record(int rank, int world_size) { return FlightRecord(writer(), rank, world_size); }
  Flight read() const { return parse_flight(text_, "a.txt"); }
  const std::string& text() const { return text_; }

 private:
  FlightRecord::Write writer() {
    return [this](std::string_view line, std::int64_t at) {
      const auto begin = static_cast<std::size_t>(at);
      text_.resize(std::max(text_.size(), begin + line.size()));
      text_.replace(begin, line.size(), line);
    };
  }
  std::string text_;
};

FlightRecord::Call collective(std::int64_t number, std::string_view operation, std::int64_t elements) {
  FlightRecord::Call call;
  call.number = number;
  call.group = "data";
  call.size = 2;
  call.operation = operation;
  call.type = "fp32";
  call.elements = elements;
  return call;
}

TEST(Flight, NamesTheRankThatLacksACall) {
  File files[2];
  FlightRecord records[] = {files[0].record(0, 3), files[1].record(1, 3)};
  for (FlightRecord& record : records) record.add(collective(1, "all-gather", 8));
  EXPECT_THAT(flight_findings(std::vector{files[0].read(), files[1].read()}),
              HasSubstr("every rank has made the same calls"));
  records[1].add(collective(2, "all-reduce", 4096));
  const std::string text = flight_findings(std::vector{files[0].read(), files[1].read()});
  EXPECT_THAT(text, HasSubstr("group data of 2 ranks from rank 0 on: rank 0 on host "));
  EXPECT_THAT(text, HasSubstr("made 1 call, others 2; first missing there: all-reduce of 4096 fp32\n"));
  EXPECT_THAT(text, HasSubstr("no record of rank 2\n"));
  EXPECT_THAT(text, Not(HasSubstr("differ")));
}

TEST(Flight, NamesTheHostOfEachRankBehindOthers) {
  constexpr int size = 12;
  std::vector<Flight> flights;
  for (int rank = 0; rank < size; ++rank) {
    File file;
    FlightRecord record = file.record(rank, size);
    for (std::int64_t i = 1; i <= (rank < size - 1 ? 1 : 2); ++i) record.add(collective(i, "all-reduce", 8));
    flights.push_back(file.read());
    flights.back().host = fmt::format("n{:02}", rank / 2);
  }
  EXPECT_THAT(flight_findings(flights),
              HasSubstr(": ranks 0, 1 on host n00, ranks 2, 3 on host n01, ranks 4, 5 on host n02, ranks 6, 7 on host "
                        "n03, ranks 8, 9 on host n04, rank 10 on host n05 made 1 call, others 2;"));
  for (Flight& flight : flights) flight.host = fmt::format("n{:02}", flight.rank);
  EXPECT_THAT(flight_findings(flights), HasSubstr("rank 7 on host n07 and 3 more hosts made 1 call, others 2;"));
}

TEST(Flight, NamesTheCallsThatDiffer) {
  File files[3];
  FlightRecord records[] = {files[0].record(0, 3), files[1].record(1, 3), files[2].record(2, 3)};
  for (std::int64_t i = 1; i < 600; ++i) {
    for (int rank = 0; rank < 3; ++rank) records[rank].add(collective(i, "all-reduce", i == 550 && rank == 1 ? 7 : 8));
  }
  EXPECT_THAT(
      flight_findings(std::vector{files[0].read(), files[1].read(), files[2].read()}),
      HasSubstr("call 550 is not the same: all-reduce of 7 fp32 on rank 1; all-reduce of 8 fp32 on ranks 0, 2\n"));
}

TEST(Flight, ComparesMessagesWithTheirReceipts) {
  File files[2];
  FlightRecord records[] = {files[0].record(0, 2), files[1].record(1, 2)};
  FlightRecord::Call message;
  message.group = "pipeline";
  message.size = 2;
  message.type = "bf16";
  message.elements = 64;
  for (message.number = 1; message.number <= 2; ++message.number) {
    message.operation = "send";
    message.peer = 1;
    records[0].add(message);
    message.operation = "receive";
    message.peer = 0;
    if (message.number == 1) records[1].add(message);
  }
  EXPECT_THAT(flight_findings(std::vector{files[0].read(), files[1].read()}),
              HasSubstr("messages from rank 0 to rank 1 in group pipeline of 2 ranks from rank 0 on: rank 1 on host "));
}

TEST(Flight, RecordsTheCallsOfACommunicator) {
  File file;
  FlightRecord record = file.record(5, 8);
  ImmediateStream host, other;
  auto previous_line = static_cast<int>(std::source_location::current().line());
  const auto comm = recorded(std::make_unique<SelfCommunicator>("tensor"), {5}, host, record);
  TraceRecorder trace(host, &record, TraceRecorder::Times::none);
  float numbers[4] = {};
  {
    const TraceScope iteration(&trace, "iteration", "iteration");
    comm->all_reduce(host, TensorView(numbers, {4}), ReduceOp::sum).wait(host);
    const TraceScope sums(&trace, "reduce gradients", "communication");
    comm->all_gather(other, ConstTensorView(numbers, {4}), TensorView(numbers, {4})).wait(host);
    std::thread([&] { comm->broadcast(host, TensorView(numbers, {4}), 0).wait(host); }).join();
  }
  comm->barrier();
  const Flight flight = file.read();
  EXPECT_EQ(flight.rank, 5);
  EXPECT_EQ(flight.world_size, 8);
  ASSERT_EQ(flight.calls.size(), 4);
  EXPECT_EQ(flight.calls[0].operation, "all-reduce");
  EXPECT_EQ(flight.calls[1].operation, "all-gather");
  EXPECT_EQ(flight.calls[1].elements, 4);
  EXPECT_EQ(flight.calls[1].first_rank, 5);
  EXPECT_EQ(flight.calls[3].operation, "barrier");
  EXPECT_EQ(flight.calls[3].of_channel, 4);
  const char* places[][2] = {
      {"compute", "iteration"}, {"host", "iteration/reduce gradients"}, {"compute", "-"}, {"-", "-"}};
  const auto last_line = static_cast<int>(std::source_location::current().line());
  for (std::size_t i = 0; i < 4; ++i) {
    constexpr std::string_view file = "tests/report/flight_test.cpp:";
    ASSERT_TRUE(flight.calls[i].line.starts_with(file)) << flight.calls[i].line;
    const int line = std::stoi(flight.calls[i].line.substr(file.size()));
    EXPECT_GE(line, previous_line);
    EXPECT_LE(line, last_line);
    previous_line = line;
    EXPECT_THAT(flight.calls[i].function, HasSubstr("RecordsTheCallsOfACommunicator")) << i;
    EXPECT_EQ(flight.calls[i].stream, places[i][0]) << i;
    EXPECT_EQ(flight.calls[i].place, places[i][1]) << i;
  }
}

TEST(Flight, NamesTheStreamAndThePlaceOfCalls) {
  File files[2];
  FlightRecord records[] = {files[0].record(0, 2), files[1].record(1, 2)};
  for (int rank = 0; rank < 2; ++rank) {
    records[rank].begin_range("iteration");
    records[rank].begin_range("optimizer");
    FlightRecord::Call call = collective(1, "all-gather", rank == 0 ? 8 : 9);
    call.stream = "compute";
    call.function = "model::Embedding::forward";
    call.line = "src/model/embedding.cpp:7";
    records[rank].add(call);
    records[rank].end_range();
  }
  records[1].add(collective(2, "all-reduce", 4096));
  const std::string text = flight_findings(std::vector{files[0].read(), files[1].read()});
  EXPECT_THAT(text, HasSubstr("all-gather of 8 fp32 in group data, after the compute stream in "
                              "iteration/optimizer by model::Embedding::forward (src/model/embedding.cpp:7)\n"));
  EXPECT_THAT(text, HasSubstr("all-gather of 8 fp32 on rank 0 in iteration/optimizer by model::"
                              "Embedding::forward (src/model/embedding.cpp:7); all-gather of 9 fp32 on rank 1"));
  EXPECT_THAT(text, HasSubstr("first missing there: all-reduce of 4096 fp32 in iteration\n"));
}

TEST(Flight, RefusesAndLeavesOutWhatIsNoRecord) {
  EXPECT_THAT(test::message_of<DataError>([] { parse_flight("", "a.txt"); }),
              HasSubstr("a.txt is not a flight record"));
  EXPECT_THAT(test::message_of<DataError>(
                  [] { parse_flight("flight record 4 of rank 9 of 2 on host n, process 1, since x\n", "a.txt"); }),
              HasSubstr("a.txt is not a flight record"));
  File file;
  FlightRecord record = file.record(0, 1);
  for (int i = 1; i < 4; ++i) record.add(collective(i, "all-reduce", 8));
  EXPECT_EQ(parse_flight(std::string_view(file.text()).substr(0, file.text().size() - 280), "a.txt").calls.size(), 2);
}

}  // namespace
}  // namespace trireme::report
