// Iterations that begin before the outcome of the one before is known, on a fake GPU whose streams run late, in random
// order: they compute and report what iterations one by one do, and the GPU always has work.
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <span>
#include <tuple>
#include <utility>

#include "src/comm/self_communicator.hpp"
#include "src/train/run.hpp"
#include "tests/cuda/gpu_backend.hpp"
#include "tests/fakes/fake_cuda.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::test {
namespace {

class Ahead : public GpuBackendTest {
 protected:
  /// A run on the GPU. `ahead`: all iterations but the last are followed.
  struct Run {
    Run(Communicator& world, const TrainingRunConfig& config, const Layout& layout, bool ahead)
        : run(world, config, layout, {}, gpu_device(DeviceTransport::nccl, {.deterministic = true})),
          ahead(ahead),
          steps(config.steps) {}
    train::TrainRecord step() {
      const bool last = run.trainer.progress().iteration + 1 == steps;
      return run.trainer.step(*run.data.train, ahead && !last);
    }
    std::vector<std::byte> weights() {
      const TensorView values = run.gpt.parameters().values();
      std::vector<std::byte> bytes(values.size_bytes());
      run.trainer.await_update();
      run.backend->copy_to_host(run.backend->compute_stream(), values,
                                TensorView(bytes.data(), values.dtype(), values.shape()));
      run.backend->compute_stream().synchronize();
      return bytes;
    }
    TrainingRun run;
    bool ahead;
    std::int64_t steps;
  };

