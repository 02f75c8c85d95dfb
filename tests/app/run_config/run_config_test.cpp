#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "tests/app/run_config/read_config.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_directory.hpp"

namespace trireme::app {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(RunConfig, ReportsTheProblemsOfAllGroupsAtOnce) {
  const std::vector<std::pair<Words, std::string>> problems = {
      {"--model gpt2-124m --num-query-groups 5", "--num-query-groups 5 needs --group-query-attention"},
      {"--pipeline-model-parallel-layout 6,x", "'x' is not a number of layers"},
      {"--overlap-param-gather", "--overlap-param-gather needs --use-distributed-optimizer"},
      {"--bf16 --fp16", "--bf16 and --fp16 exclude each other"},
      {"--train-samples 5", "--train-iters and --train-samples exclude each other"},
      {"--recompute-num-layers 2", "--recompute-num-layers needs --recompute-granularity full"},
      {"--sgd-momentum 0.5", "--sgd-momentum needs --optimizer sgd"},
      {"--data-path 1 a.h5 0 b.h5", "has weight 0; weights must be positive numbers"},
      {"--split none", "'none' is not up to three numbers"},
      {"--time-communication", "--time-communication needs --metrics-file"},
      {"--cuda-graphs", "--time-communication and --cuda-graphs exclude each other"},
      {"--load-or-init", "--load-or-init needs --load"},
      {"--finetune", "--finetune needs --load"},
      {"--no-load-optim", "--no-load-optim needs --load"},
      {"--no-save-optim", "--no-save-optim needs --save"},
      {"--ckpt-step 3", "--ckpt-step needs --load"},
      {{}, "--ckpt-step and --load-or-init exclude each other"},
      {"--save-retain-interval 4", "--save-retain-interval needs --save-interval"}};
  Words arguments;
  for (const auto& [words, problem] : problems) arguments = arguments + words;
  std::string message;
  try {
    read(arguments);
  } catch (const ConfigError& error) {
    message = error.what();
  }
  for (const auto& [words, problem] : problems) EXPECT_THAT(message, HasSubstr(problem));
  EXPECT_EQ(std::ranges::count(message, '\n') + 1, std::ssize(problems)) << message;
}

TEST(RunConfig, NamesTheFilesThatARunReadsAndWrites) {
  const test::TemporaryDirectory directory;
  std::ofstream(directory / "given.ini") << "lr = 1\n";
  std::ofstream(directory / "blend.txt") << "1 a.h5\nfrom step 4\n1 b.h5\n";
  Options options("trireme train", "");
  RunConfigReader reader(options);
  options.parse(Words("--model gpt2-124m --valid-data-path c.h5 --valid-set one=d.h5 --vocab-file v.json "
                      "--sample-prompts p.txt --eval-tasks piqa --eval-tasks-path tasks --metrics-file m --trace-file "
                      "t") +
                Words{"--config", directory / "given.ini", "--blend", directory / "blend.txt"});
  EXPECT_THAT(reader.inputs(),
              ::testing::IsSupersetOf({directory / "given.ini", directory / "blend.txt", std::string("a.h5"),
                                       std::string("b.h5"), std::string("c.h5"), std::string("d.h5"),
                                       std::string("v.json"), std::string("p.txt"), std::string("tasks")}));
  const RunOptions& run = reader.parsed().run;
  EXPECT_THAT(run.outputs(".seed-1"), ::testing::ElementsAre("m.seed-1", "m.seed-1.lives", "t.seed-1"));
  EXPECT_THAT(RunOptions().outputs(), ::testing::IsEmpty());
}

TEST(RunConfig, RecordsOptionsInUtf8) {
  RunConfig config;
  config.option_values = {{"save", "a\xff", true}, {"load", "\u00e9", false}};
  EXPECT_EQ(config.options_text(), "save = a\uFFFD\n# load = \u00e9\n");
}

TEST(RunConfig, RefusesOptionsThatContradictEachOther) {
  const std::pair<const char*, const char*> cases[] = {
      {"--fp16 --main-grads-dtype bf16",
       "--main-grads-dtype bf16 is not supported with --dtype fp16, whose gradients are fp32 or fp16"},
      {"--dtype fp64 --main-grads-dtype fp32", "--main-grads-dtype fp32 is not supported with --dtype fp64"},
      {"--recompute-granularity full --distribute-saved-activations --sequence-parallel",
       "--distribute-saved-activations and --sequence-parallel exclude each other"},
      {"--data-parallel-sharding-strategy optim_grads --bf16 --main-grads-dtype bf16",
       "ZeRO 2 keeps its shard of the gradients in fp32"},
      {"--data-parallel-sharding-strategy optim_grads --cuda-graphs --overlap-grad-reduce",
       "with ZeRO 2, which reduces gradients after every micro-batch"},
      {"--init-method hashed-uniform --init-method-std 0.1", "--init-method-std needs --init-method normal"},
      {"--sampling sequential --split 9,1", "--sampling sequential has no splits"},
      {"--sampling sequential --split-by tokens", "--sampling sequential has no splits"},
      {"--schedule interleaved", "--schedule interleaved needs several chunks"},
      {"--pp 2 --vpp 2 --schedule zero-bubble", "--schedule zero-bubble has one chunk of layers a rank, not 2"},
      {"--cross-entropy-chunks 17", "--cross-entropy-chunks 17 must be from 1 to the 16 tokens of a micro-batch"},
      {"--exp-avg-dtype bf16", "--exp-avg-dtype needs --use-precision-aware-optimizer"},
      {"--use-precision-aware-optimizer --exp-avg-sq-dtype fp16",
       "--exp-avg-sq-dtype fp16: moments in fp16 would need a scale for every tensor. Try bf16"},
      {"--use-precision-aware-optimizer --exp-avg-sq-dtype bf16",
       "--exp-avg-sq-dtype bf16 and --adam-beta2 0.999 exclude each other"},
      {"--use-precision-aware-optimizer --exp-avg-dtype bf16 --dtype fp64",
       "--exp-avg-dtype bf16 is not supported with --dtype fp64, whose moments are fp64"},
      {"--use-precision-aware-optimizer --optimizer muon", "--use-precision-aware-optimizer needs --optimizer adam"},
      {"--adam-beta2 1", "--adam-beta1 0.9 and --adam-beta2 1 must be from 0 to less than 1"},
      {"--adam-eps 0", "--adam-eps 0 must be above 0"}};
  for (const auto& [words, problem] : cases) expect_refused(gpt + words, problem);
}

TEST(RunConfig, NamesTheModulesThatAreRecomputed) {
  const Words selective = gpt + "--disable-bias-linear --num-experts 4 --recompute-granularity selective";
  const auto modules = [&](const Words& words) {
    const model::RecomputedModules read_modules = read(words).execution_config().recomputation.selected();
    return std::array{read_modules.attention, read_modules.activation, read_modules.experts};
  };
  EXPECT_EQ(modules(gpt), (std::array{false, false, false}));
  EXPECT_EQ(modules(selective), (std::array{true, true, false}));
  EXPECT_EQ(modules(selective + "--recompute-modules core_attn moe_act moe"), (std::array{true, false, true}));
  expect_refused(selective + "--recompute-modules core_attn mlp",
                 "--recompute-modules mlp is not one of core_attn, activation, moe, moe_act");
  expect_refused(gpt + "--recompute-modules moe", "--recompute-modules needs --recompute-granularity selective");
}

TEST(RunConfig, RefusesExecutionsOfExpertsThatAModelLacks) {
  const Words experts = "--disable-bias-linear --num-experts 4";
  expect_refused(gpt + "--recompute-granularity selective --recompute-modules moe",
                 "--recompute-modules moe: the model has no experts");
  expect_refused(gpt + experts + "--moe-shared-expert-overlap",
                 "--moe-shared-expert-overlap needs --moe-shared-expert-intermediate-size");
  expect_refused(gpt + experts + "--lora-rank 2 --moe-use-upcycling --load dense --finetune",
                 "--lora-rank and --moe-use-upcycling exclude each other");
}

TEST(RunConfig, RefusesGraphsOfVariableLengths) {
  const Words run = "--model bert-base --data-path a.h5 --variable-seq-lengths";
  EXPECT_TRUE(read(run).execution_config().variable_lengths);
  expect_refused(run + "--cuda-graphs",
                 "--cuda-graphs and --variable-seq-lengths exclude each other: recorded work has one length");
}

TEST(RunConfig, DerivesTheThirdOfThreeBatchSizes) {
  const auto sizes = [](const Words& words) {
    const BatchOptions& batch = read(gpt + words).batch;
    return std::pair(batch.micro_batch_size, *batch.global_batch_size);
  };
  EXPECT_EQ(sizes("--micro-batch-size 2 --micro-batches 4"), std::pair(std::int64_t{2}, std::int64_t{8}));
  EXPECT_EQ(sizes("--global-batch-size 8 --micro-batches 4"), std::pair(std::int64_t{2}, std::int64_t{8}));
  EXPECT_EQ(sizes("--global-batch-size 8 --micro-batches 4 --micro-batch-size 2"),
            std::pair(std::int64_t{2}, std::int64_t{8}));
  expect_refused(gpt + "--global-batch-size 8 --micro-batches 4 --micro-batch-size 1",
                 "--global-batch-size 8 is not --micro-batch-size 1 x --micro-batches 4 x 1 data ranks");
  const auto error_of = [](const Words& words) { return test::message_of([&] { read(gpt + words); }); };
  EXPECT_EQ(error_of("--global-batch-size 7 --micro-batches 3"),
            "--global-batch-size 7 is not a multiple of --micro-batches 3 x 1 data ranks: choose a multiple of 3, or "
            "leave --micro-batches out");
}

TEST(RunConfig, KeepsDocumentsApartByEachOption) {
  const RunConfig positions = read(gpt + "--eod-mask-loss --reset-position-ids");
  EXPECT_EQ(positions.gpt_data_options({}).document_ends, data::DocumentEnds::unlabelled);
  EXPECT_TRUE(positions.train_options().documents.reset_position_ids);
  EXPECT_FALSE(positions.train_options().documents.reset_attention_mask);
  const RunConfig mask = read(gpt + "--reset-attention-mask");
  EXPECT_EQ(mask.gpt_data_options({}).document_ends, data::DocumentEnds::labelled);
  EXPECT_FALSE(mask.train_options().documents.reset_position_ids);
  EXPECT_TRUE(mask.train_options().documents.reset_attention_mask);
}

TEST(RunConfig, TakesTheSequenceLengthOfItsModel) {
  const auto length = [](const Words& words, const std::string& given = "") {
    const RunConfig config = read(words + "--data-path a.h5", given);
    EXPECT_EQ(config.execution_config().sequence_length, *config.batch.sequence_length);
    return *config.batch.sequence_length;
  };
  for (const std::string name : {"bert-336m", "bert-1.3b", "bert-3.9b", "bert-base", "bert-large"}) {
    EXPECT_EQ(length({"--model", name}), 512);
  }
  EXPECT_EQ(length("--model gpt2-124m"), 1024);
  EXPECT_EQ(length("--model llama2-7b"), 4096);
  EXPECT_EQ(length("--model bert-336m --max-position-embeddings 128"), 128);
  EXPECT_EQ(length("--model bert-336m", "64"), 64);
  const Words shape = "--num-layers 2 --hidden-size 16 --num-attention-heads 4";
  EXPECT_EQ(length(shape, "64"), 64);
  EXPECT_THAT([&] { length(shape); }, ThrowsMessage<ConfigError>(HasSubstr("--seq-length must be given")));
  EXPECT_THAT([&] { length({}); }, ThrowsMessage<ConfigError>(HasSubstr("the model's shape is missing")));
  EXPECT_THAT([&] { length("--model bert"); }, ThrowsMessage<ConfigError>(HasSubstr("unknown --model 'bert'")));
}

TEST(RunConfig, RefusesOptionsOfACheckpointWithoutOne) {
  expect_refused("--data-path a.h5 --allow-new-data", "--allow-new-data needs --load");
  expect_refused("--data-path a.h5 --override-opt_param-scheduler", "--override-opt-param-scheduler needs --load");
  expect_refused("--data-path a.h5 --load b --override-opt-param-scheduler --use-checkpoint-opt_param-scheduler",
                 "exclude each other");
  const Words load = gpt + "--load b";
  const auto source = [&](const char* flag) { return read(load + flag).checkpoint.schedule_source(); };
  EXPECT_EQ(read(load).checkpoint.schedule_source(), ScheduleSource::must_agree);
  EXPECT_EQ(source("--override-opt_param-scheduler"), ScheduleSource::command_line);
  EXPECT_EQ(source("--use-checkpoint-opt-param-scheduler"), ScheduleSource::checkpoint);
}

TEST(RunConfig, SkipsTrainingAndSavesNothing) {
  const Words run = gpt + "--skip-train --save runs";
  EXPECT_TRUE(read(run).schedule().skip_training);
  EXPECT_EQ(read(run).checkpoint.save, "");
  expect_refused(run + "--eval-iters 0", "--skip-train only evaluates, and needs --eval-iters of at least 1");
}

TEST(RunConfig, BoundsSizes) {
  const std::string max_int = "2147483647";
  for (const std::string name : {"num-layers", "vpp", "num-layers-per-virtual-pipeline-stage", "recompute-num-layers",
                                 "decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"}) {
    expect_refused(Words{"--data-path", "a.h5", "--" + name, max_int}, " 2147483647 must be between 1 and 2000");
  }
  for (const std::string name : {"tp", "pp", "cp", "ep"}) {
    expect_refused(Words{"--data-path", "a.h5", "--" + name, max_int}, " 2147483647 must be between 1 and 99999");
  }
  expect_refused("--data-path a.h5 --lr-decay-iters 9223372036854775807", "must be between 1 and 1e+18");
  expect_refused({"--data-path", "a.h5", "--global-batch-size", max_int}, "more than the 100000 that can be planned");
}

TEST(RunConfig, UpcyclesOnlyAModelOfTheCommandLine) {
  const Words experts = gpt + "--disable-bias-linear --num-experts 4 --moe-use-upcycling";
  EXPECT_TRUE(read(experts + "--load a").checkpoint.starts_anew());
  EXPECT_EQ(read(experts + "--load a --moe-upcycling-granularity 2").checkpoint.upcycling_granularity, 2);
  expect_refused(gpt + "--load a --moe-upcycling-granularity 2",
                 "--moe-upcycling-granularity needs --moe-use-upcycling");
  expect_refused(experts, "--moe-use-upcycling needs --load");
  expect_refused(experts + "--load a --use-checkpoint-args",
                 "--moe-use-upcycling and --use-checkpoint-args exclude each other");
}

TEST(RunConfig, TakesTheTrainingOfExpertsFromACheckpoint) {
  Options options("trireme train", "");
  RunConfigReader reader(options);
  options.parse(Words("--data-path a.h5 --lr 1 --train-iters 1 --moe-aux-loss-coeff 0.5"));
  model::ModelConfig model;
  model.linear_bias = false;
  model.experts.count = 4;
  Attributes stored = attributes_of(model);
  stored.merge({{"training.moe-aux-loss-coeff", "0.01"},
                {"training.moe-router-load-balancing-type", "seq_aux_loss"},
                {"data.sequence_length", "16"}});
  EXPECT_THAT(reader.take_model(stored),
              testing::ElementsAre("--moe-aux-loss-coeff is the checkpoint's 0.01, instead of 0.5"));
  const model::ModelConfig taken = reader.settle(1).model.config(16, 257);
  EXPECT_EQ(taken.experts.balance, (std::vector<model::BalanceTerm>{{model::BalanceLoss::sequence, 0.01}}));
}

TEST(RunConfig, TasksCountExamplesAndRunWholeEpochs) {
  const auto read_task = [](const Words& words, int data_ranks) {
    Options options("trireme finetune", "");
    RunConfigReader reader(options, RunKind::task);
    options.parse(words + "--lr 1 --save a --micro-batch-size 2");
    model::ModelConfig model;
    model.output = model::ModelOutput::choices;
    model.classes = 4;
    return RunConfig(reader.settle(data_ranks, {model, 128, 103, 5}));
  };
  const RunConfig config = read_task("--global-batch-size 10", 1);
  EXPECT_EQ(config.batch.micro_batch_size, 8);  // 2 questions of 4 choices
  EXPECT_EQ(config.batch.global_batch_size, 40);
  EXPECT_EQ(config.batch.train_iterations, 50);  // 5 epochs of 10 whole batches; 3 questions of each are left out
  EXPECT_EQ(config.schedule().eval_interval, 10);
  EXPECT_EQ(config.schedule().save_interval, 10);
  EXPECT_EQ(config.optimizer.lr.decay, 50);
  EXPECT_DOUBLE_EQ(config.optimizer.lr.warmup, 3.25);  // 0.065 of 50
  EXPECT_EQ(read_task("--lr-warmup-iters 7 --save-interval 4", 3).optimizer.lr.warmup, 7);
  EXPECT_EQ(*read_task({}, 3).batch.global_batch_size, 24);  // a micro-batch for each data rank
  EXPECT_THAT([&] { read_task("--global-batch-size 104", 1); },
              ThrowsMessage<ConfigError>(HasSubstr("have 103 examples, fewer than one batch")));
  EXPECT_THAT([&] { read_task("--cross-entropy-chunks 2", 1); },
              ThrowsMessage<ConfigError>(HasSubstr("an output layer over the vocabulary, which a task's head is not")));
}

}  // namespace
}  // namespace trireme::app
