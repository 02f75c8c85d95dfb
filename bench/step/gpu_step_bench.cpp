// Whole training steps on a GPU, without and with CUDA graphs: GPT-2 124M in bf16 with dropout, at a micro-batch that
// fills the GPU and at one whose kernels are shorter than their launches. One JSON object a line: median, least and
// greatest time of a step (the first ones, in which algorithms are chosen and graphs recorded, left out), launches of
// kernels, products and graphs in a step, model FLOPs a second (attention counted in full).
#include <fmt/format.h>

#include <algorithm>
#include <iostream>

#include "cuda/backend/cuda_backend.hpp"
#include "src/backend/graphs.hpp"
#include "src/base/hash.hpp"
#include "src/base/thread_pool.hpp"
#include "src/comm/device_communicators.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/model/initialisation.hpp"
#include "src/model/presets.hpp"
#include "src/train/trainer.hpp"

namespace trireme::bench {
namespace {

/// Tokens by a formula: the time of a step does not depend on them.
class Tokens final : public data::SampleSource {
 public:
  Tokens(std::int64_t length, std::int64_t vocabulary) : length_(length), vocabulary_(vocabulary) {}
  std::int64_t size() const override { return std::int64_t{1} << 40; }
  std::int64_t sample_length() const override { return length_; }
  void read(std::int64_t index, std::span<std::int32_t> tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>(splitmix64(static_cast<std::uint64_t>(index), i) %
                                            static_cast<std::uint64_t>(vocabulary_));
    }
  }

 private:
  std::int64_t length_;
  std::int64_t vocabulary_;
};

void run(std::int64_t s, std::int64_t b, bool graphs) {
  constexpr int warm_up = 4, steps = 12, micro_batches = 4;
  SelfCommunicator world("world");
  const std::unique_ptr<Backend> backend = cuda::make_backend({}, TRIREME_CUDA_ARCHITECTURES);
  const parallel::ProcessGrid grid(1, 1, 1, 1);
  const std::unique_ptr<Communicator> devices =
      dynamic_cast<DeviceCommunicators&>(*backend).make_world(world.split(0, 0, "world"), DeviceTransport::nccl);
  parallel::GridCommunicators communicators = parallel::make_grid_communicators(grid, *devices);
  const model::GptConfig config = model::preset("gpt2-124m");
  train::LayoutOptions layout;
  layout.dtype = DType::bf16;
  layout.sequence_length = s;
  layout.micro_batch_size = b;
  layout.cuda_graphs = graphs;
  train::ParallelGpt gpt(*backend, world, grid, communicators, config, layout);
  train::TrainOptions options;
  options.global_batch_size = micro_batches * b;
  options.lr_schedule.maximum = 1e-4;
  options.lr_schedule.decay = 100;
  train::Trainer trainer(gpt, options);
  model::initialise(*backend, gpt.parameters().parameters(),
                    {.layers = config.layers, .threads = default_thread_count(1)});
  trainer.start();
  const Tokens tokens(s + 1, config.vocabulary);
  std::vector<double> times;
  double flops = 0;
  std::size_t launches = 0;
  for (int i = 0; i < warm_up + steps; ++i) {
    const std::size_t before = dynamic_cast<GraphRecorder&>(*backend).launches();
    const train::TrainRecord record = trainer.step(tokens);
    launches = dynamic_cast<GraphRecorder&>(*backend).launches() - before;
    if (i >= warm_up) times.push_back(record.elapsed_ms);
    flops = record.tflops_per_rank * record.elapsed_ms;  // 10^9
  }
  std::ranges::sort(times);
  const double median = (times[(steps - 1) / 2] + times[steps / 2]) / 2;
  std::cout << fmt::format(
                   R"({{"model": "gpt2-124m", "s": {}, "micro_batch": {}, "micro_batches": {}, "cuda_graphs": {}, )"
                   R"("ms": {:.3f}, "least_ms": {:.3f}, "greatest_ms": {:.3f}, "launches": {}, "tflops": {:.1f}}})",
                   s, b, micro_batches, graphs, median, times.front(), times.back(), launches, flops / median)
            << std::endl;
}

}  // namespace
}  // namespace trireme::bench

int main() {
  try {
    for (const auto& [s, b] : {std::pair{1024, 16}, std::pair{256, 1}}) {
      for (const bool graphs : {false, true}) trireme::bench::run(s, b, graphs);
    }
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << "\n";
    return 4;
  }
  return 0;
}
