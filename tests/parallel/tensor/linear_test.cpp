// The order in which a column-parallel layer's backward communicates and computes.
#include "src/parallel/tensor/linear.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "src/comm/forwarding_communicator.hpp"
#include "src/comm/self_communicator.hpp"

namespace trireme::parallel {
namespace {

/// Two ranks with the same data, one of them here: writes down what begins and what is waited for.
class WatchedPair final : public ForwardingCommunicator {
 public:
  WatchedPair(Communicator& alone, std::vector<std::string>& events) : ForwardingCommunicator(alone), events_(events) {}
  int size() const override { return 2; }
  Work all_reduce(StreamPoint, TensorView, ReduceOp) override { return begin("sum"); }
  Work reduce_scatter(StreamPoint, ConstTensorView in, TensorView out, ReduceOp) override {
    std::copy_n(in.data(), out.size_bytes(), out.data());
    return begin("sum");
  }
  Work all_gather(StreamPoint, ConstTensorView in, TensorView out) override {
    for (std::size_t i : {0, 1}) std::copy_n(in.data(), in.size_bytes(), out.data() + i * in.size_bytes());
    return begin("gather");
  }
  /// Called at every wait; its text follows that of the event.
  std::function<std::string()> at_wait;

 private:
  class State final : public Work::State {
   public:
    State(WatchedPair& pair, std::string what) : pair_(pair), what_(std::move(what)) {}
    bool done() override { return true; }
    void wait(Stream&) override { pair_.events_.push_back(what_ + " waited for" + pair_.at_wait()); }

   private:
    WatchedPair& pair_;
    std::string what_;
  };
  Work begin(const std::string& what) {
    events_.push_back(what);
    return Work(std::make_unique<State>(*this, what));
  }
  std::vector<std::string>& events_;
};

/// Events in backward, and in the waits for its sums, of a layer of 4 inputs and 6 outputs on 4 rows.
std::vector<std::string> backward_events(bool sequence_parallel, bool overlap, WeightGradient weights,
                                         int row_chunks = 1) {
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  Arena arena(*backend);
  const auto ones = [&](const Shape& shape) {
    const TensorView tensor = arena.allocate(DType::fp64, shape);
    backend->elementwise().fill(backend->compute_stream(), 1, tensor);
    return tensor;
  };
  Parameter weight;
  weight.value = ones({6, 4});
  weight.gradient = ones({6, 4});
  const std::int64_t rows = sequence_parallel ? 2 : 4;
  const TensorView dy = ones({4, 6}), x = ones({rows, 4}), dx = ones({rows, 4});

  std::vector<std::string> events;
  SelfCommunicator alone;
  WatchedPair pair(alone, events);
  pair.at_wait = [&] { return weight.gradient.as<double>()[0] == 1 ? "" : ", dW is there"; };
  Arena workspace(*backend);
  TensorContext context{*backend, pair, workspace, sequence_parallel, overlap};
  context.row_chunks = row_chunks;
  const ColumnParallelLinear layer(context, weight, nullptr);
  ChunkWorks sums = layer.backward_input(dy, x, dx, weights, context.term_of(dx));
  events.push_back("returns");
  sums.wait(backend->compute_stream());
  EXPECT_EQ(dx.as<double>()[0], 6);
  EXPECT_EQ(weight.gradient.as<double>()[0], weights == WeightGradient::now ? 5 : 1);
  return events;
}

using testing::ElementsAre;

TEST(ColumnParallelLinear, HidesItsSumBehindTheGradientOfTheWeight) {
  EXPECT_THAT(backward_events(false, true, WeightGradient::now),
              ElementsAre("sum", "returns", "sum waited for, dW is there"));
}

TEST(ColumnParallelLinear, HidesTheGatheringOfItsInputBehindTheGradientOfTheInput) {
  EXPECT_THAT(backward_events(true, true, WeightGradient::now),
              ElementsAre("gather", "sum", "gather waited for", "returns", "sum waited for, dW is there"));
}

TEST(ColumnParallelLinear, WaitsAtOnceWithoutOverlap) {
  EXPECT_THAT(backward_events(false, false, WeightGradient::now), ElementsAre("sum", "sum waited for", "returns"));
  EXPECT_THAT(backward_events(true, false, WeightGradient::now),
              ElementsAre("gather", "gather waited for", "sum", "sum waited for", "returns"));
}

TEST(ColumnParallelLinear, DefersTheGradientOfTheWeight) {
  EXPECT_THAT(backward_events(true, true, WeightGradient::later), ElementsAre("sum", "returns", "sum waited for"));
}

TEST(ColumnParallelLinear, SumsEachChunkBesideTheProductsOfTheNext) {
  EXPECT_THAT(backward_events(false, true, WeightGradient::later, 2),
              ElementsAre("sum", "sum", "returns", "sum waited for", "sum waited for"));
  EXPECT_THAT(backward_events(true, true, WeightGradient::now, 2),
              ElementsAre("gather", "gather", "sum", "sum", "gather waited for", "gather waited for", "returns",
                          "sum waited for, dW is there", "sum waited for, dW is there"));
  EXPECT_THAT(backward_events(false, false, WeightGradient::later, 2),
              ElementsAre("sum", "sum waited for", "sum", "sum waited for", "returns"));
}

}  // namespace
}  // namespace trireme::parallel