  /// Expects the records and weights of iterations one by one. Returns how many were skipped.
  int expect_the_same(const TrainingRunConfig& config, const Layout& layout,
                      const std::function<void(TrainingRun&)>& change = {}) {
    SCOPED_TRACE(testing::Message() << name_of(config.dtype) << ", " << layout);
    Run one_by_one(world_, config, layout, false), ahead(world_, config, layout, true);
    int skipped = 0, begun = 0;
    for (Run* run : {&one_by_one, &ahead}) {
      if (change) change(run->run);
    }
    for (std::int64_t i = 0; i < config.steps; ++i) {
      const train::TrainRecord expected = one_by_one.step(), record = ahead.step();
      begun += ahead.run.trainer.is_ahead() ? 1 : 0;
      const auto numbers = [](const train::TrainRecord& r) {
        const auto bits = [](double x) { return std::bit_cast<std::uint64_t>(x); };
        return std::tuple(r.iteration, r.consumed_samples, bits(r.lm_loss), bits(r.grad_norm), r.learning_rate,
                          r.loss_scale, r.skipped);
      };
      EXPECT_EQ(numbers(record), numbers(expected)) << "iteration " << i + 1;
      skipped += record.skipped ? 1 : 0;
    }
    EXPECT_GE(begun, skipped < config.steps ? 1 : 0);
    EXPECT_EQ(ahead.run.trainer.progress(), one_by_one.run.trainer.progress());
    EXPECT_EQ(ahead.weights(), one_by_one.weights());
    return skipped;
  }
  SelfCommunicator world_{"world"};
};

TrainingRunConfig run_of(std::int64_t steps) {
  TrainingRunConfig config = small_run();
  config.model.layers = 1;
  config.batch = 2;
  config.dtype = DType::bf16;
  config.clip_grad = 0.1;
  config.steps = steps;
  return config;
}

TEST_F(Ahead, TheGpuHasWorkWheneverTheHostWaits) {
  for (const char* layout : {"", "bucket 3000", "graphs"}) {
    SCOPED_TRACE(layout);
    const auto least_left = [&](const TrainingRunConfig& config, bool ahead) {
      Run run(world_, config, layout, ahead);
      for (int i = 0; i < 4; ++i) run.step();  // kernels are loaded, graphs recorded
      fake_cuda::take_least_left();
      for (int i = 0; i < 3; ++i) run.step();
      return fake_cuda::take_least_left();
    };
    const TrainingRunConfig config = run_of(8);
    TrainingRunConfig muon = config;
    muon.optimizer.kind = optim::OptimizerKind::muon;
    EXPECT_EQ(least_left(muon, true), 0);  // the host knows the outcome before the update
    const std::size_t update = least_left(config, false), update_and_forward = least_left(config, true);
    EXPECT_GT(update, 0);
    EXPECT_GT(update_and_forward, update);
  }
}

TEST_F(Ahead, ComputesTheSameBits) {
  for (const char* layout : {"", "bucket 3000", "bucket 3000 overlap", "rounded", "graphs", "bucket 3000 graphs"}) {
    EXPECT_EQ(expect_the_same(run_of(5), layout), 0);
  }
  TrainingRunConfig sgd = run_of(4);
  sgd.dtype = DType::fp32;
  sgd.optimizer.kind = optim::OptimizerKind::sgd;
  EXPECT_EQ(expect_the_same(sgd, ""), 0);
}

// Overflows at the start and after the scale has grown.
TEST_F(Ahead, SkipsTheSameUpdatesAtTheSameLossScales) {
  TrainingRunConfig config = run_of(9);
  config.dtype = DType::fp16;
  config.loss_scale = {.dynamic = true, .initial_scale = 0x1p25, .growth_window = 2, .hysteresis = 1};
  for (const char* layout : {"", "bucket 3000"}) EXPECT_GT(expect_the_same(config, layout), 2);
}

/// Makes a weight NaN.
void spoil_weight(TrainingRun& run) {
  const TensorView weight = run.gpt.parameters().at("ln_f.bias").value;
  run.backend->elementwise().fill(run.backend->compute_stream(), std::nan(""), weight.flat(3, 1));
}

TEST_F(Ahead, SkipsUpdatesThatAreNotFinite) {
  TrainingRunConfig config = run_of(4);
  config.guards.check_for_nan = false;
  EXPECT_EQ(expect_the_same(config, "bucket 3000", spoil_weight), 4);
}

TEST_F(Ahead, StopsWithTheSameMessage) {
  std::string messages[2];
  for (const bool ahead : {false, true}) {
    Run run(world_, run_of(8), "", ahead);
    spoil_weight(run.run);
    messages[ahead] = message_of<NumericalError>([&] { run.step(); });
  }
  EXPECT_THAT(messages[false], testing::HasSubstr("before the step the weight ln_f.bias had 1 of"));
  EXPECT_EQ(messages[true], messages[false]);
}

// A signal stops the run after the iteration that has begun; planned stops and the end are where they are on a CPU.
TEST_F(Ahead, EveryStopIsAfterACompleteIteration) {
  struct Records final : train::MetricsSink {
    void write(const train::TrainRecord& record) override { losses.push_back(record.lm_loss); }
    void write(const train::EvaluationRecord&) override {}
    void write(const train::SampleRecord&) override {}
    void write(const train::TaskRecord&) override {}
    void write(const train::RewindRecord&) override {}
    std::vector<double> losses;
  };
  const TrainingRunConfig config = run_of(6);
  std::vector<double> all;
  const auto stop = [&](int signalled_poll, std::int64_t exit_interval) {
    Run run(world_, config, "bucket 3000", true);
    Records records;
    int polls = 0;
    train::RunHooks hooks;
    hooks.metrics = &records;
    hooks.stop_requested = [&] { return ++polls >= signalled_poll; };
    train::run(run.run.trainer, world_, config.steps, run.run.data, {.log_interval = 0, .exit_interval = exit_interval},
               hooks);
    EXPECT_FALSE(run.run.trainer.is_ahead());
    EXPECT_EQ(std::ssize(records.losses), run.run.trainer.progress().iteration);
    if (all.empty()) all = records.losses;
    EXPECT_TRUE(std::ranges::equal(records.losses, std::span(all).first(records.losses.size())));
    return run.run.trainer.progress().iteration;
  };
  constexpr int never = 100;
  EXPECT_EQ(stop(never, 0), 6);
  EXPECT_EQ(stop(1, 0), 2);
  EXPECT_EQ(stop(5, 0), 6);
  EXPECT_EQ(stop(never, 3), 3);
  EXPECT_EQ(stop(3, 3), 3);
}

// A weight is NaN in the first run of the second iteration alone.
TEST_F(Ahead, FindsAFaultOfTheMachine) {
  for (const int allowed : {0, 1}) {
    TrainingRunConfig config = run_of(4);
    config.guards.max_machine_faults = allowed;
    const auto outcome = [&](bool fails, bool ahead) {
      Run run(world_, config, "bucket 3000", ahead);
      train::Trainer& trainer = run.run.trainer;
      Backend& backend = *run.run.backend;
      trainer.step(*run.run.data.train);
      trainer.await_update();
      const TensorView weight = run.run.gpt.parameters().at("ln_f.bias").value;
      const Tensor sound(backend, weight.dtype(), weight.shape());
      if (fails) {
        backend.copy_within(backend.compute_stream(), weight, sound);
        spoil_weight(run.run);
        trainer.before_update([&] {
          if (std::exchange(fails, false)) backend.copy_within(backend.compute_stream(), sound, weight);
        });
      }
      std::string message;
      std::vector<double> losses;
      try {
        while (trainer.progress().iteration < config.steps) losses.push_back(run.step().lm_loss);
      } catch (const MachineError& error) {
        message = error.what();
      }
      return std::tuple(message, losses, run.weights());
    };
    const auto sound = outcome(false, false), one_by_one = outcome(true, false), ahead = outcome(true, true);
    EXPECT_EQ(ahead, one_by_one);
    if (allowed == 0) {
      EXPECT_THAT(std::get<std::string>(ahead), testing::HasSubstr("a fault of the machine"));
    } else {
      EXPECT_EQ(ahead, sound);
    }
  }
}

}  // namespace
}  // namespace trireme::test
