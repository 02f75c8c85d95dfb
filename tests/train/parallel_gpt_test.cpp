// Models on one rank: memory as predicted, halves of the backward, generation, perplexity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "src/comm/self_communicator.hpp"
#include "src/data/dataset/next_token_labels.hpp"
#include "src/model/initialisation.hpp"
#include "src/model/stage/decoding_stage.hpp"
#include "src/train/generation.hpp"
#include "src/train/memory_estimate.hpp"
#include "src/train/perplexity.hpp"
#include "src/train/trainer.hpp"
#include "tests/fakes/memory_token_store.hpp"
#include "tests/support/model_variants.hpp"
#include "tests/support/tolerance.hpp"

namespace trireme::train {
namespace {

model::GptConfig small_config() {
  return {.layers = 3,
          .hidden = 32,
          .heads = 4,
          .ffn_hidden = 128,
          .max_positions = 16,
          .vocabulary = 50,
          .hidden_dropout = 0,
          .attention_dropout = 0};
}

model::GptConfig small_config(const test::ModelVariant& variant, double dropout) {
  model::GptConfig config = small_config();
  config.hidden_dropout = dropout;
  config.attention_dropout = dropout;
  variant.apply(config);
  return config;
}

const double same_loss = test::tolerance(DType::fp64, test::Comparison::other_average).loss;

/// A model on one rank with its surroundings.
struct Rig {
  explicit Rig(const ExecutionConfig& layout, const model::GptConfig& config = small_config(), double std = 0.02)
      : gpt(*backend, world, grid, communicators, config, layout) {
    model::Initialisation initial;
    initial.layers = config.layers;
    initial.std = std;
    model::initialise(*backend, gpt.parameters().parameters(), initial);
  }
  SelfCommunicator world;
  parallel::ProcessGrid grid{1, 1, 1};
  std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  parallel::GridCommunicators communicators = parallel::make_grid_communicators(grid, world);
  ParallelGpt gpt;
};

ExecutionConfig layout_of(DType dtype, std::int64_t s, std::int64_t b) {
  ExecutionConfig layout;
  layout.dtype = dtype;
  layout.sequence_length = s;
  layout.micro_batch_size = b;
  return layout;
}

data::MemoryTokenStore counting_corpus(std::int64_t tokens) {
  std::vector<std::int32_t> ids;
  for (std::int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<std::int32_t>(i * 7 % 50));
  data::CorpusInfo info;
  info.tokenizer = "formula";
  info.vocabulary_size = 50;
  return {info, std::vector<std::vector<std::int32_t>>{ids}};
}

/// Samples of 16 positions, or of another length, that a formula gives.
class FormulaSamples final : public data::NextTokenSamples {
 public:
  explicit FormulaSamples(std::int64_t length = 16) : length_(length) {}
  std::int64_t size() const override { return 1000; }
  std::int64_t sequence_length() const override { return length_; }
  void read_text(std::int64_t index, std::span<std::int32_t> tokens) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::int32_t>((static_cast<std::size_t>(index) * 5 + i * 3) % 50);
    }
  }

 private:
  std::int64_t length_;
};

