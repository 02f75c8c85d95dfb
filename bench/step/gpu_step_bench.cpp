// Whole training steps on a GPU, in bf16 with dropout. GPT-2 124M runs without and with CUDA graphs, at a micro-batch
// that fills the GPU and at one whose kernels are shorter than their launches. 8.3B runs as the first of eight tensor
// ranks: its communication takes no time and brings nothing, so that only a rank's computing counts. Each case is a
// line of JSON:
// * Median, minimum and maximum of the time of a step by the host's clock. The first steps, in which algorithms are
//   chosen and graphs recorded, are left out.
// * Launches of kernels, products and graphs in a step.
// * Model FLOPs per second and rank, with attention in full.
// usage: step_gpu_bench [--dry-run]
//   --dry-run     a tiny model on the CPU backend, to test this program
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "cuda/backend/cuda_backend.hpp"
#include "src/backend/cpu/cpu_backend.hpp"
#include "src/backend/graphs.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/base/thread_pool.hpp"
#include "src/comm/device_communicators.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/data/dataset/next_token_labels.hpp"
#include "src/model/initialisation.hpp"
#include "src/model/presets.hpp"
#include "src/train/trainer.hpp"
#include "tests/fakes/forwarding_communicator.hpp"

namespace trireme::bench {
namespace {

/// Tokens by a formula, about as frequent as those of text. The logarithms of their numbers are uniform, and the most
/// frequent one is one in sixteen.
class Tokens final : public data::NextTokenSamples {
 public:
  Tokens(std::int64_t length, std::int64_t vocabulary) : length_(length), vocabulary_(vocabulary) {}
  std::int64_t size() const override { return std::int64_t{1} << 40; }
  std::int64_t sequence_length() const override { return length_; }
  void read_text(std::int64_t index, std::span<std::int32_t> tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const double uniform = static_cast<double>(splitmix64(static_cast<std::uint64_t>(index), i) >> 11) * 0x1p-53;
      tokens[i] = static_cast<std::int32_t>(std::pow(static_cast<double>(vocabulary_), uniform)) - 1;
    }
  }

 private:
  std::int64_t length_;
  std::int64_t vocabulary_;
};

/// First of several ranks; the others do not exist. Sums are its own contribution, and it gathers its own part for each
/// of them.
class FirstAlone final : public test::ForwardingCommunicator {
 public:
  FirstAlone(int size, ElementwiseKernels& kernels) : ForwardingCommunicator(self_), size_(size), kernels_(kernels) {}
  int size() const override { return size_; }
  Work all_reduce(Stream&, TensorView, ReduceOp) override { return {}; }
  Work reduce_scatter(Stream& stream, ConstTensorView in, TensorView out, ReduceOp) override {
    copy(stream, in.flat(0, out.numel()), out);
    return {};
  }
  Work all_gather(Stream& stream, ConstTensorView in, TensorView out) override {
    for (int i = 0; i < size_; ++i) copy(stream, in, out.flat(i * in.numel(), in.numel()));
    return {};
  }

