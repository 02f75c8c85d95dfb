#include <gmock/gmock.h>

#include "src/backend/forwarding_backend.hpp"
#include "src/backend/rehearsal_backend.hpp"

namespace trireme {
namespace {

using testing::ElementsAre;

/// A family with one kernel, named only in its declaration.
class DoublingKernels : public KernelFamily<DoublingKernels> {
 public:
  using KernelFamily::KernelFamily;
  /// y = 2 x.
  virtual void twice(Stream& stream, ConstTensorView x, TensorView y) {
    pass_on(&DoublingKernels::twice, stream, {KernelKind::copies, bytes_of({x, y})}, x, y);
  }
};
class CpuDoubling final : public DoublingKernels {
 public:
  void twice(Stream&, ConstTensorView x, TensorView y) override { *y.as<float>() = 2 * *x.as<float>(); }
};

/// Keeps the bytes of each call, and the value of `result` before and after it.
class Log final : public CallObserver {
 public:
  explicit Log(const float& result) : result_(result) {}
  void begin(Stream&, const KernelCall& call) override {
    bytes.push_back(call.bytes);
    values.push_back(result_);
  }
  void end(Stream&, const KernelCall&) override { values.push_back(result_); }
  std::vector<double> bytes;
  std::vector<float> values;

 private:
  const float& result_;
};

TEST(KernelFamily, IsObservedAndRehearsedByItsDeclaration) {
  ImmediateStream stream;
  float x = 21, y = 1;
  const ConstTensorView in(&x, {1});
  const TensorView out(&y, {1});
  CpuDoubling cpu;
  Log observed(y), rehearsed(y);
  DoublingKernels(rehearsed, nullptr).twice(stream, in, out);
  DoublingKernels(observed, &cpu).twice(stream, in, out);
  EXPECT_THAT(rehearsed.bytes, ElementsAre(8));
  EXPECT_THAT(rehearsed.values, ElementsAre(1, 1));
  EXPECT_THAT(observed.bytes, ElementsAre(8));
  EXPECT_THAT(observed.values, ElementsAre(1, 42));
}

TEST(KernelFamily, RefusesACallOfAKernelThatABackendDoesNotOverride) {
  ImmediateStream stream;
  float x = 1;
  DoublingKernels incomplete;
  EXPECT_THROW(incomplete.twice(stream, ConstTensorView(&x, {1}), TensorView(&x, {1})), ShapeError);
}

TEST(ForwardingBackend, ShowsCallsOfEveryFamilyAndComputesThem) {
  class Watch final : public ForwardingBackend {
   public:
    using ForwardingBackend::ForwardingBackend;
    std::vector<KernelCall> calls;

   private:
    void end(Stream&, const KernelCall& call) override { calls.push_back(call); }
  };
  const auto cpu = make_backend(BackendChoice::cpu, 1);
  Watch watch(*cpu);
  std::vector<float> x{1, 2}, y(2), dw(4);
  double sum = 0;
  const TensorView row(x.data(), {1, 2}), result(y.data(), {1, 2});
  Stream& stream = watch.compute_stream();
  watch.elementwise().convert(stream, row, result);
  watch.reduce().sum(stream, row, TensorView(&sum, {1}));
  watch.gemm().linear_backward_weight(stream, row, row, TensorView(dw.data(), {2, 2}), {});
  EXPECT_THAT(y, ElementsAre(1, 2));
  EXPECT_EQ(sum, 3);
  EXPECT_THAT(dw, ElementsAre(1, 2, 2, 4));
  ASSERT_EQ(watch.calls.size(), 3U);
  EXPECT_EQ(watch.calls[0].kind, KernelKind::copies);
  EXPECT_EQ(watch.calls[1].kind, KernelKind::cross_entropy);
  EXPECT_EQ(watch.calls[2].kind, KernelKind::weight_gradient);
  EXPECT_EQ(watch.calls[2].flops(), 8);
  EXPECT_EQ(static_cast<void*>(watch.calls[2].product->result.data()), dw.data());
}

TEST(ForwardingBackend, ShowsGroupedProductsOneByOne) {
  class Watch final : public ForwardingBackend {
   public:
    using ForwardingBackend::ForwardingBackend;
    std::vector<double> flops;

   private:
    void end(Stream&, const KernelCall& call) override { flops.push_back(call.flops()); }
  };
  const auto cpu = make_backend(BackendChoice::cpu, 1);
  Watch watch(*cpu);
  std::vector<float> x(6, 1), w(4, 1), y(6);
  const std::vector<TensorView> weights(3, TensorView(w.data(), {2, 2}));
  watch.gemm().grouped_linear(watch.compute_stream(), std::vector<std::int64_t>{1, 0, 2}, TensorView(x.data(), {3, 2}),
                              weights, TensorView(y.data(), {3, 2}));
  EXPECT_EQ(watch.flops, (std::vector<double>{8, 16}));
  EXPECT_EQ(y, std::vector<float>(6, 2));
}

TEST(RehearsalBackend, KeepsTheLargestExtents) {
  const auto cpu = make_backend(BackendChoice::cpu, 1);
  RehearsalBackend rehearsal(*cpu);
  Stream& stream = rehearsal.compute_stream();
  const auto tensor = [&](const Shape& shape) { return TensorView(reinterpret_cast<float*>(64), shape); };
  rehearsal.gemm().linear_backward_weight(stream, tensor({7, 3}), tensor({7, 5}), tensor({3, 5}), tensor({3}));
  rehearsal.gemm().linear_backward_weight(stream, tensor({9, 2}), tensor({9, 2}), tensor({2, 2}), {});
  rehearsal.norm().normalise_backward(stream, tensor({4, 6}), tensor({4, 6}), tensor({6}), {}, {}, tensor({4, 6}),
                                      tensor({6}), tensor({6}));
  const auto integers = [&](const Shape& shape) { return TensorView(reinterpret_cast<std::int32_t*>(64), shape); };
  ExpertKernels& experts = rehearsal.experts();
  experts.route(stream, {.per_token = 2}, tensor({9, 4}), {}, integers({9, 2}), tensor({9, 2}), {}, {}, {});
  experts.route(stream, {.per_token = 2}, tensor({8, 4}), {}, integers({8, 2}), tensor({8, 2}), {}, {}, tensor({2}));
  experts.route(stream, {.per_token = 2}, tensor({7, 4}), {}, integers({7, 2}), tensor({7, 2}), tensor({1, 4}),
                tensor({1, 4}), {});
  experts.limit_load(stream, integers({8, 2}), tensor({8, 2}), 4, 3, false, integers({8, 2}));
  experts.sort(stream, integers({8, 2}), 0, 0, integers({3}), integers({8, 2}), integers({16}), integers({16}));
  const KernelExtents& extents = rehearsal.kernel_extents();
  EXPECT_EQ(extents.weight_gradient, 15);
  EXPECT_EQ(extents.summed_rows, 9);
  EXPECT_EQ(extents.summed_columns, 12);
  EXPECT_EQ(extents.balanced_tokens, 8);
  EXPECT_EQ(extents.limited_choices, 16);
  EXPECT_EQ(extents.groups, 3);
}

}  // namespace
}  // namespace trireme
