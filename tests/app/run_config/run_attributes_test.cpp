#include "src/app/run_config/run_attributes.hpp"

#include <gmock/gmock.h>

#include "src/train/progress.hpp"
#include "tests/fakes/memory_token_store.hpp"

namespace trireme::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

/// Attributes of a run, but for its budgets and state.
Attributes small_run(const train::TrainOptions& options = {}, std::int64_t seed = 1234,
                     const model::ModelConfig& model = {}) {
  data::CorpusInfo info;
  info.tokenizer = "bytes";
  info.vocabulary_size = 257;
  const std::vector<data::WeightedStore> stores = {
      {std::make_shared<data::MemoryTokenStore>(info, std::vector<std::vector<std::int32_t>>{{1, 2}})}};
  return run_attributes(model, stores, data::GptDataOptions{.sequence_length = 8, .seed = seed, .budgets = {}}, options,
                        DType::fp32);
}

TEST(RunAttributes, AreCheckedPartByPart) {
  train::SavedState state;
  state.progress = {.iteration = 8, .consumed_samples = 32};
  state.updates = 8;
  Attributes good = small_run();
  good.merge(attributes_of(state));
  good.merge(attributes_of(std::vector<data::SampleBudget>{{32, 0, 0}}));
  good.set_source("here");
  EXPECT_NO_THROW(check_attributes(good, 8));
  EXPECT_NO_THROW(check_attributes({}, 8));
  EXPECT_THAT([&] { check_attributes(good, 9); },
              ThrowsMessage<CheckpointError>(HasSubstr("here: the attribute state.iteration is '8' instead of 9, ")));
  for (const auto& [name, value] : Attributes::Texts{{"state.iteration", "abc"},
                                                     {"model.layers", "0"},
                                                     {"data_budgets", "1,2,3x"},
                                                     {"optimizer", "lion"},
                                                     {"dtype", "int32"}}) {
    Attributes attributes = good;
    attributes.put(name, value);
    EXPECT_THAT([&] { check_attributes(attributes, 8); }, ThrowsMessage<CheckpointError>(HasSubstr("here: "))) << name;
  }
}

TEST(RunAttributes, HaveTheTrainingOfExpertsIfThereAreAny) {
  EXPECT_FALSE(small_run().contains_prefix("training.moe-"));
  model::ModelConfig model;
  model.linear_bias = false;
  model.experts = {.count = 4, .balance = {{model::BalanceLoss::sequence, 0.01}}};
  const Attributes stored = small_run({}, 1234, model);
  EXPECT_EQ(stored.get<std::string>("training.moe-aux-loss-coeff"), "0.01");
  EXPECT_EQ(stored.get<std::string>("training.moe-router-load-balancing-type"), "seq_aux_loss");
  EXPECT_EQ(stored.get<std::string>("training.moe-token-drop-policy"), "probs");
  model.experts.capacity_factor = 1.25;
  EXPECT_THAT(changed_options(stored, small_run({}, 1234, model)),
              testing::ElementsAre("--moe-expert-capacity-factor was 0 in the checkpoint, now 1.25"));
  EXPECT_FALSE(stored.contains("training.moe-router-bias-update-rate"));
  model.experts.score = RouterScore::sigmoid;
  model.experts.router_bias = true;
  EXPECT_EQ(small_run({}, 1234, model).get<std::string>("training.moe-router-bias-update-rate"), "0.001");
}

TEST(RunAttributes, NameTheChangedTrainingOptions) {
  train::TrainOptions options;
  options.lr_schedule.maximum = 0.1;
  Attributes stored = attributes_of(options);
  stored.put("dtype", "fp32");
  EXPECT_THAT(changed_options(stored, stored), testing::IsEmpty());
  options.lr_schedule.maximum = 0.02;
  options.lr_schedule.style = optim::LrDecayStyle::cosine;
  options.lr_schedule.warmup = 7;
  options.optimizer.weight_decay = 0;
  options.optimizer.adamw = {0.8, 0.95, 1e-6};
  options.clip_grad = 0.5;
  options.loss_scale = {.dynamic = true, .minimum_scale = 2};
  options.global_batch_size = 3;
  options.documents.reset_attention_mask = true;
  Attributes now = attributes_of(options);
  now.put("dtype", "fp16");
  EXPECT_THAT(
      changed_options(stored, now),
      testing::UnorderedElementsAre(
          "--dtype was fp32 in the checkpoint, now fp16", "--lr was 0.1 in the checkpoint, now 0.02",
          "--lr-decay-style was linear in the checkpoint, now cosine",
          "--lr-warmup-iters was 0 in the checkpoint, now 7", "--adam-beta1 was 0.9 in the checkpoint, now 0.8",
          "--adam-beta2 was 0.999 in the checkpoint, now 0.95", "--adam-eps was 1e-08 in the checkpoint, now 1e-06",
          "--weight-decay was 0.01 in the checkpoint, now 0", "--clip-grad was 1 in the checkpoint, now 0.5",
          "--loss-scale was 1 in the checkpoint, now dynamic", "--min-loss-scale was not set in the checkpoint, now 2",
          "--loss-scale-window was not set in the checkpoint, now 1000",
          "--hysteresis was not set in the checkpoint, now 2",
          "--reset-attention-mask was not set in the checkpoint, now true",
          "--global-batch-size was 1 in the checkpoint, now 3"));
  EXPECT_THAT(changed_options({{"dtype", "fp32"}}, now),  // an older checkpoint
              testing::ElementsAre("--dtype was fp32 in the checkpoint, now fp16"));
}