TEST(MemoryEstimate, IsWhatTheAllocatorCounts) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    for (const auto& [dtype, granularity] : std::vector<std::pair<DType, model::RecomputeGranularity>>{
             {DType::fp64, model::RecomputeGranularity::none},
             {DType::fp32, model::RecomputeGranularity::none},
             {DType::bf16, model::RecomputeGranularity::none},
             {DType::fp16, model::RecomputeGranularity::full},
             {DType::bf16, model::RecomputeGranularity::selective}}) {
      SCOPED_TRACE(testing::Message() << variant.name << ", " << name_of(dtype));
      ExecutionConfig layout = layout_of(dtype, 16, 4);
      layout.recomputation.granularity = granularity;
      Rig rig(layout, small_config(variant, 0));
      TrainOptions options;
      options.global_batch_size = 8;
      options.lr_schedule.maximum = 1e-3;
      options.lr_schedule.decay = 10;
      Trainer trainer(rig.gpt, options);
      trainer.step(FormulaSamples());
      trainer.evaluate(FormulaSamples(), 0, 1);
      const MemoryEstimate estimate =
          estimate_memory(*rig.backend, rig.gpt.config(), rig.gpt.execution(), options, rig.grid, 0);
      EXPECT_EQ(rig.backend->peak_allocated_bytes(), estimate.total());
      EXPECT_EQ(rig.gpt.parameters().values().size_bytes(), estimate.parameters);
      EXPECT_EQ(rig.gpt.parameters().gradients().size_bytes(), estimate.gradients);
      EXPECT_GE(estimate.activations, rig.gpt.stage().activations().peak_bytes());
      // Ids, targets, weights and numbers of the batch and the next one; the rest are two sums.
      const std::size_t batch = 2 * 4 * (16 * (4 + 4 + size_of(accumulation_type(dtype))) + 8);
      EXPECT_EQ(estimate.batches, 2 * batch + 2 * 64);
      std::size_t state = 0;
      for (const checkpoint::StateTensor& tensor : trainer.state_tensors()) state += tensor.data.size_bytes();
      EXPECT_EQ(estimate.state, state);
      const MinMemory minimum = min_memory(rig.gpt.config(), rig.gpt.execution(), rig.grid, options.optimizer.kind);
      const auto parameters = static_cast<double>(estimate.parameters + estimate.gradients + estimate.optimizer);
      EXPECT_LE(minimum.parameters, parameters);
      EXPECT_GE(minimum.parameters, 0.5 * parameters);
      EXPECT_LE(minimum.total(), static_cast<double>(estimate.total()));

      // SGD keeps one moment less.
      options.optimizer.kind = optim::OptimizerKind::sgd;
      const std::size_t moment = trainer.optimizer_bytes() / (2 + (accumulation_type(dtype) == dtype ? 0 : 1));
      const MemoryEstimate of_sgd =
          estimate_memory(*rig.backend, rig.gpt.config(), rig.gpt.execution(), options, rig.grid, 0);
      EXPECT_EQ(of_sgd.optimizer, estimate.optimizer - moment);
      const MinMemory min_of_sgd =
          min_memory(rig.gpt.config(), rig.gpt.execution(), rig.grid, optim::OptimizerKind::sgd);
      EXPECT_LT(min_of_sgd.parameters, minimum.parameters);
      EXPECT_LE(min_of_sgd.total(), static_cast<double>(of_sgd.total()));
    }
  }
}

TEST(MemoryEstimate, CountsTensorsThatHaveBlocksOfTheirOwn) {
  model::GptConfig config = small_config();
  config.layers = 2;
  config.hidden = 128;
  config.ffn_hidden = 512;
  config.max_positions = 256;
  Rig rig(layout_of(DType::fp32, 256, 4), config);
  TrainOptions options;
  options.global_batch_size = 4;
  options.lr_schedule.maximum = 1e-3;
  options.lr_schedule.decay = 10;
  Trainer trainer(rig.gpt, options);
  trainer.step(FormulaSamples(256));
  const MemoryEstimate estimate =
      estimate_memory(*rig.backend, rig.gpt.config(), rig.gpt.execution(), options, rig.grid, 0);
  EXPECT_EQ(rig.backend->peak_allocated_bytes(), estimate.total());
  // The small allocations of all layers share one block of 4 MiB.
  EXPECT_LT(estimate.activations, rig.gpt.stage().activations().peak_bytes() + (std::size_t{4} << 20));
}

