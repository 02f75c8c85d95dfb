// Steps as step_predict counts them, and as step_gpu_bench times them, on the CUDA backend on fakes.
#include <gmock/gmock.h>

#include <algorithm>

#include "bench/step/line_timer.hpp"
#include "bench/step/prediction.hpp"
#include "tests/cuda/gpu_backend.hpp"
#include "tests/fakes/fake_cuda.hpp"

namespace trireme::bench {
namespace {

/// Compares each call's launches with its count.
class LaunchCounter final : public CallObserver {
 public:
  explicit LaunchCounter(const GraphRecorder& recorder) : recorder_(recorder) {}
  void begin(Stream&, const KernelCall&) override { before_ = recorder_.launches(); }
  void end(Stream&, const KernelCall& call) override {
    const auto launches = static_cast<int>(recorder_.launches() - before_);
    EXPECT_THAT(launches, testing::AnyOf(call.launch_count(true), call.launch_count(false))) << name_of(call.kind);
    counted += launches;
    if (call.kind != KernelKind::inputs) calls.push_back(call);
  }
  int counted = 0;
  std::vector<KernelCall> calls;

 private:
  const GraphRecorder& recorder_;
  std::size_t before_ = 0;
};

/// Expects the kernels of a step on fakes to be those of its rehearsal, each with the launches of its count.
void expect_the_rehearsed_step(const StepCase& c) {
  SCOPED_TRACE(to_string(c));
  fake_cuda::reset();
  const std::unique_ptr<Backend> device = test::make_gpu_backend({.deterministic = true});
  ObservedBackend backend(*device);
  SelfCommunicator devices("world", [](Stream&, ConstTensorView, TensorView) {});
  StepRig rig(c, backend, devices);
  rig.initialise();
  rig.advance();  // products choose their algorithms
  LaunchCounter counter(backend);
  backend.observe(&counter);
  const std::size_t before = backend.launches();
  rig.advance();
  EXPECT_EQ(static_cast<int>(backend.launches() - before), counter.counted) << "some launches are in no call";
  backend.observe(nullptr);

  const std::vector<KernelCall> rehearsed = rehearse(c);
  ASSERT_EQ(rehearsed.size(), counter.calls.size());
  for (std::size_t i = 0; i < rehearsed.size(); ++i) {
    EXPECT_EQ(rehearsed[i].kind, counter.calls[i].kind) << i;
    EXPECT_EQ(rehearsed[i].bytes, counter.calls[i].bytes) << i << ", " << name_of(rehearsed[i].kind);
    EXPECT_EQ(rehearsed[i].flops(), counter.calls[i].flops()) << i << ", " << name_of(rehearsed[i].kind);
  }
}

TEST(LaunchCount, MatchesTheBackend) {
  expect_the_rehearsed_step({.model = "tiny", .s = 32, .b = 2, .micro_batches = 2});
  for (const bool sequence_parallel : {false, true}) {
    expect_the_rehearsed_step(
        {.model = "tiny", .s = 32, .b = 2, .tensor_ranks = 2, .sequence_parallel = sequence_parallel});
  }
  expect_the_rehearsed_step(
      {.model = "tiny", .s = 32, .b = 2, .tensor_ranks = 2, .sequence_parallel = true, .row_chunks = 4});
  expect_the_rehearsed_step({.model = "tiny", .s = 32, .b = 2, .micro_batches = 2, .fp8 = true});
  expect_the_rehearsed_step({.model = "tiny", .s = 140, .b = 3, .dropout = 0, .decodes = true});
}

TEST(LaunchCount, OfRoutingIsThatOfTheBackend) {
  fake_cuda::reset();
  const std::unique_ptr<Backend> device = test::make_gpu_backend({});
  ObservedBackend backend(*device);
  LaunchCounter counter(backend);
  backend.observe(&counter);
  const std::int64_t n = 12, e = 8, k = 2, h = 16;
  const auto tensor = [&](DType dtype, const Shape& shape) { return Tensor(*device, dtype, shape); };
  const Tensor logits = tensor(DType::bf16, {n, e}), dlogits = tensor(DType::bf16, {n, e});
  const Tensor experts = tensor(DType::int32, {n, k}), kept = tensor(DType::int32, {n, k});
  const Tensor weights = tensor(DType::fp32, {n, k}), counts = tensor(DType::fp32, {1, e});
  const Tensor sums = tensor(DType::fp32, {1, e}), token_sums = tensor(DType::fp32, {2});
  const Tensor bias = tensor(DType::fp32, {e}), load = tensor(DType::fp32, {2 * e + 3});
  const Tensor rows = tensor(DType::int32, {e}), row_of = tensor(DType::int32, {n, k});
  const Tensor slot_of = tensor(DType::int32, {n * k}), token_of = tensor(DType::int32, {n * k});
  const Tensor x = tensor(DType::bf16, {n * k, h}), y = tensor(DType::bf16, {n, h});
  Stream& stream = backend.compute_stream();
  device->elementwise().fill(stream, 0.5, logits);
  device->elementwise().fill(stream, 0.5, x);
  device->elementwise().fill(stream, 0, bias);
  ExpertKernels& kernels = backend.experts();
  const RouterProblem problem{.per_token = k};
  kernels.route(stream, problem, logits, {}, experts, weights, {}, {}, {});
  kernels.route(stream, problem, logits, {}, experts, weights, {}, {}, token_sums);
  kernels.route(stream, problem, logits, {}, experts, weights, counts, sums, token_sums);
  kernels.route(stream, {.per_token = k, .score = RouterScore::sigmoid}, logits, bias, experts, weights, {}, {}, {});
  kernels.route_backward(stream, problem, logits, experts, weights, {counts, 1, 1}, dlogits);
  const Tensor samples = tensor(DType::int64, {1});
  kernels.jitter(stream, {0.1, Dropout(0, 1, 0, DropoutSite::router_input, samples.view().as<std::int64_t>())},
                 y.view().reshape({n, 1, h}), y.view().reshape({n, 1, h}));
  kernels.limit_load(stream, experts, weights, e, 3, false, kept);
  kernels.sort(stream, experts, 0, 0, rows, row_of, slot_of, token_of);
  kernels.add_load(stream, e, experts, kept, counts, sums, 1, token_sums, 1, load);
  kernels.sum_rows(stream, x, row_of, y);
  kernels.scale_rows(stream, x, weights, slot_of, x);
  kernels.scale_rows_backward(stream, x, x, weights, slot_of, x, weights);
  stream.synchronize();
  backend.observe(nullptr);
  EXPECT_EQ(counter.calls.size(), 12U);
  EXPECT_EQ(counter.counted, 1 + 2 + 2 + 1 + 6 + 1 + 1 + 1);
}

TEST(LineTimer, TimesEveryCallOfAStep) {
  fake_cuda::reset();
  const StepCase c{.model = "tiny", .s = 32, .b = 2};
  const std::unique_ptr<Backend> device = test::make_gpu_backend({.deterministic = true});
  ObservedBackend backend(*device);
  SelfCommunicator devices("world", [](Stream&, ConstTensorView, TensorView) {});
  StepRig rig(c, backend, devices);
  rig.initialise();
  LineTimer timer(backend.memory_is_host());
  const std::vector<KernelCall> calls = rehearse(c);
  for (int step = 0; step < 2; ++step) {
    backend.observe(&timer);
    rig.step();
    backend.observe(nullptr);
    const std::vector<LineTimer::Sum> sums = timer.take();
    for (int i = 0; i < kernel_kind_count; ++i) {
      const auto line = static_cast<KernelKind>(i);
      const LineTimer::Sum& sum = sums[static_cast<std::size_t>(i)];
      EXPECT_EQ(sum.ms, fake_cuda::event_distance_ms * static_cast<float>(sum.calls)) << name_of(line);
      if (line == KernelKind::inputs) continue;
      EXPECT_EQ(sum.calls, std::ranges::count(calls, line, &KernelCall::kind)) << name_of(line);
    }
  }
}

}  // namespace
}  // namespace trireme::bench
