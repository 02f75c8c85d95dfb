// Models on one rank: the halves of backward, gradients, perplexity, training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/infer/perplexity.hpp"
#include "src/train/trainer.hpp"
#include "tests/support/random_tensor.hpp"
#include "tests/train/one_rank.hpp"

namespace trireme::train {
namespace {

TEST(TransformerStage, BothHalvesOfBackwardMatchTheFullBackward) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    // Two models with the same weights; one runs backward at once, the other in halves.
    const model::ModelConfig config = small_config(variant, 0.1);
    Rig whole(layout_of(DType::fp64, 16, 4), config);
    Rig halves(layout_of(DType::fp64, 16, 4), config);
    for (Rig* rig : {&whole, &halves}) {
      BatchLoader loader = loader_of(*rig, 4);
      model::StageMode mode;
      mode.backward = true;
      mode.hidden_dropout = 0.1;
      mode.attention_dropout = 0.1;
      mode.seed = 5;
      rig->gpt.stage().begin(loader.load(*formula_samples(config), {{0, 0}, {1, 1}, {2, 2}, {3, 3}}), mode);
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

/// Losses and gradients of a micro-batch, and the losses of an evaluation of it.
struct Outcome {
  double loss = 0;
  double evaluated = 0;
  std::vector<double> token_losses;  // by the evaluation
  std::vector<double> rivals;
  std::vector<double> gradients;
};

Outcome outcome_of(const model::ModelConfig& config, DType dtype, std::int64_t chunks) {
  ExecutionConfig layout = layout_of(dtype, 16, 4);
  layout.cross_entropy_chunks = chunks;
  Rig rig(layout, config, 0.3);
  BatchLoader loader(*rig.backend, parallel::SequenceShard::of(16), 4, 1, dtype, sample_fields(config));
  std::vector<model::MicroBatch> batches = loader.load(*formula_samples(config), {{0, 0}, {1, 1}, {2, 2}, {3, 3}});
  rig.gpt.run(batches, {.backward = true, .loss_gradient = 0.5});
  Outcome outcome;
  outcome.loss = rig.gpt.take_global_loss_sums().tokens;
  outcome.gradients = test::values_of(*rig.backend, rig.gpt.parameters().gradients());
  const Tensor losses(*rig.backend, accumulation_type(dtype), {64}),
      rivals(*rig.backend, accumulation_type(dtype), {64});
  batches.front().token_losses = losses;
  batches.front().rivals = rivals;
  rig.gpt.run(batches, {});
  outcome.evaluated = rig.gpt.take_global_loss_sums().tokens;
  outcome.token_losses = test::values_of(*rig.backend, losses);
  outcome.rivals = test::values_of(*rig.backend, rivals);
  return outcome;
}

// The rows of the logits do not depend on one another, and the gradients of the output layer are sums over them.
TEST(TransformerStage, ChunksOfTheCrossEntropyComputeTheSameToRounding) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    const model::ModelConfig config = small_config(variant, 0);
    // The head of GPT-2, the untied one and those of BERT.
    if (!config.is_bert() && variant.name != "GPT-2" && variant.name != "untied output") continue;
    for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16, DType::fp16}) {
      const Outcome whole = outcome_of(config, dtype, 1);
      for (const std::int64_t chunks : {5, 64}) {
        SCOPED_TRACE(testing::Message() << variant.name << ", " << name_of(dtype) << ", " << chunks << " chunks");
        const Outcome outcome = outcome_of(config, dtype, chunks);
        const test::RunTolerance close = test::tolerance(dtype, test::Comparison::other_order);
        EXPECT_NEAR(outcome.loss / whole.loss, 1, close.loss);
        EXPECT_NEAR(outcome.evaluated / whole.evaluated, 1, close.loss);
        EXPECT_EQ(outcome.loss, outcome.evaluated);
        EXPECT_EQ(outcome.rivals, whole.rivals);
        test::expect_close(outcome.token_losses, whole.token_losses, test::tolerance(dtype, test::Operation::sum),
                           "losses");
        // Products of fewer rows may round otherwise, and so may what backward makes of them.
        const bool is_narrow = accumulation_type(dtype) != dtype;
        const test::Tolerance of_gradients =
            test::tolerance(dtype, is_narrow ? test::Operation::rounded_sum : test::Operation::sum);
        test::expect_close(outcome.gradients, whole.gradients, of_gradients, "gradients");
      }
    }
  }
}

