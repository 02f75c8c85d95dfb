// Whole runs on the CUDA backend, one rank: against PyTorch's figures, the CPU backend, and one another.
#include <gmock/gmock.h>

#include "src/checkpoint/load.hpp"
#include "src/checkpoint/save.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/infer/perplexity.hpp"
#include "src/train/finetune/task_scoring.hpp"
#include "src/train/state_tensors.hpp"
#include "tests/cuda/gpu_backend.hpp"
#include "tests/fakes/memory_store.hpp"
#include "tests/support/first_samples.hpp"
#include "tests/support/generated.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/model_variants.hpp"
#include "tests/support/synthetic_runs.hpp"

namespace trireme::test {
namespace {

class GpuTraining : public GpuBackendTest {
 protected:
  void expect_the_cpus_curve(const TrainingRunConfig& config, const Layout& layout = {}) {
    SCOPED_TRACE(name_of(config.dtype));
    expect_close(training_curve(world_, config, layout, gpu_device()), training_curve(world_, config, layout),
                 tolerance(config.dtype, Comparison::other_backend));
  }
  SelfCommunicator world_{"world"};
};

TEST_F(GpuTraining, ReproducesPyTorch) {
  for (const std::string name : {"synthetic", "llama", "synthetic_hot", "llama_hot", "mixed"}) {
    if (comparison_of(name) == Comparison::pytorch_hot && !is_real_gpu()) continue;
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      // On the host the tests below compare bf16 with the CPU.
      if (dtype == DType::bf16 && !is_real_gpu()) continue;
      SCOPED_TRACE(testing::Message() << name << ", " << name_of(dtype));
      SyntheticRun run = synthetic_run(name);
      run.config.dtype = dtype;
      if (!is_real_gpu()) run.shorten(2);
      if (name == "llama_hot") run.shorten(4);  // each later step enlarges any difference five times
      const Curve curve = training_curve(world_, run.config, {}, gpu_device());
      expect_close(curve, run.curve, tolerance(dtype, comparison_of(name)));
    }
  }
}

TEST_F(GpuTraining, DropoutMatchesTheCpu) { expect_the_cpus_curve(small_run()); }

TEST_F(GpuTraining, MuonComputesWhatTheCpuComputes) {
  TrainingRunConfig config = small_run();
  config.dtype = DType::bf16;
  config.optimizer.kind = optim::OptimizerKind::muon;
  expect_the_cpus_curve(config);
}

TEST_F(GpuTraining, EachArrangementOfALayerComputesWhatTheCpuComputes) {
  for (const char* variant : {"parallel branches with one norm", "OLMo 2", "adapters"}) {
    SCOPED_TRACE(variant);
    TrainingRunConfig config = small_run();
    model_variant(variant).apply(config.model);
    expect_the_cpus_curve(config);
  }
}

TEST_F(GpuTraining, Fp16ScalesItsLoss) {
  TrainingRunConfig config = small_run();
  config.dtype = DType::fp16;
  config.loss_scale.dynamic = true;
  config.loss_scale.initial_scale = 65536;
  const Curve curve = training_curve(world_, config, {}, gpu_device());
  config.dtype = DType::fp32;
  config.loss_scale = {};
  expect_close(curve.loss, training_curve(world_, config, {}).loss,
               tolerance(DType::fp16, Comparison::other_backend).loss);
}

/// Expects the same bits of two deterministic runs, the second with steps that run as graphs.
void expect_the_same_from_graphs(Communicator& world, const TrainingRunConfig& config, const Layout& layout) {
  SCOPED_TRACE(testing::Message() << name_of(config.dtype) << ", " << layout);
  const DeviceChoice device = gpu_device(DeviceTransport::nccl, {.deterministic = true});
  const Curve expected = training_curve(world, config, layout, device);
  expect_same_bits(training_curve(world, config, layout.with("graphs"), device), expected);
}

// On a fake GPU updates run as late as they may. The first two updates in fp16 are skipped.
TEST_F(GpuTraining, UpdatesBesideTheNextForwardComputeTheSameBits) {
  TrainingRunConfig config = small_run();
  config.clip_grad = 0.1;
  for (const bool scales : {false, true}) {
    config.dtype = scales ? DType::fp16 : DType::bf16;
    if (scales) {
      config.loss_scale = {.dynamic = true, .initial_scale = 0x1p25, .hysteresis = 1};
      config.steps = 5;
    }
    for (const char* words : {"bucket 3000", "bucket 3000 rounded", "bucket 3000 overlap", "bucket 3000 graphs"}) {
      const Layout layout(words);
      SCOPED_TRACE(testing::Message() << name_of(config.dtype) << ", " << layout);
      const BackendOptions options{.deterministic = true};
      const Curve expected =
          training_curve(world_, config, layout.with("prompt-update"), gpu_device(DeviceTransport::nccl, options));
      EXPECT_EQ(training_curve(world_, config, layout, slow_communication(DeviceTransport::nccl, options)).loss,
                expected.loss);
      slow_new_streams(false);
    }
  }
}

// Not for what is recorded before the GPU reaches the graph: that comes after the graph here, as the next update does.
TEST_F(GpuTraining, GraphsWaitForAnEventAsItIsAtTheirLaunch) {
  const std::unique_ptr<Backend> backend = gpu_device().make();
  Stream& compute = backend->compute_stream();
  const std::unique_ptr<Stream> other = backend->make_background_stream();
  const Tensor data(*backend, DType::fp32, {std::int64_t{1} << 22});
  const std::unique_ptr<Event> event = other->record();
  const std::unique_ptr<Graph> graph = dynamic_cast<GraphRecorder&>(*backend).record([&] {
    compute.wait_at_launch(*event);
    backend->elementwise().fill(compute, 1, data);
  });
  for (int i = 0; i < 60; ++i) backend->elementwise().fill(compute, i, data);
  graph->launch(compute);
  other->wait(*compute.record());
  other->record_again(*event);
  other->synchronize();
}

// The host then decides about updates, and graphs are recorded before the first one.
TEST_F(GpuTraining, GraphsOfForwardsBeforeTheFirstUpdateWaitForLaterOnes) {
  TrainingRunConfig config = small_run();
  config.dtype = DType::fp16;
  config.loss_scale = {.dynamic = true, .initial_scale = 0x1p25, .hysteresis = 1};
  config.steps = 8;
  const auto losses = [&](const Layout& layout, const DeviceChoice& device) {
    TrainingRun run(world_, config, layout, {}, device);
    run.trainer.observe({.num_zeros = true});
    std::vector<double> result;
    for (int i = 0; i < config.steps; ++i) result.push_back(run.step().loss());
    return result;
  };
  const BackendOptions options{.deterministic = true};
  const std::vector<double> expected = losses("bucket 3000 prompt-update", gpu_device(DeviceTransport::nccl, options));
  EXPECT_NE(expected.front(), expected.back());
  EXPECT_EQ(losses("bucket 3000 graphs", slow_communication(DeviceTransport::nccl, options)), expected);
  slow_new_streams(false);
}

// Five layers share three slots. Copies run in random order, or only if nothing else can.
TEST_F(GpuTraining, ActivationsAndStateInHostMemoryLeaveTheBits) {
  TrainingRunConfig config = small_run();
  config.model.layers = 5;
  config.dtype = DType::bf16;
  config.steps = 3;
  const BackendOptions options{.deterministic = true};
  const DeviceChoice device = gpu_device(DeviceTransport::nccl, options);
  const Layout layout("bucket 3000");
  const Curve expected = training_curve(world_, config, layout, device);
  config.optimizer.offload = {.fraction = 0.8, .piece_elements = 512};
  for (const char* words : {"offload 5", "offload 2 prompt-update"}) {
    for (const DeviceChoice& choice : {device, slow_communication(DeviceTransport::nccl, options)}) {
      SCOPED_TRACE(words);
      expect_same_bits(training_curve(world_, config, layout.with(words), choice), expected);
      slow_new_streams(false);
    }
  }
  expect_predicted_memory(world_, config, layout.with("offload 5"), device);
}

TEST_F(GpuTraining, GraphsComputeTheSameBits) {
  // 1F1B has one micro-batch in flight: of the four of an update one runs directly, one is recorded, two are replayed.
  TrainingRunConfig config = small_run();
  config.dtype = DType::bf16;
  expect_the_same_from_graphs(world_, config, {});
  model_variant("adapters").apply(config.model);
  expect_the_same_from_graphs(world_, config, {});
}

/// A small run with products in FP8.
TrainingRunConfig fp8_run(parallel::Fp8Recipe recipe) {
  TrainingRunConfig config = small_run();
  config.fp8 = {.used = true, .recipe = recipe};
  if (recipe == parallel::Fp8Recipe::delayed) config.steps = 3;  // the first only measures
  return config;
}

TEST_F(GpuTraining, ProductsInFp8ComputeWhatTheCpuComputes) {
  for (const auto recipe : {parallel::Fp8Recipe::delayed, parallel::Fp8Recipe::tensorwise}) {
    expect_the_cpus_curve(fp8_run(recipe));
  }
  TrainingRunConfig config = fp8_run(parallel::Fp8Recipe::blockwise);
  config.model.hidden = config.s = config.model.max_positions = 128;
  config.model.layers = config.steps = 1;
  config.batch = 1;
  expect_the_cpus_curve(config);
}

// Weights are rounded in the first micro-batch of an update alone.
TEST_F(GpuTraining, GraphsOfProductsInFp8ComputeTheSameBits) {
  TrainingRunConfig config = fp8_run(parallel::Fp8Recipe::delayed);
  config.model.layers = 1;
  config.dtype = DType::bf16;
  config.steps = 4;
  for (const char* layout : {"", "uniform 1 zero-bubble"}) expect_the_same_from_graphs(world_, config, layout);
}

TEST_F(GpuTraining, MemoryOfProductsInFp8IsAsPredicted) {
  TrainingRunConfig config = fp8_run(parallel::Fp8Recipe::delayed);
  config.dtype = DType::bf16;
  config.steps = 2;
  for (const char* layout : {"1f1b selective", "zero-bubble"}) {
    expect_predicted_memory(world_, config, layout, gpu_device());
  }
}

TrainingRunConfig run_with_experts() {
  TrainingRunConfig config = small_run();
  config.model.linear_bias = false;
  config.model.gated = true;
  config.model.experts = {.count = 4, .shared_hidden = 16, .balance = {{.coefficient = 0.1}}, .capacity_factor = 1.1};
  return config;
}

// Capacities drop tokens and leave rows without any.
TEST_F(GpuTraining, GraphsOfPaddedExpertsComputeTheSameBits) {
  const TrainingRunConfig config = run_with_experts();
  expect_the_cpus_curve(config, "pad");
  for (const char* layout : {"pad", "pad experts"}) expect_the_same_from_graphs(world_, config, layout);
}

// The loss is then computed in backward, which is recorded.
TEST_F(GpuTraining, GraphsOfChunkedCrossEntropyComputeTheSameBitsAsTheCpuComputes) {
  TrainingRunConfig config = small_run();
  config.optimizer.adamw = {0.9, 0.95, 1e-8, DType::bf16, DType::bf16};
  const Layout layout = "cross-entropy-chunks 3";
  expect_the_cpus_curve(config, layout);
  expect_the_same_from_graphs(world_, config, layout);
  expect_predicted_memory(world_, config, layout, gpu_device());
}

/// A BERT with heads that have flash attention in 16 bits. Samples end in each of the tiles.
TrainingRunConfig small_bert(model::NormPlacement placement) {
  TrainingRunConfig config = small_run();
  config.model.family = model::ModelFamily::bert;
  config.model.norm_placement = placement;
  config.model.activation = Activation::gelu_erf;
  config.model.hidden = 128;
  config.model.heads = 2;
  config.s = config.model.max_positions = 80;
  config.dtype = DType::bf16;
  return config;
}

TEST_F(GpuTraining, ABertComputesWhatTheCpuComputes) { expect_the_cpus_curve(small_bert(model::NormPlacement::pre)); }

TEST_F(GpuTraining, DocumentsApartComputeWhatTheCpuComputes) {
  for (const bool rotates : {false, true}) {
    TrainingRunConfig config = small_run();
    config.documents = {true, true, true};
    if (rotates) config.model.position_embedding = model::PositionEmbedding::rope;
    expect_the_cpus_curve(config);
  }
}

// The next micro-batch has other document boundaries.
TEST_F(GpuTraining, GraphsOfDocumentsApartComputeTheSameBits) {
  TrainingRunConfig config = small_run();
  config.documents = {true, true, true};
  config.model.position_embedding = model::PositionEmbedding::rope;
  config.dtype = DType::bf16;
  expect_the_same_from_graphs(world_, config, {});
}

// The lengths of the samples differ from one micro-batch to the next.
TEST_F(GpuTraining, GraphsOfABertComputeTheSameBits) {
  TrainingRunConfig config = small_bert(model::NormPlacement::post);
  config.steps = 1;
  expect_the_same_from_graphs(world_, config, {});
}

/// Short runs of every head of a task, with two samples or the choices of two in a micro-batch. Lengths and labels
/// differ from one micro-batch to the next. Family, arrangement and type vary.
std::vector<std::pair<TrainingRunConfig, Layout>> task_runs() {
  using model::ModelOutput;
  std::vector<std::pair<TrainingRunConfig, Layout>> runs;
  const auto add = [&](model::ModelFamily family, model::NormPlacement placement, DType dtype, ModelOutput output,
                       std::int64_t classes) {
    TrainingRunConfig config = small_run();
    config.model.family = family;
    config.model.norm_placement = placement;
    config.model.layers = 1;
    config.model.output = output;
    config.model.classes = classes;
    config.dtype = dtype;
    config.batch = 8 * config.model.samples_per_label();
    runs.emplace_back(config, fmt::format("b {}", config.batch / 4));
  };
  add(model::ModelFamily::bert, model::NormPlacement::pre, DType::bf16, ModelOutput::classes, 3);
  add(model::ModelFamily::gpt, model::NormPlacement::pre, DType::fp32, ModelOutput::classes, 1);
  add(model::ModelFamily::bert, model::NormPlacement::post, DType::fp32, ModelOutput::choices, 2);
  add(model::ModelFamily::bert, model::NormPlacement::pre, DType::bf16, ModelOutput::spans, 2);
  return runs;
}

TEST_F(GpuTraining, TaskHeadsComputeWhatTheCpuComputes) {
  for (const auto& [config, layout] : task_runs()) {
    SCOPED_TRACE(testing::Message() << name_of(config.dtype) << ", output " << static_cast<int>(config.model.output));
    TrainingRun gpu(world_, config, layout, {}, gpu_device()), cpu(world_, config, layout);
    const RunTolerance tolerated = tolerance(config.dtype, Comparison::other_backend);
    const FirstSamples samples(*gpu.data.train, 6);
    const train::TaskScores actual = train::score_samples(gpu.gpt, samples);
    const train::TaskScores expected = train::score_samples(cpu.gpt, samples);
    EXPECT_NEAR(actual.loss / expected.loss, 1, tolerated.loss);
    EXPECT_THAT(actual.scores, testing::Pointwise(testing::DoubleNear(10 * tolerated.loss), expected.scores));
    for (std::int64_t i = 0; i < config.steps; ++i) {
      const train::TrainRecord actual = gpu.step(), expected = cpu.step();
      EXPECT_NEAR(actual.lm_loss / expected.lm_loss, 1, tolerated.loss);
      EXPECT_NEAR(actual.grad_norm / expected.grad_norm, 1, tolerated.grad_norm);
    }
  }
}

TEST_F(GpuTraining, GraphsOfTaskHeadsComputeTheSameBits) {
  for (auto [config, layout] : task_runs()) {
    SCOPED_TRACE(testing::Message() << "output " << static_cast<int>(config.model.output));
    config.steps = 1;
    expect_the_same_from_graphs(world_, config, layout);
  }
}

TEST_F(GpuTraining, ScoringAndEvaluatingBetweenGraphsChangesNothing) {
  const auto [config, layout] = task_runs().front();
  std::vector<double> figures[2];
  for (const bool graphs : {false, true}) {
    TrainingRun run(world_, config, graphs ? layout.with("graphs") : layout, {},
                    gpu_device(DeviceTransport::nccl, {.deterministic = true}));
    const FirstSamples samples(*run.data.train, 3);
    for (std::int64_t i = 0; i < config.steps; ++i) {
      figures[graphs].push_back(run.step().lm_loss);
      figures[graphs].push_back(run.trainer.evaluate(*run.data.train, 0, 1)->loss);
      std::ranges::copy(train::score_samples(run.gpt, samples).scores, std::back_inserter(figures[graphs]));
    }
  }
  EXPECT_EQ(figures[0], figures[1]);
}

TEST_F(GpuTraining, MemoryOfATaskIsAsPredicted) {
  for (auto [config, layout] : task_runs()) {
    config.steps = 1;
    expect_predicted_memory(world_, config, layout.with("graphs"), gpu_device());
  }
}

TEST_F(GpuTraining, GraphsOfAllMicroBatchesInFlightComputeTheSameBits) {
  TrainingRunConfig config = small_run();
  config.model.layers = 1;
  config.batch = 2;
  config.steps = 4;  // plain, recorded, replayed twice
  for (const char* schedule : {"gpipe", "zero-bubble"}) expect_the_same_from_graphs(world_, config, schedule);
}

TEST_F(GpuTraining, MemoryIsAsPredicted) {
  TrainingRunConfig config = small_run();
  config.dtype = DType::bf16;
  config.steps = 1;
  for (const char* layout : {"1f1b selective", "zero-bubble uniform 1 graphs"}) {
    expect_predicted_memory(world_, config, layout, gpu_device());
  }
}

TEST_F(GpuTraining, GraphsReadTheLossScaleThatChanges) {
  TrainingRunConfig config = small_run();
  config.dtype = DType::fp16;
  config.loss_scale.dynamic = true;
  config.loss_scale.initial_scale = 1024;
  config.loss_scale.growth_window = 1;
  config.steps = 3;
  expect_the_same_from_graphs(world_, config, {});
  // The balance loss has a gradient of its own. With a window of 3 the graphs of one scale are replayed, too.
  config.model = run_with_experts().model;
  config.loss_scale.growth_window = 3;
  config.steps = 8;
  expect_the_same_from_graphs(world_, config, "pad");
}

// Then the second update needs more streams than the first, which measured one after another.
TEST_F(GpuTraining, GraphsFollowAnUpdateThatMeasuredEveryProduct) {
  TrainingRunConfig config = small_run();
  config.model.layers = 1;
  config.batch = 1;
  config.dtype = DType::bf16;
  config.steps = 3;
  TrainingRun run(world_, config, "graphs", {}, gpu_device());
  for (std::int64_t i = 0; i < config.steps; ++i) EXPECT_NO_THROW(run.step());
}

TEST_F(GpuTraining, GraphsAreRefusedIfUnsupported) {
  const auto refusal = [&](const Layout& layout, const DeviceChoice& device) {
    return message_of<ConfigError>([&] { TrainingRun(world_, small_run(), layout, {}, device); });
  };
  EXPECT_THAT(refusal("graphs", {}), testing::HasSubstr("the backend cpu has no graphs"));
  EXPECT_THAT(refusal("graphs overlap zero2", gpu_device()),
              testing::HasSubstr("does not support <overlap_grad_reduce> with ZeRO 2"));
}

/// Saves the state of `from` and continues from it in `to`.
void move_state(TrainingRun& from, TrainingRun& to, Communicator& world) {
  checkpoint::MemoryStore store;
  train::HostState saved(*from.backend, from.trainer.state_tensors());
  saved.fetch();
  checkpoint::save(store, world, {1, from.trainer.state_attributes(), {}}, saved.tensors());
  const auto step = checkpoint::open_checkpoint(store, world);
  train::HostState loaded(*to.backend, to.trainer.state_tensors());
  checkpoint::load(*step, world, loaded.tensors());
  loaded.store();
  to.trainer.restore(checkpoint::read_description(*step).attributes);
}

// A load writes state that is in host memory itself.
TEST_F(GpuTraining, ACheckpointMovesBetweenStateOnTheGpuAndInHostMemory) {
  TrainingRunConfig config = small_run();
  config.dtype = DType::bf16;
  config.steps = 3;
  TrainingRunConfig offloaded = config;
  offloaded.optimizer.offload = {.fraction = 0.5, .piece_elements = 512};
  const DeviceChoice device = gpu_device(DeviceTransport::nccl, {.deterministic = true});
  TrainingRun first(world_, config, "bucket 3000", {}, device), second(world_, offloaded, "bucket 3000", {}, device),
      third(world_, config, "bucket 3000", {}, device);
  first.step();
  move_state(first, second, world_);
  const double expected = first.step().lm_loss;
  EXPECT_EQ(second.step().lm_loss, expected);
  move_state(second, third, world_);
  const double last = first.step().lm_loss;
  EXPECT_EQ(second.step().lm_loss, last);
  EXPECT_EQ(third.step().lm_loss, last);
}

TEST_F(GpuTraining, ACheckpointOfTheGpuContinuesOnTheCpuAndBack) {
  const TrainingRunConfig config = small_run();
  const DeviceChoice device = gpu_device(DeviceTransport::nccl, {.deterministic = true});
  TrainingRun gpu(world_, config, {}, {}, device), cpu(world_, config, {}), other_gpu(world_, config, {}, {}, device);
  gpu.step();
  move_state(gpu, cpu, world_);
  move_state(cpu, other_gpu, world_);
  const double expected = gpu.step().lm_loss;
  EXPECT_EQ(other_gpu.step().lm_loss, expected) << "the same state gives the same bits";
  EXPECT_NEAR(cpu.step().lm_loss / expected, 1, 1e-5);
}

TEST_F(GpuTraining, GenerationAndPerplexityMatchTheCpu) {
  TrainingRunConfig config = small_run();
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  config.init_scale = 20;  // logits that differ
  TrainingRun gpu(world_, config, {}, {}, gpu_device()), cpu(world_, config, {});
  infer::SamplingOptions greedy;
  greedy.temperature = 0;
  const auto text = [&](TrainingRun& run) { return test::generated(run.gpt, world_, {3, 14, 15}, 6, greedy); };
  EXPECT_EQ(text(gpu), text(cpu));
  const auto corpus = synthetic_tokens(config);
  EXPECT_NEAR(infer::measure_perplexity(gpu.gpt, *corpus).loss / infer::measure_perplexity(cpu.gpt, *corpus).loss, 1,
              tolerance(DType::fp32, Comparison::other_backend).loss);
}

TEST_F(GpuTraining, TwoHundredStepsInBf16FollowTheCpuInFp32) {
  if (!is_real_gpu()) GTEST_SKIP() << "too long for kernels on the host";
  TrainingRunConfig config;
  config.steps = 200;
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  config.dtype = DType::fp32;
  const Curve expected = training_curve(world_, config, {});
  config.dtype = DType::bf16;
  expect_close(training_curve(world_, config, {}, gpu_device()).loss, expected.loss, 0.01);
}

}  // namespace
}  // namespace trireme::test
