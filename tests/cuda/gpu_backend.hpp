#pragma once

#include <memory>
#include <string>

#include "tests/support/training_run.hpp"

// The CUDA backend of a test program. It is linked either with the CUDA libraries, for a GPU, or with fakes of them and
// the kernels on the host.

namespace trireme::test {

/// Returns the reason why there is no GPU; empty if there is one.
std::string gpu_problem();
/// Returns whether the device is a GPU: then tests may be long.
bool is_real_gpu();
/// Returns whether NCCL treats ranks that share a GPU as ranks of several machines (cuda/nccl/gpu_table.hpp): then
/// tests should be short.
bool ranks_share_gpus();
/// Returns whether NCCL has a GPU for each of `count` ranks; fakes are always enough.
bool have_gpus(int count);
std::unique_ptr<Backend> make_gpu_backend(const BackendOptions& options);
/// Makes new streams on fakes slow from now on: they run only if no other can. Work that does not wait for them runs
/// too early.
void slow_new_streams(bool slow);

inline DeviceChoice gpu_device(DeviceTransport transport = DeviceTransport::nccl, const BackendOptions& options = {}) {
  return {[options] { return make_gpu_backend(options); }, transport};
}

/// A GPU whose streams beside the one that computes are slow on fakes: those of communication and of copies. Call
/// slow_new_streams(false) after the run.
inline DeviceChoice slow_communication(DeviceTransport transport, const BackendOptions& options) {
  DeviceChoice device = gpu_device(transport, options);
  device.make = [make = device.make] {
    slow_new_streams(false);
    std::unique_ptr<Backend> backend = make();
    slow_new_streams(true);
    return backend;
  };
  return device;
}

/// A test that is skipped without a GPU, or fails if TRIREME_REQUIRE_GPU=1.
class GpuBackendTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string problem = gpu_problem();
    if (problem.empty()) return;
    const char* required = std::getenv("TRIREME_REQUIRE_GPU");
    ASSERT_FALSE(required != nullptr && std::string(required) == "1") << problem;
    GTEST_SKIP() << problem;
  }
};

/// A small model with dropout, for runs on the host.
inline TrainingRunConfig small_run() {
  return {.model = {.layers = 2, .hidden = 32, .heads = 4, .ffn_hidden = 128, .max_positions = 16, .vocabulary = 67},
          .s = 16,
          .batch = 4,
          .dtype = DType::fp32,
          .steps = 2};
}

/// Expects the memory that a rank takes on its GPU in some steps and an evaluation to be as predicted.
inline void expect_predicted_memory(Communicator& world, const TrainingRunConfig& config, const Layout& layout,
                                    const DeviceChoice& device) {
  SCOPED_TRACE(testing::Message() << name_of(config.dtype) << ", " << layout);
  TrainingRun run(world, config, layout, {}, device);
  for (std::int64_t i = 0; i < config.steps; ++i) run.step();
  run.trainer.evaluate(*run.data.train, 0, 1);
  const train::MemoryEstimate predicted = predicted_memory(run, config, world.rank());
  const train::ParallelModel::RunningMemory memory = run.gpt.running_memory();
  EXPECT_EQ(memory.activations, predicted.activations);
  EXPECT_EQ(memory.work, predicted.work);
  EXPECT_EQ(memory.messages, predicted.messages);
  constexpr std::size_t workspace = std::size_t{32} << 20, small = 100 * 256;  // cuBLASLt's, of each stream
  // Products that an earlier run has measured take no memory for trials; on fakes that is little.
  const std::size_t trials = run.backend->kernel_memory_bytes({}) - workspace;
  const auto peak = static_cast<double>(run.backend->peak_allocated_bytes());
  EXPECT_LE(0.99 * peak, static_cast<double>(predicted.total()));
  EXPECT_GE(1.01 * peak, static_cast<double>(predicted.total() - trials));
  // Allocations that stay: tensors of at least 256 bytes, tokens of NCCL's groups, and cuBLASLt's workspaces.
  const std::size_t kept = predicted.allocated() + (predicted.kernels - trials) / workspace * workspace;
  EXPECT_GE(run.backend->allocated_bytes(), kept);
  EXPECT_LE(run.backend->allocated_bytes(), kept + small);
}

}  // namespace trireme::test