TEST(LayerActivations, OneFormulaOfTheLiteratureApplies) {
  model::GptConfig config = small_config();
  config.heads = 4;
  ExecutionConfig layout = layout_of(DType::bf16, 16, 4);
  const std::unique_ptr<Backend> backend = make_backend(BackendChoice::cpu, 1);
  const double sbh = 16 * 4 * 32;
  const auto applying = [&](int tensor_size) {
    double bytes = 0;
    for (const auto& published : layer_activations(*backend, config, layout, tensor_size).published) {
      if (published.applies) bytes += published.bytes;
    }
    return bytes / sbh;
  };
  EXPECT_DOUBLE_EQ(applying(1), 10 + 24 + 5 * 4 * 16 / 32.0);
  EXPECT_DOUBLE_EQ(applying(2), 10 + 12 + 5 * 4 * 16 / 64.0);
  layout.parallel.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(applying(2), 17 + 5 * 4 * 16 / 64.0);
  layout.recomputation.granularity = model::RecomputeGranularity::selective;
  EXPECT_DOUBLE_EQ(applying(2), 17);
  layout.parallel.sequence_parallel = false;
  EXPECT_DOUBLE_EQ(applying(2), 22);
  layout.recomputation.granularity = model::RecomputeGranularity::full;
  EXPECT_DOUBLE_EQ(applying(2), 2);
  layout.recomputation.distribute = true;
  EXPECT_DOUBLE_EQ(applying(2), 1);
  // A layer alone keeps its input only.
  EXPECT_EQ(layer_activations(*backend, config, layout, 2).kept, sbh);
}

TEST(GptStage, BothHalvesOfBackwardMakeTheWhole) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    // Two models with the same weights; one runs backward at once, the other in halves.
    const model::GptConfig config = small_config(variant, 0.1);
    Rig whole(layout_of(DType::fp64, 16, 4), config);
    Rig halves(layout_of(DType::fp64, 16, 4), config);
    for (Rig* rig : {&whole, &halves}) {
      BatchLoader loader(*rig->backend, parallel::SequenceShard::of(16), 4, 1, DType::fp64);
      model::StageMode mode;
      mode.backward = true;
      mode.hidden_dropout = 0.1;
      mode.attention_dropout = 0.1;
      mode.seed = 5;
      rig->gpt.stage().begin(loader.load(FormulaSamples(), {{0, 0}, {1, 1}, {2, 2}, {3, 3}}), mode);
      rig->gpt.stage().forward(0, 0, {}, {});
      if (rig == &whole) {
        rig->gpt.stage().backward(0, 0, {}, {});
      } else {
        rig->gpt.stage().backward_input(0, 0, {}, {});
        rig->gpt.stage().backward_weight(0, 0);
      }
    }
    const TensorView a = whole.gpt.parameters().gradients();
    const TensorView b = halves.gpt.parameters().gradients();
    double max_gradient = 0;
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      EXPECT_EQ(a.as<double>()[i], b.as<double>()[i]) << variant.name << " " << i;
      max_gradient = std::max(max_gradient, std::abs(a.as<double>()[i]));
    }
    EXPECT_GT(max_gradient, 0);
  }
}

TEST(GptStage, AttendsToThePositionsWithinTheLengthsOfItsMicroBatch) {
  Rig rig(layout_of(DType::fp64, 16, 1), small_config(), 0.5);
  std::vector<std::int32_t> ids(16, 3), lengths = {8};
  const std::vector<std::int32_t> targets(16, 7);
  const std::vector<std::int64_t> numbers = {0};
  std::vector<double> weights(16);
  weights.back() = 1;  // the loss of the last position alone
  const auto loss_with = [&](std::size_t changed, bool is_padded) {
    ids.assign(16, 3);
    ids[changed] = 4;
    model::MicroBatch batch{
        {ids.data(), {16, 1}}, {targets.data(), {16, 1}}, {weights.data(), {16}}, {numbers.data(), {1}}};
    if (is_padded) batch.lengths = {lengths.data(), {1}};
    rig.gpt.stage().begin({batch}, {});
    rig.gpt.stage().forward(0, 0, {}, {});
    return rig.gpt.stage().take_loss_sum();
  };
  EXPECT_EQ(loss_with(8, true), loss_with(14, true));
  EXPECT_NE(loss_with(7, true), loss_with(14, true));
  EXPECT_NE(loss_with(8, false), loss_with(14, false));
}

