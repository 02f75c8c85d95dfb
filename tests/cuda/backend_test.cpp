// The CUDA backend itself, on the fakes of the CUDA libraries: its memory, its copies and its refusals.
#include <gmock/gmock.h>

#include "cuda/backend/cuda_backend.hpp"
#include "cuda/kernels/families.hpp"
#include "src/backend/host_copies.hpp"
#include "src/backend/profiled_device.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/optim/muon.hpp"
#include "src/train/state_tensors.hpp"
#include "tests/cuda/gpu_backend.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/support/whole_parameter.hpp"

namespace trireme::cuda {
namespace {

using test::message_of;
using testing::HasSubstr;
using Floats = std::vector<float>;

class CudaBackendOnFakes : public testing::Test {
 protected:
  void SetUp() override {
    fake_cuda::reset();
    backend_ = test::make_gpu_backend({});
  }
  std::unique_ptr<Backend> backend_;
  Stream& stream() { return backend_->compute_stream(); }
};

TEST_F(CudaBackendOnFakes, CopiesOfAnySizeArriveAndDoNotRetainHostMemory) {
  for (const std::int64_t size : {0, 1, 1000, (9 << 20) / 4}) {  // the last in two segments
    const Tensor device(*backend_, DType::fp32, {size});
    Floats out(static_cast<std::size_t>(size)), in(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(i % 1000);
    const Floats expected = out;
    backend_->copy_from_host(stream(), ConstTensorView(out.data(), {size}), device);
    std::ranges::fill(out, -1.0f);
    backend_->copy_to_host(stream(), device, TensorView(in.data(), {size}));
    EXPECT_EQ(in, expected);
  }
}

TEST_F(CudaBackendOnFakes, NewtonSchulzRunsInBf16WithoutWaiting) {
  using namespace optim;
  const std::unique_ptr<Backend> cpu = make_backend(BackendChoice::cpu, 1);
  constexpr auto device = NewtonSchulzProducts::device, full = NewtonSchulzProducts::full;
  EXPECT_EQ(NewtonSchulz::type_of(*backend_, DType::bf16, device), DType::bf16);
  EXPECT_EQ(NewtonSchulz::type_of(*backend_, DType::fp16, device), DType::bf16);
  EXPECT_EQ(NewtonSchulz::type_of(*backend_, DType::bf16, full), DType::fp32);
  EXPECT_EQ(NewtonSchulz::type_of(*backend_, DType::fp32, device), DType::fp32);
  EXPECT_EQ(NewtonSchulz::type_of(*cpu, DType::bf16, device), DType::fp32);
  for (const Shape shape : {Shape{3, 8, 24}, Shape{3, 24, 8}}) {
    const Tensor reference = test::random_tensor(*cpu, DType::fp32, shape, 1);
    NewtonSchulz(*cpu, DType::fp32, {&shape, 1}, {})(reference);
    const std::vector<double> expected = test::values_of(*cpu, reference);
    for (const DType dtype : {DType::bf16, DType::fp32}) {
      NewtonSchulz orthogonalise(*backend_, dtype, {&shape, 1}, {});
      const Tensor warm = test::random_tensor(*backend_, dtype, shape, 2);
      orthogonalise(warm);  // chooses algorithms, which waits
      const Tensor x = test::random_tensor(*backend_, dtype, shape, 1);
      const int waits = fake_cuda::waits();
      orthogonalise(x);
      EXPECT_EQ(fake_cuda::waits(), waits);
      const std::vector<double> values = test::values_of(*backend_, x);
      double largest = 0;
      for (std::size_t i = 0; i < values.size(); ++i) largest = std::max(largest, std::abs(values[i] - expected[i]));
      // Elements are below 1. In bf16 five steps round some ten times.
      EXPECT_LT(largest, dtype == DType::fp32 ? 1e-5 : 0.1);
    }
  }
}

TEST_F(CudaBackendOnFakes, AnUpdateOfMuonWaitsForNoMatrix) {
  SelfCommunicator alone("world");
  // Two matrices: after 256 launches the host waits for those before them.
  parallel::ParameterBuffer buffer(*backend_, DType::bf16,
                                   {test::whole_parameter("a", parallel::ParameterRole::matrix, {24, 16}),
                                    test::whole_parameter("b", parallel::ParameterRole::matrix, {16, 24})});
  optim::Muon muon(*backend_, buffer, {{alone, alone, alone}}, 0.1, {}, {});
  for (const parallel::Parameter& p : buffer.parameters()) backend_->elementwise().fill(stream(), 1, p.gradient);
  muon.step(0.01, 1);  // loads kernels and chooses algorithms, which waits
  const int waits = fake_cuda::waits();
  muon.step(0.01, 1);
  EXPECT_EQ(fake_cuda::waits(), waits);
  stream().synchronize();
}

TEST_F(CudaBackendOnFakes, PinnedMemoryIsCopiedBesideTheHost) {
  const Tensor device(*backend_, DType::fp32, {100}), host(backend_->host_memory(), DType::fp32, {100});
  std::fill_n(host.view().as<float>(), 100, 7.0f);
  fake_cuda::clear_log();
  backend_->copy_from_host(stream(), host, device);
  backend_->copy_to_host(stream(), device, host);
  EXPECT_EQ(fake_cuda::pending(), 2U) << "nothing has waited";
  EXPECT_THAT(fake_cuda::log(), testing::Each(HasSubstr("cudaMemcpyAsync")));
  stream().synchronize();
}

/// The state after a first step, from a copy that was begun then and is slower than the second step.
std::vector<std::vector<std::byte>> state_copied_beside_a_step(bool keeps_order) {
  SelfCommunicator world("world");
  fake_cuda::make_slow_streams(false);
  test::TrainingRun run(world, test::small_run(), {}, {}, test::gpu_device());
  fake_cuda::make_slow_streams(true);
  train::HostState state(*run.backend, run.trainer.state_tensors(), HostCopies::Allocation::always);
  fake_cuda::make_slow_streams(false);
  if (keeps_order) run.trainer.before_update([&] { state.keep_order(); });
  run.step();
  run.trainer.await_update();
  state.begin_fetch();
  run.step();
  run.trainer.await_update();
  run.backend->compute_stream().synchronize();
  EXPECT_EQ(fake_cuda::pending() == 0, keeps_order) << "the update has waited for the copy";
  state.wait();
  std::vector<std::vector<std::byte>> bytes;
  for (const checkpoint::StateTensor& tensor : state.tensors()) {
    bytes.emplace_back(tensor.data.data(), tensor.data.data() + tensor.data.size_bytes());
  }
  return bytes;
}

TEST_F(CudaBackendOnFakes, ACopyOfTheStateIsASnapshotWhileTrainingContinues) {
  SelfCommunicator world("world");
  test::TrainingRun run(world, test::small_run(), {}, {}, test::gpu_device());
  run.step();
  train::HostState state(*run.backend, run.trainer.state_tensors());
  state.fetch();
  const auto copied = state_copied_beside_a_step(true), torn = state_copied_beside_a_step(false);
  bool all_equal = true;
  for (std::size_t i = 0; i < copied.size(); ++i) {
    const TensorView expected = state.tensors()[i].data;
    const std::vector<std::byte> bytes(expected.data(), expected.data() + expected.size_bytes());
    EXPECT_EQ(copied[i], bytes) << state.tensors()[i].name;
    all_equal = all_equal && torn[i] == bytes;
  }
  EXPECT_FALSE(all_equal) << "a canary: without the order the update comes before the copy";
}

// A canary: the tests of training prove nothing if the host may read GPU memory.
TEST_F(CudaBackendOnFakes, TheHostMayNotTouchTheGpusMemory) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Tensor device(*backend_, DType::fp32, {10});
  EXPECT_DEATH(*device.view().as<float>() = 1, "the host touched memory of the GPU");
}

TEST_F(CudaBackendOnFakes, ReportsTheResourcesOfItsKernels) {
  // The workspace of products, an L2 cache of operands and a gradient to try them on, and partial sums of at most 256
  // parts of the rows; 24 bytes for each token of a router with sums over tokens, and 8 for each choice that is
  // limited.
  constexpr std::size_t workspace = std::size_t{32} << 20, l2 = std::size_t{1} << 16;
  EXPECT_EQ(backend_->kernel_memory_bytes({1000, 64, 50}), workspace + l2 + 4 * 1000 + 2 * 50 * 4);
  EXPECT_EQ(backend_->kernel_memory_bytes({0, 1'000'000, 50}), workspace + l2 + 256 * 50 * 4);
  EXPECT_EQ(backend_->kernel_memory_bytes({.balanced_tokens = 100, .limited_choices = 1000}),
            workspace + l2 + 100 * 24 + 1000 * 8);
}

TEST_F(CudaBackendOnFakes, StartsTheProfilerAndNamesRanges) {
  auto* device = dynamic_cast<ProfiledDevice*>(backend_.get());
  ASSERT_NE(device, nullptr);
  TraceRecorder ranges(stream(), device, TraceRecorder::Times::none);
  fake_cuda::clear_log();
  device->start_profiler();
  {
    const TraceScope step(&ranges, "iteration", "iteration");
    const TraceScope forward(&ranges, "forward", "pipeline");
  }
  device->stop_profiler();
  EXPECT_THAT(fake_cuda::log(),
              testing::ElementsAre("cudaProfilerStart", "nvtxRangePush iteration", "nvtxRangePush forward",
                                   "nvtxRangePop", "nvtxRangePop", "cudaProfilerStop"));
  ranges.resolve();
  EXPECT_THAT(ranges.spans(), testing::IsEmpty()) << "without times there are only ranges";
  fake_cuda::fail_next("cudaProfilerStart", cudaErrorMemoryAllocation);
  EXPECT_THAT(message_of([&] { device->start_profiler(); }), HasSubstr("cudaProfilerStart"));
}

TEST_F(CudaBackendOnFakes, RefusesHeadsThatDoNotFitAndNamesSlowOnes) {
  const AttentionKernels& attention = backend_->attention();
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    EXPECT_NO_THROW(attention.check_heads(dtype, 317, false));
    EXPECT_THROW(attention.check_heads(dtype, 318, true), ConfigError);
    EXPECT_THAT(attention.check_heads(dtype, 96, false), "");
  }
  EXPECT_THAT(
      message_of([&] { attention.check_heads(DType::fp32, 512, false); }),
      "attention heads have 512 channels, and those of up to 317 fit into the shared memory of this GPU, 166912 "
      "bytes for a block: take more heads, or <backend> cpu");
  EXPECT_THAT(attention.check_heads(DType::fp32, 80, false), "") << "has no tensor cores with any";
  EXPECT_THAT(
      attention.check_heads(DType::bf16, 80, false),
      "attention runs without tensor cores, and steps may take ten times as long: in bf16 only heads of 64, 96, "
      "128 and 192 channels use tensor cores, without a soft cap, and these have 80");
  EXPECT_THAT(attention.check_heads(DType::fp16, 96, true), testing::EndsWith("these have 96 and a soft cap"));
  // The block of an L40S: too small for heads of 192, whose kernels on tensor cores need the most.
  const auto small = cuda::make_attention({}, 101376, false);
  for (const std::int64_t channels : {64, 96, 128}) EXPECT_THAT(small->check_heads(DType::bf16, channels, false), "");
  EXPECT_THAT(message_of([&] { small->check_heads(DType::bf16, 192, false); }),
              HasSubstr("have 192 channels, and those of up to 189 fit"));
}

TEST_F(CudaBackendOnFakes, NamesTheKernelThatExceedsSharedMemory) {
  AttentionProblem problem;
  problem.queries = problem.keys = problem.batch = problem.heads = problem.kv_heads = 1;
  problem.head_dim = 600;
  const Tensor x(*backend_, DType::fp32, {4, 600}), statistics(*backend_, DType::fp32, {1});
  const auto heads = [&](std::int64_t i) { return Heads{x.view().flat(600 * i, 600), 600, 600, 600}; };
  EXPECT_THAT(
      message_of([&] {
        backend_->attention().attention(stream(), problem, heads(0), heads(1), heads(2), heads(3), statistics);
      }),
      "the kernel attention needs 235008 bytes of shared memory for a block, and this GPU has 166912: take more "
      "heads, of fewer channels");
}

TEST_F(CudaBackendOnFakes, IsUnavailableWithoutAGpu) {
  fake_cuda::set_devices(0);
  EXPECT_THAT(message_of([] { make_backend({}, "90"); }), HasSubstr("no GPU is visible on "));
}

TEST_F(CudaBackendOnFakes, IsUnavailableWhereItsKernelsDoNotRun) {
  EXPECT_THAT(message_of([] { make_backend({}, "80-real"); }),
              HasSubstr("kernels for the architectures 80-real, and the GPU has compute capability 9.0: build with "
                        "-D TRIREME_CUDA_ARCHITECTURES=90-real"));
}

TEST(Architectures, CodeRunsOnItsOwnGenerationAndPtxOnLaterOnes) {
  const auto runs = [](const char* built_for, int capability) {
    return architecture_problem(built_for, capability).empty();
  };
  EXPECT_TRUE(runs("80-real,90", 80));
  EXPECT_TRUE(runs("80-real,90", 86));
  EXPECT_TRUE(runs("80-real,90", 90));
  EXPECT_TRUE(runs("80-real,90", 100));
  EXPECT_FALSE(runs("80-real,90", 70));
  EXPECT_TRUE(runs("80-real,90a-real", 90));
  EXPECT_FALSE(runs("80-real,90a-real", 100));
  EXPECT_FALSE(runs("90-real", 80));
  EXPECT_TRUE(runs("80", 100));
  EXPECT_TRUE(runs("80-virtual", 80));
  EXPECT_FALSE(runs("90a", 100));
  EXPECT_TRUE(runs("native", 75));
}

}  // namespace
}  // namespace trireme::cuda
