// When work has a GPU's multiprocessors, by the model of tests/fakes/timeline.hpp: its rules.
#include <gmock/gmock.h>

#include <algorithm>

#include "cuda/runtime/graph.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::cuda {
namespace {

using fake_cuda::Demand;
using fake_cuda::Span;
using fake_cuda::Timeline;
using testing::HasSubstr;

constexpr int all = fake_cuda::multiprocessors;

const Span& find(const Timeline& timeline, const std::string& name) {
  const auto found = std::ranges::find_if(timeline, [&](const Span& span) { return span.name.starts_with(name); });
  if (found == timeline.end()) throw ShapeError("no work is called " + name);
  return *found;
}

class Multiprocessors : public testing::Test {
 protected:
  void SetUp() override { fake_cuda::reset(); }
  void TearDown() override { fake_cuda::run_all(); }
  void enqueue(CudaStream& stream, const std::string& name, const Demand& demand) {
    fake_cuda::enqueue(
        stream.handle(), name, [] {}, demand);
  }
  /// A collective beside a product of 100 us. Both follow the same work.
  fake_cuda::Trace overlap(int blocks_of_product, double us_before = 10) {
    fake_cuda::start_trace();
    enqueue(compute_, "before", {all, us_before});
    urgent_.wait(*compute_.record());
    enqueue(urgent_, "collective", {16, 50, 1});
    enqueue(compute_, "product", {blocks_of_product, 100});
    return fake_cuda::take_trace();
  }

  std::shared_ptr<Device> device_ = std::make_shared<Device>(DeviceLocation{0, "node7", 0, ""}, LaunchChecks::deferred);
  CudaStream compute_{device_}, urgent_{device_, CudaStream::Priority::high};
};

TEST_F(Multiprocessors, ACollectiveWaitsForAProductThatHasThemAll) {
  const Timeline full = fake_cuda::simulate({overlap(all)})[0];
  EXPECT_EQ(find(full, "collective").waited_us(), 99);
  EXPECT_EQ(find(full, "collective").overlap_us(find(full, "product")), 0);
  const Timeline budget = fake_cuda::simulate({overlap(all - 16)})[0];
  EXPECT_EQ(find(budget, "collective").waited_us(), 0);
  EXPECT_EQ(find(budget, "collective").overlap_us(find(budget, "product")), 50);
}

TEST_F(Multiprocessors, ACollectiveEndsAfterItsPeersHaveBegun) {
  const auto ranks = fake_cuda::simulate({overlap(all - 16), overlap(all - 16, 30)});
  EXPECT_EQ(find(ranks[0], "collective").begin_us, 11);
  for (const Timeline& rank : ranks) EXPECT_EQ(find(rank, "collective").end_us, 81);
}

TEST_F(Multiprocessors, PriorityDecidesAmongWorkThatWaits) {
  fake_cuda::start_trace();
  CudaStream other(device_);
  enqueue(compute_, "first", {all, 10});
  enqueue(other, "second", {all, 10});
  enqueue(urgent_, "urgent", {all, 10});
  const Timeline timeline = fake_cuda::simulate({fake_cuda::take_trace()})[0];
  EXPECT_EQ(find(timeline, "urgent").begin_us, 0);
  EXPECT_EQ(find(timeline, "first").begin_us, 10);
  EXPECT_EQ(find(timeline, "second").begin_us, 20);
}

TEST_F(Multiprocessors, BlocksBeyondTheFreeOnesRunLater) {
  fake_cuda::start_trace();
  enqueue(urgent_, "collective", {16, 150, 1});
  enqueue(compute_, "product", {all, 100});
  const Timeline timeline = fake_cuda::simulate({fake_cuda::take_trace()})[0];
  EXPECT_EQ(find(timeline, "product").end_us, 200) << "16 of its blocks begin when the others end";
}

TEST_F(Multiprocessors, CollectivesThatHoldWhatTheOthersNeedAreNamed) {
  std::vector<fake_cuda::Trace> ranks;
  for (const int rank : {0, 1}) {
    fake_cuda::start_trace();
    for (const int group : {1 + rank, 2 - rank}) {
      CudaStream stream(device_);
      enqueue(stream, "collective " + std::to_string(group), {100, 10, group});
    }
    ranks.push_back(fake_cuda::take_trace());
  }
  EXPECT_THAT(test::message_of<std::logic_error>([&] { fake_cuda::simulate(ranks); }),
              testing::AllOf(HasSubstr("the GPUs hang"), HasSubstr("rank 0: collective 1"), HasSubstr("has 100 of 100"),
                             HasSubstr("rank 1: collective 1"), HasSubstr("has 32 of 100")));
}

TEST_F(Multiprocessors, AGraphTakesTheTimesOfItsWork) {
  const Timeline plain = fake_cuda::simulate({overlap(all - 16)})[0];
  const auto graph = CudaGraph::record(device_, compute_, [&] {
    overlap(all - 16);
    compute_.wait(*urgent_.record());
  });
  fake_cuda::start_trace();
  graph->launch(compute_);
  const Timeline replayed = fake_cuda::simulate({fake_cuda::take_trace()})[0];
  ASSERT_EQ(replayed.size(), plain.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(replayed[i].name, plain[i].name);
    EXPECT_EQ(replayed[i].begin_us, plain[i].begin_us);
    EXPECT_EQ(replayed[i].end_us, plain[i].end_us);
  }
}

}  // namespace
}  // namespace trireme::cuda