TEST(GptStage, GradientsMatchFiniteDifferences) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    Rig rig(layout_of(DType::fp64, 16, 2), small_config(variant, 0.2), 0.2);
    BatchLoader loader(*rig.backend, parallel::SequenceShard::of(16), 2, 1, DType::fp64);
    model::StageMode mode;
    mode.backward = true;
    mode.hidden_dropout = 0.2;
    mode.attention_dropout = 0.2;
    mode.seed = 3;
    const std::vector<model::MicroBatch> batch = loader.load(FormulaSamples(), {{4, 0}, {9, 1}});
    const auto loss = [&] {
      rig.gpt.stage().begin(batch, mode);
      rig.gpt.stage().forward(0, 0, {}, {});
      return rig.gpt.stage().take_loss_sum();
    };
    const test::Tolerance close = test::tolerance(DType::fp64, test::Operation::model_difference);
    loss();
    rig.gpt.stage().backward(0, 0, {}, {});
    // `begin` drops what a forward without its backward kept.
    for (const parallel::Parameter& parameter : rig.gpt.parameters().parameters()) {
      for (const std::int64_t i : {std::int64_t{0}, parameter.box.numel() / 2, parameter.box.numel() - 1}) {
        double& value = parameter.value.as<double>()[i];
        const double at = value;
        const double step = 1e-5;
        value = at + step;
        const double above = loss();
        value = at - step;
        const double below = loss();
        value = at;
        const double difference = (above - below) / (2 * step);
        EXPECT_NEAR(parameter.gradient.as<double>()[i], difference,
                    close.absolute + close.relative * std::abs(difference))
            << variant.name << ": " << parameter.name << " element " << i;
      }
    }
  }
}

TEST(Perplexity, OfAUniformModelIsTheVocabulary) {
  Rig rig(layout_of(DType::fp64, 16, 2), small_config(), 0.0);
  // 38 tokens: two windows of 16 targets and a last one of 5.
  const PerplexityResult result = measure_perplexity(rig.gpt, counting_corpus(38));
  EXPECT_EQ(result.tokens, 37);
  EXPECT_NEAR(result.perplexity / 50, 1, same_loss);
}

TEST(Perplexity, OfTokensThatTheModelDoesNotKnowIsRefused) {
  Rig rig(layout_of(DType::fp64, 16, 2), small_config(), 0.0);
  data::CorpusInfo info;
  info.vocabulary_size = 60;
  const data::MemoryTokenStore corpus(info, {{1, 2, 3, 55, 4}});
  EXPECT_THAT([&] { measure_perplexity(rig.gpt, corpus); },
              testing::ThrowsMessage<DataError>(testing::HasSubstr("token 3 is 55, not in the vocabulary of 50 ids")));
}

TEST(Perplexity, DoesNotDependOnTheMicroBatch) {
  Rig one(layout_of(DType::fp64, 16, 1), small_config(), 0.3);
  Rig three(layout_of(DType::fp64, 16, 3), small_config(), 0.3);
  EXPECT_NEAR(
      measure_perplexity(one.gpt, counting_corpus(100)).loss / measure_perplexity(three.gpt, counting_corpus(100)).loss,
      1, same_loss);
}

TEST(Generation, WithItsCacheEqualsWholeForwards) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    Rig rig(layout_of(DType::fp64, 16, 1), small_config(variant, 0), 0.5);
    SamplingOptions greedy;
    greedy.temperature = 0;
    const std::vector<std::int32_t> prompt = {3, 14, 15};
    const std::vector<std::int32_t> text = generate(rig.gpt, rig.world, prompt, 10, -1, greedy);
    ASSERT_EQ(text.size(), 10u);
    // Token by token anew: each continuation of a longer prompt begins with the next token.
    std::vector<std::int32_t> so_far = prompt;
    for (const std::int32_t token : text) {
      EXPECT_EQ(generate(rig.gpt, rig.world, so_far, 1, -1, greedy).front(), token) << variant.name;
      so_far.push_back(token);
    }
  }
}