// Padding between parameters is 0 at any time.
TEST(ParallelModel, GradientsDoNotDependOnEarlierOnes) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    const model::ModelConfig config = small_config(variant, 0);
    Rig rig(layout_of(DType::fp64, 16, 2), config, 0.3);
    BatchLoader loader(*rig.backend, parallel::SequenceShard::of(16), 2, 2, DType::fp64, sample_fields(config));
    const std::vector<model::MicroBatch> batches =
        loader.load(*formula_samples(config), {{0, 0}, {1, 1}, {2, 2}, {3, 3}});
    const auto gradients = [&] {
      rig.gpt.run(batches, {.backward = true, .loss_gradient = 0.5});
      rig.gpt.reduce_gradients();
      return test::values_of(*rig.backend, rig.gpt.parameters().gradients());
    };
    const std::vector<double> first = gradients();
    for (const parallel::Parameter& p : rig.gpt.parameters().parameters()) {
      if (p.frozen) continue;
      rig.backend->elementwise().fill(rig.backend->compute_stream(), std::nan(""), p.gradient);
    }
    EXPECT_EQ(gradients(), first) << variant.name;
  }
}

TEST(TransformerStage, GradientsMatchFiniteDifferences) {
  for (const test::ModelVariant& variant : test::model_variants()) {
    Rig rig(layout_of(DType::fp64, 16, 2), small_config(variant, 0.2), 0.2);
    BatchLoader loader = loader_of(rig, 2);
    model::StageMode mode;
    mode.backward = true;
    mode.hidden_dropout = 0.2;
    mode.attention_dropout = 0.2;
    mode.seed = 3;
    const double ahead = rig.gpt.config().ahead.depths;
    mode.ahead_loss_gradient = 0.4 / std::max(ahead, 1.0);
    const std::vector<model::MicroBatch> batch = loader.load(*formula_samples(rig.gpt.config()), {{4, 0}, {9, 1}});
    const auto loss = [&] {
      rig.gpt.stage().begin(batch, mode);
      rig.gpt.stage().forward(0, 0, {}, {});
      const model::LossSums sums = rig.gpt.stage().take_loss_sums();
      return sums.tokens + sums.samples + 0.4 * sums.ahead;
    };
    const test::Tolerance close = test::tolerance(DType::fp64, test::Operation::model_difference);
    loss();
    rig.gpt.stage().backward(0, 0, {}, {});
    // `begin` drops what a forward without its backward kept.
    for (const parallel::Parameter& parameter : rig.gpt.parameters().parameters()) {
      if (parameter.frozen) continue;
      for (const std::int64_t i : {parameter.box.numel() / 2, parameter.box.numel() - 1}) {
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

TEST(Perplexity, OfAUniformModelIsTheVocabularySize) {
  Rig rig(layout_of(DType::fp64, 16, 2), small_config(), 0.0);
  // 38 tokens: two windows of 16 targets and a last one of 5.
  const infer::PerplexityResult result = infer::measure_perplexity(rig.gpt, counting_corpus(38));
  EXPECT_EQ(result.tokens, 37);
  EXPECT_NEAR(result.perplexity / 50, 1, same_loss);
}

TEST(Perplexity, RefusesTokensOutsideTheVocabulary) {
  Rig rig(layout_of(DType::fp64, 16, 2), small_config(), 0.0);
  data::CorpusInfo info;
  info.vocabulary_size = 60;
  const data::MemoryTokenStore corpus(info, {{1, 2, 3, 55, 4}});
  EXPECT_THAT([&] { infer::measure_perplexity(rig.gpt, corpus); },
              testing::ThrowsMessage<DataError>(testing::HasSubstr("token 3 is 55, not in the vocabulary of 50 ids")));
}

TEST(Trainer, SkipsAnUpdateWhoseLossIsNotFiniteAndGivesUpInTheEnd) {
  Rig rig(layout_of(DType::fp32, 16, 2));
  TrainOptions options = train_options(2);
  options.max_skipped = 3;
  options.guards.check_for_nan = false;
  Trainer trainer(rig.gpt, options);
  rig.gpt.parameters().at("ln_f.bias").value.as<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  const float before = rig.gpt.parameters().at("wte").value.as<float>()[5];
  EXPECT_TRUE(trainer.step(FormulaSamples()).skipped);
  EXPECT_TRUE(trainer.step(FormulaSamples()).skipped);
  EXPECT_EQ(rig.gpt.parameters().at("wte").value.as<float>()[5], before);
  EXPECT_EQ(trainer.progress().consumed_samples, 4);
  EXPECT_THROW(trainer.step(FormulaSamples()), NumericalError);
}

TEST(Trainer, LearnsInSixteenBits) {
  for (const DType dtype : {DType::bf16, DType::fp16}) {
    Rig rig(layout_of(dtype, 16, 8));
    TrainOptions options = train_options(8, 1e-2, 60);
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