TEST(RunAttributes, OfAnotherRunAreRefusedByDifference) {
  train::TrainOptions options;
  const Attributes adam = small_run(options);
  options.optimizer.kind = optim::OptimizerKind::sgd;
  const Attributes sgd = small_run(options);
  EXPECT_NO_THROW(require_same_run(adam, adam, false));
  EXPECT_NO_THROW(require_same_run(sgd, sgd, false));
  EXPECT_THAT([&] { require_same_run(sgd, adam, true); },
              ThrowsMessage<CheckpointError>(HasSubstr("Try --optimizer sgd")));
  EXPECT_THROW(require_same_run(adam, sgd, false), CheckpointError);
  // Weights alone: no optimizer goes on from them, or each with new moments.
  Attributes weights = adam;
  put_optimizer_state(weights, train::OptimizerState::left_out);
  EXPECT_THAT([&] { require_same_run(weights, adam, true); },
              ThrowsMessage<CheckpointError>(AllOf(HasSubstr("Try --no-load-optim"), HasSubstr("or --finetune"))));
  for (const Attributes& stored : {adam, sgd, weights}) {
    EXPECT_NO_THROW(require_same_run(stored, adam, false, train::OptimizerState::left_out));
  }
  Attributes::Texts older = adam.texts();  // from before the optimizer was stored
  older.erase("optimizer");
  EXPECT_NO_THROW(require_same_run(Attributes(older), adam, false));
  EXPECT_THROW(require_same_run(Attributes(older), sgd, false), CheckpointError);
  options.optimizer.sgd.momentum = 0.5;
  EXPECT_THAT(changed_options(sgd, small_run(options)),
              testing::ElementsAre("--sgd-momentum was 0.9 in the checkpoint, now 0.5"));

  EXPECT_THAT([&] { require_same_run(small_run({}, 5), adam, false); },
              ThrowsMessage<CheckpointError>(AllOf(HasSubstr("data.seed"), HasSubstr("--allow-new-data"))));
  EXPECT_NO_THROW(require_same_run(small_run({}, 5), adam, true));
  Attributes deeper = adam;
  deeper.put("model.layers", 13);
  EXPECT_THAT([&] { require_same_run(deeper, adam, true); },
              ThrowsMessage<CheckpointError>(AllOf(HasSubstr("a different model"), HasSubstr("model.layers"))));
}

/// A run of 100 updates at 1e-3 by a cosine, with a weight decay from 0 to 0.1: Megatron-LM's example of a resume.
train::TrainOptions saved_options() {
  train::TrainOptions options;
  options.lr_schedule = {optim::LrDecayStyle::cosine, 1e-3, 0, 10, 100};
  options.weight_decay_ramp = optim::WeightDecayRamp{optim::WeightDecayStyle::linear, 0, 0.1, 100};
  options.optimizer.weight_decay = 0.1;
  return options;
}

/// Attributes of a checkpoint of that run, after 40 updates.
Attributes saved_run(const train::TrainOptions& options) {
  Attributes attributes = small_run(options);
  train::SavedState state;
  state.progress = {.iteration = 40, .consumed_samples = 40};
  state.updates = 40;
  attributes.merge(attributes_of(state));
  return attributes;
}

