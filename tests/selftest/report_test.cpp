#include "src/selftest/report.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::selftest {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string node_of(int rank) { return "node" + std::to_string(rank / 2); }

/// Results of one check by rank, two ranks a node.
std::vector<Result> series(Kind kind, const std::vector<double>& values, double min_share = 0.8) {
  std::vector<Result> results;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    results.push_back({.check = "check",
                       .kind = kind,
                       .value = values[rank],
                       .unit = "GB/s",
                       .min_share = min_share,
                       .rank = static_cast<int>(rank),
                       .host = node_of(static_cast<int>(rank))});
  }
  return results;
}

TEST(SelftestReport, RankBelowItsShareOfTheMedianIsSlowAndItsNodeNamed) {
  const Report report = judge(series(Kind::rate, {100, 102, 98, 79, 101, 100}));
  EXPECT_THAT(report.bad_nodes, ElementsAre("node1"));
  EXPECT_THAT(report.nodes, ElementsAre("node0", "node1", "node2"));
  EXPECT_EQ(report.results[3].verdict, Verdict::slow);
  EXPECT_EQ(report.results[3].expected, 100);
  const std::string table = table_of(report);
  EXPECT_THAT(table, HasSubstr("79 % of the median's speed"));
  EXPECT_TRUE(table.ends_with("\nnode1\n")) << table;
}

TEST(SelftestReport, LongTimesAreSlow) {
  EXPECT_THAT(judge(series(Kind::time, {10, 10, 10, 10, 13, 10})).bad_nodes, ElementsAre("node2"));
  EXPECT_THAT(judge(series(Kind::time, {10, 10, 10, 10, 1, 10})).bad_nodes, IsEmpty());
}

TEST(SelftestReport, NaNAndZeroAreSlow) {
  EXPECT_THAT(judge(series(Kind::rate, {1, 1, std::nan(""), 1, 0, 1})).bad_nodes, ElementsAre("node1", "node2"));
}

TEST(SelftestReport, OneRankIsComparedWithTheCeilingOfItsDevice) {
  for (const auto& [value, is_slow] : {std::pair{599.0, true}, {601.0, false}}) {
    std::vector<Result> results = series(Kind::share, {value}, 0.6);
    results.front().expected = 1000;
    const Report report = judge(std::move(results));
    EXPECT_EQ(report.results.front().expected, 1000);
    EXPECT_EQ(report.passed(), !is_slow) << table_of(report);
  }
}

TEST(SelftestReport, DifferentVersionsAreShownButExcludeNoNode) {
  std::vector<Result> results = series(Kind::property, {0, 0, 0, 0, 0, 0});
  for (Result& result : results) result.detail = result.rank == 4 ? "driver 2" : "driver 1";
  const Report report = judge(std::move(results));
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.results[4].verdict, Verdict::differs);
  EXPECT_THAT(table_of(report), HasSubstr("driver 2; most ranks: driver 1"));
}

TEST(SelftestReport, TableOfManyNodesFitsAScreen) {
  // 64 nodes of 8 ranks: one has a faulty device, all but the first 40 a slow file system, and one a bad link.
  std::vector<Result> results;
  for (int rank = 0; rank < 512; ++rank) {
    const std::string host = "node" + std::to_string(100 + rank / 8);
    const auto add = [&](Result result) {
      result.rank = rank;
      result.host = host;
      results.push_back(std::move(result));
    };
    for (int item = 0; item < 30; ++item) {
      add({.check = "gemm bf16", .item = std::to_string(item), .passed = rank / 8 != 63, .value = 2.0 * item});
    }
    add({.check = "file read rate", .kind = Kind::rate, .value = rank < 320 ? 100.0 : 1.0, .min_share = 0.2});
    add({.check = "world exchange bandwidth", .kind = Kind::rate, .value = rank == 77 ? 1.0 : 9.0, .min_share = 0.5});
    for (int check = 0; check < 9; ++check) {
      add({.check = "version " + std::to_string(check), .kind = Kind::property, .detail = rank < 300 ? "1" : "2"});
    }
  }
  const Report report = judge(std::move(results));
  EXPECT_EQ(report.nodes.size(), 64u);
  ASSERT_EQ(report.bad_nodes.size(), 1u + 24u) << "node163 has both faults";
  const std::string table = table_of(report);
  EXPECT_LE(std::ranges::count(table, '\n'), 44) << table;
  const std::size_t first = table.find('\n') + 1;
  EXPECT_TRUE(table.substr(first).starts_with("FAILED   gemm bf16"));
  EXPECT_THAT(table.substr(first, table.find('\n', first) - first), HasSubstr("node163      29 (and 239 more on this"));
  EXPECT_THAT(table, HasSubstr("SLOW     world exchange bandwidth"));
  EXPECT_THAT(table, HasSubstr(" more results are not as they should be: <json> lists all\nnode109,node140,node141,"));
  EXPECT_TRUE(table.ends_with(",node163\n")) << table;
}

TEST(SelftestReport, ResultsSurviveSerialisation) {
  std::vector<Result> results = series(Kind::rate, {0.1, std::numeric_limits<double>::infinity(), std::nan("")});
  results[0].detail = std::string("two\nlines\tand a zero\0", 22);
  results[1].passed = false;
  const std::vector<Result> copies = results_of(text_of(results));
  ASSERT_EQ(copies.size(), 3);
  EXPECT_EQ(copies[0].value, 0.1);
  EXPECT_EQ(copies[0].detail, "two lines and a zero");
  EXPECT_EQ(copies[0].kind, Kind::rate);
  EXPECT_FALSE(copies[1].passed);
  EXPECT_TRUE(std::isinf(copies[1].value));
  EXPECT_TRUE(std::isnan(copies[2].value));
  EXPECT_EQ(copies[2].host, "node1");
  EXPECT_TRUE(results_of("").empty());
}

}  // namespace
}  // namespace trireme::selftest
