// Order in which buckets are reduced and gathered, recorded by a group of one.
#include "src/parallel/data/data_parallel.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/base/timer.hpp"
#include "tests/fakes/slow_communicator.hpp"
#include "tests/support/whole_parameter.hpp"

namespace trireme::parallel {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Writes down the sizes of what is reduced.
class Scribe final : public ForwardingCommunicator {
 public:
  Scribe() : ForwardingCommunicator(self_) {}
  Work all_reduce(StreamPoint stream, TensorView data, ReduceOp op) override {
    reduced.push_back(data.numel());
    return ForwardingCommunicator::all_reduce(stream, data, op);
  }
  std::vector<std::int64_t> reduced;

 private:
  SelfCommunicator self_;
};

/// Units 0, 1 and 2 of 64, 32 and 16 elements.
std::vector<Parameter> three_units() {
  std::vector<Parameter> list;
  for (const int numel : {64, 32, 16}) {
    Parameter p = test::whole_parameter(std::to_string(numel), ParameterRole::matrix, {numel});
    p.unit = static_cast<int>(list.size());
    list.push_back(p);
  }
  return list;
}

struct Rig {
  Rig(DType dtype, const DataParallelOptions& options)
      : buffer(*backend, dtype, three_units(), options), data_parallel(*backend, buffer, {{scribe, scribe, scribe}}) {}
  /// A micro-batch's backward of one unit adds 1 to all its gradients.
  void backward(int unit, bool last) {
    add_one(unit);
    data_parallel.after_backward(unit, last);
  }
  void add_one(int unit) {
    data_parallel.before_backward(unit);
    const Parameter& parameter = buffer.parameters()[static_cast<std::size_t>(unit)];
    const Tensor one(*backend, parameter.gradient.dtype(), parameter.gradient.shape());
    backend->elementwise().fill(backend->compute_stream(), 1, one);
    backend->elementwise().add(backend->compute_stream(), one, parameter.gradient);
  }
  std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  Scribe scribe;
  ParameterBuffer buffer;
  DataParallel data_parallel;
};

TEST(DataParallel, ReducesABucketWhenAllItsGroupsHaveSeenTheLastMicroBatch) {
  DataParallelOptions options;
  options.overlap_reduce = true;
  options.bucket_elements = 40;  // units 2 and 1 together, unit 0
  Rig rig(DType::fp32, options);
  rig.data_parallel.begin_step();
  rig.data_parallel.clear_gradients();
  for (const int unit : {2, 1, 0}) rig.backward(unit, false);
  rig.backward(2, true);
  EXPECT_THAT(rig.scribe.reduced, IsEmpty());
  rig.backward(1, true);
  EXPECT_THAT(rig.scribe.reduced, ElementsAre(48));
  rig.backward(0, true);
  EXPECT_THAT(rig.scribe.reduced, ElementsAre(48, 64));
  rig.data_parallel.finish_reduction();
  EXPECT_THAT(rig.scribe.reduced, ElementsAre(48, 64));
}

TEST(DataParallel, ReducesAtTheEndWithoutOverlap) {
  DataParallelOptions options;
  options.bucket_elements = 40;
  Rig rig(DType::fp32, options);
  rig.data_parallel.begin_step();
  rig.data_parallel.clear_gradients();
  for (const int unit : {2, 1, 0}) rig.backward(unit, true);
  EXPECT_THAT(rig.scribe.reduced, IsEmpty());
  rig.data_parallel.finish_reduction();
  EXPECT_THAT(rig.scribe.reduced, ElementsAre(48, 64));
}

TEST(DataParallel, ADeferredGradientIsOverwrittenAndClearedOnlyIfNothingWroteIt) {
  Rig rig(DType::fp32, {});
  const std::vector<Parameter>& p = rig.buffer.parameters();
  const auto expect = [&](std::size_t i, float value) {
    for (std::int64_t j = 0; j < p[i].gradient.numel(); ++j) ASSERT_EQ(p[i].gradient.as<float>()[j], value) << i;
  };
  for (const std::size_t i : {0, 1}) p[i].sum.defer();
  for (int update = 0; update < 2; ++update) {
    for (const Parameter& each : p) rig.backend->elementwise().fill(rig.backend->compute_stream(), 7, each.gradient);
    rig.data_parallel.begin_step();
    rig.data_parallel.clear_gradients();
    expect(1, 7);
    expect(2, 0);
    EXPECT_EQ(p[0].sum.next(), ProductSum::overwrite);
    EXPECT_EQ(p[0].sum.next(), ProductSum::add);
    EXPECT_EQ(p[2].sum.next(), ProductSum::add);
    rig.data_parallel.finish_reduction();
    expect(0, 7);
    expect(1, 0);
    EXPECT_EQ(p[1].sum.next(), ProductSum::add);
  }
}

TEST(DataParallel, ShardsOfGradientsAreReducedAfterEveryMicroBatchOfAGroup) {
  for (const bool overlap : {false, true}) {
    DataParallelOptions options{DataSharding::optimizer_and_gradients};
    options.overlap_reduce = overlap;
    Rig rig(DType::fp32, options);
    EXPECT_FALSE(rig.buffer.gradients());
    rig.data_parallel.begin_step();
    rig.data_parallel.clear_gradients();
    for (const bool last : {false, true}) {
      for (const int unit : {2, 1, 0}) rig.backward(unit, last);
    }
    EXPECT_THAT(rig.scribe.reduced, ElementsAre(16, 32, 64, 16, 32, 64));
    rig.data_parallel.finish_reduction();
    for (std::size_t i = 0; i < 3; ++i) {
      const TensorView sum = rig.buffer.shard_gradient(i);
      for (std::int64_t j = 0; j < sum.numel(); ++j) ASSERT_EQ(sum.as<float>()[j], 2);
    }
  }
}

TEST(DataParallel, AGroupMayPauseWhileAnotherHasItsWorkMemory) {
  DataParallelOptions shards{DataSharding::optimizer_and_gradients}, overlapped = shards, rounded;
  overlapped.overlap_reduce = true;
  rounded.low_precision_gradients = true;
  for (const DataParallelOptions& options : {shards, overlapped, rounded}) {
    Rig rig(DType::bf16, options);
    rig.data_parallel.begin_step();
    rig.data_parallel.clear_gradients();
    for (const int unit : {2, 0, 1}) {
      rig.add_one(unit);
      rig.data_parallel.pause_backward(unit);
    }
    for (const int unit : {0, 1, 2}) rig.backward(unit, true);
    rig.data_parallel.finish_reduction();
    for (std::size_t i = 0; i < 3; ++i) {
      const TensorView sum = rig.buffer.shard_gradient(i);
      for (std::int64_t j = 0; j < sum.numel(); ++j) ASSERT_EQ(sum.as<float>()[j], 2) << i;
    }
  }
}

TEST(DataParallel, WorkMemoryHoldsTheGradientsOfFewGroups) {
  const DataParallelOptions one{DataSharding::optimizer_and_gradients};
  DataParallelOptions two = one;
  two.overlap_reduce = true;
  DataParallelOptions rounded;
  rounded.low_precision_gradients = true;
  const auto work_bytes = [](DType dtype, const DataParallelOptions& options) {
    const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
    return ParameterBuffer(*backend, dtype, three_units(), options).memory().work;
  };
  EXPECT_EQ(work_bytes(DType::fp32, one), 64u * 4);
  EXPECT_EQ(work_bytes(DType::fp32, two), 2 * 64u * 4);
  EXPECT_EQ(work_bytes(DType::bf16, rounded), 64u * 4);
  EXPECT_EQ(work_bytes(DType::bf16, {}), 0u);
}

TEST(DataParallel, GradientsOfSixteenBitsAreRoundedAfterEveryMicroBatch) {
  DataParallelOptions options;
  options.low_precision_gradients = true;
  Rig rig(DType::bf16, options);
  rig.data_parallel.begin_step();
  rig.data_parallel.clear_gradients();
  for (int i = 0; i < 300; ++i) {
    for (const int unit : {2, 1, 0}) rig.backward(unit, i == 299);
  }
  EXPECT_EQ(rig.buffer.gradients().dtype(), DType::bf16);
  rig.data_parallel.finish_reduction();
  // 256 + 1 is 256 in bfloat16.
  EXPECT_EQ(rig.buffer.shard_gradient(0).as<float>()[0], 256);
}

/// Returns the milliseconds of a step of eight units, each a bucket. Each forward and each backward takes 10 ms, each
/// reduction and each gather 5 ms.
double slow_step_ms(bool overlap) {
  constexpr int units = 8;
  const auto compute = [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
  std::vector<Parameter> list;
  for (int g = 0; g < units; ++g) {
    list.push_back(three_units().front());
    list.back().unit = g;
  }
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  test::SlowCommunicator slow(std::make_unique<test::LonelyCommunicator>(2), test::Link{5e-3, 0});
  const DataParallelOptions options{DataSharding::optimizer, false, overlap, overlap, 64};
  ParameterBuffer buffer(*backend, DType::fp32, list, options, {{2, 0}});
  DataParallel data_parallel(*backend, buffer, {{slow, slow, slow}});
  const Timer timer;
  for (std::size_t b = units; b-- > 0;) data_parallel.start_gather(b, backend->compute_stream());
  data_parallel.finish_gather();
  data_parallel.begin_step();
  data_parallel.clear_gradients();
  for (int g = 0; g < units; ++g) {
    data_parallel.before_forward(g);
    compute();
  }
  for (int g = units - 1; g >= 0; --g) {
    data_parallel.before_backward(g);
    compute();
    data_parallel.after_backward(g, true);
  }
  data_parallel.finish_reduction();
  return timer.elapsed_ms();
}

TEST(DataParallel, OverlappedCommunicationRunsDuringComputation) {
  EXPECT_GE(slow_step_ms(false), 2 * 80 + 2 * 40);
  // The first gather and the last reduction have nothing to hide behind. Busy machines sleep longer: best of three.
  double best_ms = slow_step_ms(true);
  for (int i = 0; i < 2; ++i) best_ms = std::min(best_ms, slow_step_ms(true));
  EXPECT_GE(best_ms, 2 * 80 + 2 * 5);
  EXPECT_LT(best_ms, 2 * 80 + 40);
}

}  // namespace
}  // namespace trireme::parallel