TEST(Generation, GivesTheProbabilitiesOfTraining) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    Rig rig(layout_of(DType::fp64, 16, 1), small_config(variant, 0), 0.5);
    model::GptStage& stage = rig.gpt.stage();
    BatchLoader loader(*rig.backend, parallel::SequenceShard::of(16), 1, 1, DType::fp64);
    stage.begin(loader.load(FormulaSamples(), {{3, 0}}), {});
    stage.forward(0, 0, {}, {});
    const double expected = stage.take_loss_sum();

    std::vector<std::int32_t> tokens(17);
    FormulaSamples().read_text(3, tokens);
    model::DecodingStage decoding(stage, 16);
    const ConstTensorView logits = decoding.logits();
    double sum = 0;
    for (std::int64_t i = 0; i < 16; ++i) {
      decoding.begin(std::span(tokens).subspan(static_cast<std::size_t>(i), 1));
      decoding.forward(0, 0, {}, {});
      double total = 0;
      for (std::int64_t token = 0; token < 50; ++token) total += std::exp(logits.as<double>()[token]);
      sum += std::log(total) - logits.as<double>()[tokens[static_cast<std::size_t>(i) + 1]];
    }
    EXPECT_NEAR(sum / expected, 1, test::tolerance(DType::fp64, test::Comparison::other_order).loss) << variant.name;
  }
}

TEST(Generation, GoesOnBeyondTheModelsPositions) {
  Rig rig(layout_of(DType::fp32, 16, 1), small_config(), 0.5);
  const std::vector<std::int32_t> text = generate(rig.gpt, rig.world, {1}, 50, -1, {});
  EXPECT_EQ(text.size(), 50u);
  EXPECT_THAT(text, testing::Each(testing::AllOf(testing::Ge(0), testing::Lt(50))));
}

TEST(ChooseToken, GreedyTakesTheLikeliestAndTheFirstOfEquals) {
  SamplingOptions greedy;
  greedy.temperature = 0;
  EXPECT_EQ(choose_token({0, 2, 1, 2}, greedy, 0), 1);
}

TEST(ChooseToken, TopKAndTopPLeaveOutTheUnlikely) {
  SamplingOptions two;
  two.top_k = 2;
  SamplingOptions nucleus;
  nucleus.top_p = 0.6;  // exp(3) of about 28 is 0.72: the first alone
  for (std::int64_t position = 0; position < 200; ++position) {
    EXPECT_THAT(choose_token({0, 3, 1.5f, 1}, two, position), testing::AnyOf(1, 2));
    EXPECT_EQ(choose_token({0, 3, 1.5f, 1}, nucleus, position), 1);
  }
}

TEST(ChooseToken, FollowsTheProbabilities) {
  SamplingOptions plain;
  int ones = 0;
  for (std::int64_t position = 0; position < 20000; ++position) {
    ones += choose_token({0, std::log(3.0f)}, plain, position) == 1 ? 1 : 0;
  }
  EXPECT_NEAR(ones / 20000.0, 0.75, 0.015);  // four standard deviations
}

TEST(Trainer, SkipsAnUpdateWhoseLossIsNotFiniteAndGivesUpInTheEnd) {
  Rig rig(layout_of(DType::fp32, 16, 2));
  TrainOptions options;
  options.global_batch_size = 2;
  options.lr_schedule.maximum = 1e-3;
  options.lr_schedule.decay = 10;
  options.max_skipped = 3;
  Trainer trainer(rig.gpt, options);
  rig.gpt.parameters().at("ln_f.bias").value.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const float before = rig.gpt.parameters().at("wte").value.as<float>()[5];
  EXPECT_TRUE(trainer.step(FormulaSamples()).skipped);
  EXPECT_TRUE(trainer.step(FormulaSamples()).skipped);
  EXPECT_EQ(rig.gpt.parameters().at("wte").value.as<float>()[5], before);
  EXPECT_EQ(trainer.progress().consumed_samples, 4);
  EXPECT_THROW(trainer.step(FormulaSamples()), NumericalError);
}

TEST(Trainer, LearnsARuleInEveryType) {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
    Rig rig(layout_of(dtype, 16, 8));
    TrainOptions options;
    options.global_batch_size = 8;
    options.lr_schedule.maximum = 1e-2;
    options.lr_schedule.decay = 60;
    options.loss_scale.dynamic = dtype == DType::fp16;
    options.loss_scale.initial_scale = dtype == DType::fp16 ? 65536 : 1;
    Trainer trainer(rig.gpt, options);
    trainer.start();
    TrainRecord record;
    for (int i = 0; i < 60; ++i) record = trainer.step(FormulaSamples());
    EXPECT_LT(record.lm_loss, 0.5) << name_of(dtype);
  }
}

}  // namespace
}  // namespace trireme::train