TEST(SettledSchedule, FollowsMegatronLm) {
  const Attributes stored = saved_run(saved_options());
  train::TrainOptions options = saved_options();
  Attributes run = small_run(options);
  EXPECT_THAT(settle_schedule(stored, ScheduleSource::must_agree, options, run), testing::IsEmpty());

  const auto other = [] {
    train::TrainOptions changed = saved_options();
    changed.lr_schedule.maximum = 5e-4;
    changed.lr_schedule.decay = 80;
    changed.weight_decay_ramp->end = changed.optimizer.weight_decay = 0.3;
    return changed;
  };
  options = other();
  run = small_run(options);
  EXPECT_THAT([&] { settle_schedule(stored, ScheduleSource::must_agree, options, run); },
              ThrowsMessage<CheckpointError>(AllOf(HasSubstr("--lr "), HasSubstr("checkpoint 0.001"),
                                                   HasSubstr("this run 0.0005"), HasSubstr("--lr-decay-iters"),
                                                   HasSubstr("--end-weight-decay"),
                                                   HasSubstr("--override-opt-param-scheduler"))));
  // The learning rate and the weight decay that Megatron-LM has after 42 updates and after 50, in either mode.
  EXPECT_THAT(settle_schedule(stored, ScheduleSource::command_line, options, run), testing::IsEmpty());
  EXPECT_NEAR(options.lr_schedule.at(42), 0.0002835583164544139, 1e-17);
  EXPECT_NEAR(options.lr_schedule.at(50), 0.00019436976651092142, 1e-17);
  EXPECT_NEAR(options.weight_decay_ramp->at(50), 0.15, 1e-15);
  EXPECT_THAT(changed_options(stored, run), testing::Contains("--lr was 0.001 in the checkpoint, now 0.0005"));

  EXPECT_THAT(settle_schedule(stored, ScheduleSource::checkpoint, options, run),
              testing::Contains("--lr 0.001 is the checkpoint's, instead of 0.0005"));
  EXPECT_NEAR(options.lr_schedule.at(42), 0.0007191855733945387, 1e-17);
  EXPECT_NEAR(options.lr_schedule.at(50), 0.0005868240888334653, 1e-17);
  EXPECT_NEAR(options.weight_decay_ramp->at(50), 0.05, 1e-15);
  EXPECT_EQ(options.optimizer.weight_decay, 0.1);
  EXPECT_EQ(run, small_run(saved_options()));
  EXPECT_THAT(changed_options(stored, run), testing::IsEmpty());
}

TEST(SettledSchedule, OfTheCheckpointIsItsWhole) {
  train::TrainOptions saved;
  saved.lr_schedule = {.style = optim::LrDecayStyle::wsd,
                       .maximum = 0.1,
                       .minimum = 0.01,
                       .warmup = 2.5,
                       .decay = 50,
                       .by_samples = true,
                       .initial = 0.02,
                       .wsd_style = optim::WsdDecayStyle::minus_sqrt,
                       .wsd_decay = 20};
  saved.optimizer.decays_all = true;
  const Attributes stored = saved_run(saved);
  train::TrainOptions options = saved_options();
  Attributes run = small_run(options);
  settle_schedule(stored, ScheduleSource::checkpoint, options, run);
  for (const std::int64_t k : {1, 2, 3, 30, 31, 45, 50, 51}) {
    EXPECT_EQ(options.lr_schedule.at(k), saved.lr_schedule.at(k)) << k;
  }
  EXPECT_TRUE(options.lr_schedule.by_samples);
  EXPECT_FALSE(options.weight_decay_ramp);
  EXPECT_EQ(options.optimizer.weight_decay, 0.01);
  EXPECT_TRUE(options.optimizer.decays_all);
  EXPECT_EQ(run, small_run(saved));
}

TEST(SettledSchedule, CountsOnceThereAreUpdates) {
  Attributes stored = small_run(saved_options());
  stored.merge(attributes_of(train::SavedState()));  // initial weights
  train::TrainOptions options;
  Attributes run = small_run(options);
  EXPECT_THAT(settle_schedule(stored, ScheduleSource::must_agree, options, run), testing::IsEmpty());
  // A checkpoint from before the options were stored.
  Attributes::Texts texts = saved_run(saved_options()).texts();
  std::erase_if(texts, [](const auto& text) { return text.first.starts_with("training."); });
  const Attributes older(texts);
  EXPECT_THAT(settle_schedule(older, ScheduleSource::must_agree, options, run), testing::IsEmpty());
  EXPECT_THAT([&] { settle_schedule(older, ScheduleSource::checkpoint, options, run); },
              ThrowsMessage<CheckpointError>(HasSubstr("from before the settings of the learning rate were stored")));
}

}  // namespace
}  // namespace trireme::app