 private:
  void copy(Stream& stream, ConstTensorView from, TensorView to) {
    if (from.data() != to.data()) kernels_.convert(stream, from, to);
  }
  SelfCommunicator self_;
  int size_;
  ElementwiseKernels& kernels_;
};

struct Case {
  std::string model;
  std::int64_t s, b;
  int micro_batches = 4;
  bool graphs = false;
  int tensor_ranks = 1;  ///< ranks, of which this is the first
  bool sequence_parallel = false;
};

model::ModelConfig config_of(const std::string& name) {
  if (name != "tiny") return model::preset(name);
  return {.layers = 2, .hidden = 64, .heads = 2, .ffn_hidden = 256, .vocabulary = 512};
}

void run(const Case& c, bool dry_run) {
  const int warm_up = dry_run ? 1 : 4, steps = dry_run ? 2 : 12;
  SelfCommunicator world("world");
  const std::unique_ptr<Backend> backend =
      dry_run ? cpu::make_backend(1) : cuda::make_backend({}, TRIREME_CUDA_ARCHITECTURES);
  std::unique_ptr<Communicator> devices = world.split(0, 0, "world");
  if (!dry_run) {
    devices =
        dynamic_cast<DeviceCommunicators&>(*backend).make_world(world.split(0, 0, "world"), DeviceTransport::nccl);
  }
  parallel::GridCommunicators communicators =
      parallel::make_grid_communicators(parallel::ProcessGrid(1, 1, 1, 1), *devices);
  for (auto* group : {&communicators.tensor, &communicators.model}) {
    if (c.tensor_ranks > 1) *group = std::make_unique<FirstAlone>(c.tensor_ranks, backend->elementwise());
  }
  const parallel::ProcessGrid grid(c.tensor_ranks, c.tensor_ranks, 1);
  const model::ModelConfig config = config_of(c.model);
  train::ExecutionConfig execution;
  execution.dtype = DType::bf16;
  execution.sequence_length = c.s;
  execution.micro_batch_size = c.b;
  execution.cuda_graphs = c.graphs;
  execution.parallel.sequence_parallel = c.sequence_parallel;
  train::ParallelModel gpt(*backend, world, grid, communicators, config, execution);
  train::TrainOptions options;
  options.global_batch_size = c.micro_batches * c.b;
  options.lr_schedule.maximum = 1e-4;
  options.lr_schedule.decay = 100;
  train::Trainer trainer(gpt, options);
  model::initialise(*backend, gpt.parameters().parameters(),
                    {.layers = config.layers, .threads = default_thread_count(1)});
  trainer.start();
  const Tokens tokens(c.s, config.vocabulary);
  const auto* const recorder = dynamic_cast<const GraphRecorder*>(backend.get());
  const auto launched = [&] { return recorder != nullptr ? recorder->launches() : 0; };
  std::vector<double> times;
  double flops = 0;
  std::size_t launches = 0;
  for (int i = 0; i < warm_up + steps; ++i) {
    const std::size_t before = launched();
    const train::TrainRecord record = trainer.step(tokens);
    TRIREME_CHECK(!record.skipped, NumericalError, "step {} of {} made no update: its time is not that of a step", i,
                  c.model);
    launches = launched() - before;
    if (i >= warm_up) times.push_back(record.elapsed_ms);
    flops = record.tflops_per_rank * record.elapsed_ms / c.tensor_ranks;  // 10^9
  }
  std::ranges::sort(times);
  const double median = (times[(times.size() - 1) / 2] + times[times.size() / 2]) / 2;
  std::cout
      << fmt::format(
             R"({{"model": "{}", "s": {}, "micro_batch": {}, "micro_batches": {}, "cuda_graphs": {}, )"
             R"("tensor_ranks": {}, "sequence_parallel": {}, "ms": {:.3f}, "least_ms": {:.3f}, "greatest_ms": {:.3f}, )"
             R"("launches": {}, "full_attention_tflops": {:.1f}}})",
             c.model, c.s, c.b, c.micro_batches, c.graphs, c.tensor_ranks, c.sequence_parallel, median, times.front(),
             times.back(), launches, flops / median)
      << std::endl;
}

void run_all(bool dry_run) {
  if (dry_run) {
    run({"tiny", 32, 2}, dry_run);
    for (const bool sequence_parallel : {false, true}) run({"tiny", 32, 2, 1, false, 2, sequence_parallel}, dry_run);
    return;
  }
  for (const auto& [s, b] : {std::pair{1024, 16}, std::pair{256, 1}}) {
    for (const bool graphs : {false, true}) run({"gpt2-124m", s, b, 4, graphs}, dry_run);
  }
  for (const bool sequence_parallel : {false, true})
    run({"gpt2-8.3b-scaling", 1024, 8, 1, false, 8, sequence_parallel}, dry_run);
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  const bool dry_run = argc == 2 && std::string_view(argv[1]) == "--dry-run";
  if (argc > 1 && !dry_run) return std::cerr << "usage: step_gpu_bench [--dry-run]\n", 2;
  try {
    trireme::bench::run_all(dry_run);
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << "\n";
    return 4;
  }
  return 0;
}
