// The CUDA runtime, products and NCCL on a real GPU. See GpuTest for machines without one.
#include "tests/cuda/gpu.hpp"
#include "cuda/kernels/gemm.hpp"
#include "cuda/nccl/nccl_communicator.hpp"
#include "src/comm/self_communicator.hpp"

namespace trireme::test {
namespace {

using GpuRuntime = GpuTest;

TEST_F(GpuRuntime, CopiesThereAndBackKeepBits) {
  const Tensor host = random_tensor(*cpu_, DType::fp32, {1025, 33}, 1);
  EXPECT_EQ(bytes_of(*cpu_, download(upload(host))), bytes_of(*cpu_, host));
}

TEST_F(GpuRuntime, AStreamSeesDataItWaitedFor) {
  constexpr std::int64_t size = 1 << 24;
  const Tensor a = random(DType::fp32, {size}, 1), b = poisoned(DType::fp32, {size}), c = poisoned(DType::fp32, {size});
  cuda::CudaStream other(device_);
  cuda::copy(*stream_, a, b);
  other.wait(*stream_->record());
  cuda::copy(other, b, c);
  other.synchronize();
  EXPECT_EQ(bytes_of(*cpu_, download(c)), bytes_of(*cpu_, download(a)));
}

TEST_F(GpuRuntime, OutOfMemoryIsAnErrorAfterWhichTheGpuWorks) {
  EXPECT_THROW((void)memory_->allocate(std::size_t{1} << 50), EnvironmentError);
  EXPECT_EQ(values(upload(make_tensor(*cpu_, DType::fp32, {1}, {7})))[0], 7);
}

class GpuProducts : public GpuTest {
 protected:
  /// y of a product of GPT-2 124M at 2048 tokens, by a new chooser of algorithms.
  std::vector<double> product(DType dtype, const cuda::GemmOptions& options) {
    const Tensor x = random(dtype, {2048, 768}, 1), w = random(dtype, {3072, 768}, 2);
    const Tensor y = poisoned(dtype, {2048, 3072});
    cuda::make_gemm(device_, memory_, std::make_unique<cuda::EventTimer>(), options)
        ->linear(*stream_, x, w, {}, Activation::none, {}, y);
    return values(y);
  }
};

TEST_F(GpuProducts, DeterministicProductsHaveTheSameBitsInEveryRun) {
  const cuda::GemmOptions options{.allow_tf32 = false, .deterministic = true, .cache_file = ""};
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    EXPECT_TRUE(product(dtype, options) == product(dtype, options)) << name_of(dtype);
  }
}

TEST_F(GpuProducts, UseTf32IfAllowed) {
  EXPECT_TRUE(product(DType::fp32, {.cache_file = ""}) != product(DType::fp32, {.allow_tf32 = true, .cache_file = ""}));
}

using GpuOneRank = GpuTest;

TEST_F(GpuOneRank, RunsEveryCollective) {
  const auto world = cuda::NcclCommunicator::make(device_, memory_, std::make_unique<SelfCommunicator>("world"));
  const auto comm = world->split(0, 0, "tensor");
  const Tensor x = random(DType::bf16, {1000}, 1), y = poisoned(DType::bf16, {1000}), z = poisoned(DType::bf16, {1000});
  const std::vector<double> expected = values(x);
  comm->all_reduce(*stream_, x, ReduceOp::sum).wait(*stream_);
  comm->reduce_scatter(*stream_, x, y, ReduceOp::max).wait(*stream_);
  comm->broadcast(*stream_, y, 0).wait(*stream_);
  comm->all_gather(*stream_, y, z).wait(*stream_);
  comm->barrier();
  EXPECT_EQ(values(z), expected);
}

}  // namespace
}  // namespace trireme::test
