#include "src/app/run_config/run_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "src/data/tokenizer/tokenizer.hpp"
#include "src/optim/grad_norm.hpp"

namespace trireme::app {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// Reads a command line on one rank. It needs options beside the few that every run has.
RunConfig read(std::vector<std::string> arguments, const std::string& sequence_length = "16") {
  for (const char* given : {"--lr", "1", "--train-iters", "1"}) arguments.emplace_back(given);
  if (!sequence_length.empty()) arguments.insert(arguments.end(), {"--seq-length", sequence_length});
  Options options("trireme train", "");
  RunConfigReader reader(options);
  options.parse(arguments);
  return reader.settle(1);
}

/// Expects a command line to be refused with this message.
void expect_refused(const std::vector<std::string>& arguments, const std::string& message) {
  EXPECT_THAT([&] { read(arguments); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
}

TEST(RunConfig, ReportsTheProblemsOfAllGroupsAtOnce) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> problems = {
      {{"--model", "gpt2-124m", "--num-query-groups", "5"}, "--num-query-groups 5 needs --group-query-attention"},
      {{"--pipeline-model-parallel-layout", "6,x"}, "'x' is not a number of layers"},
      {{"--overlap-param-gather"}, "--overlap-param-gather needs --use-distributed-optimizer"},
      {{"--bf16", "--fp16"}, "--bf16 and --fp16 exclude each other"},
      {{"--train-samples", "5"}, "either --train-iters or --train-samples must be given"},
      {{"--recompute-num-layers", "2"}, "--recompute-num-layers needs --recompute-granularity full"},
      {{"--sgd-momentum", "0.5"}, "--sgd-momentum needs --optimizer sgd"},
      {{"--data-path", "1", "a.h5", "0", "b.h5"}, "has weight 0; weights must be positive numbers"},
      {{"--split", "none"}, "'none' is not up to three numbers"},
      {{"--time-communication"}, "--time-communication needs --metrics-file"},
      {{"--cuda-graphs"}, "--time-communication and --cuda-graphs exclude each other"},
      {{"--load-or-init"}, "--load-or-init needs --load"},
      {{"--finetune"}, "--finetune needs --load"},
      {{"--no-load-optim"}, "--no-load-optim needs --load"},
      {{"--no-save-optim"}, "--no-save-optim needs --save"},
      {{"--ckpt-step", "3"}, "--ckpt-step needs --load"},
      {{}, "--ckpt-step and --load-or-init exclude each other"},
      {{"--save-retain-interval", "4"}, "--save-retain-interval needs --save-interval"}};
  std::vector<std::string> arguments;
  for (const auto& [words, problem] : problems) arguments.insert(arguments.end(), words.begin(), words.end());
  std::string message;
  try {
    read(arguments);
  } catch (const ConfigError& error) {
    message = error.what();
  }
  for (const auto& [words, problem] : problems) EXPECT_THAT(message, HasSubstr(problem));
  EXPECT_EQ(std::ranges::count(message, '\n') + 1, std::ssize(problems)) << message;
}

TEST(RunConfig, TakesCorporaOfEachSplitAndValidationSets) {
  const auto with = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--model", "gpt2-124m"});
    return arguments;
  };
  const RunConfig config =
      read(with({"--train-data-path", "3", "a.h5", "1", "b.h5", "--test-data-path", "t.h5", "--valid-set", "code=c.h5",
                 "mix=2", "./x=c.h5", "1", "dir/d=e.h5", "--valid-data-path", "v.h5"}));
  EXPECT_EQ(config.data.fractions(), (std::array<double, 3>{1, 0, 0}));
  ASSERT_EQ(config.data.corpora().size(), 2u);
  EXPECT_EQ(config.data.corpora()[0].path, "a.h5");
  EXPECT_EQ(config.data.corpora()[0].weight, 3);
  const std::vector<DataOptions::SplitPaths> others = config.data.other_corpora();
  ASSERT_EQ(others.size(), 4u);
  EXPECT_EQ(others[0].corpora.front().path, "v.h5");
  EXPECT_EQ(others[1].split, data::Split::test);
  EXPECT_EQ(others[2].set, "code");
  EXPECT_EQ(others[2].corpora.front().path, "c.h5");
  EXPECT_EQ(others[3].set, "mix");
  ASSERT_EQ(others[3].corpora.size(), 2u);
  EXPECT_EQ(others[3].corpora[0].path, "./x=c.h5");
  EXPECT_EQ(others[3].corpora[1].path, "dir/d=e.h5");
  EXPECT_EQ(read(with({"--data-path", "a.h5", "--sampling", "sequential"})).schedule().eval_iterations, 0);
  EXPECT_EQ(read(with({"--data-path", "a.h5", "--sampling", "sequential", "--valid-set", "v=v.h5"}))
                .schedule()
                .eval_iterations,
            100);

  expect_refused(with({}), "--data-path must be given, or --train-data-path, or --mock-data");
  const auto refused = [&](std::vector<std::string> arguments, const std::string& message) {
    arguments.insert(arguments.end(), {"--train-data-path", "a.h5"});
    expect_refused(with(arguments), message);
  };
  refused({"--data-path", "a.h5"}, "--data-path and --train-data-path exclude each other");
  refused({"--split", "1"}, "--split divides the corpora of --data-path");
  refused({"--split-by", "tokens"}, "--split-by divides the corpora of --data-path");
  refused({"--valid-data-path", "0.5", "a.h5", "b.h5"}, "--valid-data-path: unexpected 'b.h5' after 'a.h5'");
  refused({"--valid-set", "a.h5"}, "--valid-set: 'a.h5' is no NAME=FILE");
  refused({"--valid-set", "a=a.h5", "a=b.h5"}, "--valid-set: the name a is there twice");
  refused({"--valid-set", "a=-1", "a.h5"}, "has weight -1");
  expect_refused(with({"--data-path", "a.h5", "--test-data-path", "b.h5"}), "--test-data-path needs --train-data-path");
}

TEST(RunConfig, TakesMockDataAndTheCyclicLoader) {
  const std::vector<std::string> shape = {"--num-layers", "2", "--hidden-size", "16", "--num-attention-heads", "2"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), shape.begin(), shape.end());
    return arguments;
  };
  EXPECT_TRUE(read(with({"--mock-data", "--vocab-size", "100"})).data.mock);
  EXPECT_NO_THROW(read({"--model", "gpt2-124m", "--mock-data"}));
  expect_refused(with({"--mock-data"}), "--mock-data has no tokenizer: give --vocab-size");
  expect_refused(with({"--mock-data", "--data-path", "a.h5"}), "--mock-data is in the place of --data-path");
  expect_refused({"--model", "bert-base", "--mock-data"}, "--mock-data is running text");

  const RunConfig config = read(with({"--data-path", "a.h5", "--dataloader-type", "cyclic"}));
  EXPECT_EQ(config.gpt_data_options({}).sampling, data::Sampling::cyclic);
  EXPECT_EQ(read(with({"--data-path", "a.h5", "--dataloader-type", "single"})).data.sampling, data::Sampling::shuffled);
  expect_refused(with({"--data-path", "a.h5", "--dataloader-type", "cyclic", "--sampling", "sequential"}),
                 "--sampling sequential and --dataloader-type cyclic exclude each other");
  expect_refused({"--model", "bert-base", "--data-path", "a.h5", "--dataloader-type", "cyclic"},
                 "would mask a BERT's samples alike");
}

TEST(RunConfig, TakesFillInTheMiddle) {
  const auto with = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--model", "gpt2-124m", "--data-path", "a.h5"});
    return arguments;
  };
  data::CorpusInfo bytes;
  bytes.tokenizer = "bytes";
  bytes.tokenizer_payload = data::make_byte_tokenizer()->payload();
  bytes.end_of_document = 256;
  const RunConfig config =
      read(with({"--fim-rate", "0.5", "--fim-prefix-token", "257", "--fim-middle-token", "258", "--fim-suffix-token",
                 "~", "--fim-split-sample", "|", "--fim-fragment-rate", "1"}));
  const std::optional<data::FimOptions> fim = config.data.fim.settled(bytes, 259);
  ASSERT_TRUE(fim);
  EXPECT_EQ(fim->prefix, 257);
  EXPECT_EQ(fim->suffix, '~');
  EXPECT_EQ(fim->split_token, '|');
  EXPECT_EQ(fim->codec.decode(std::vector<std::int32_t>{'a', 'b'}), "ab");
  EXPECT_TRUE(fim->codec.is_special(256));
  EXPECT_FALSE(fim->codec.is_special('~'));
  EXPECT_FALSE(read(with({})).data.fim.settled(bytes, 259));
  EXPECT_THAT([&] { config.data.fim.settled(bytes, 258); },
              ThrowsMessage<ConfigError>(HasSubstr("--fim-middle-token: the tokenizer bytes has no token '258'")));
  expect_refused(with({"--fim-spm-rate", "1"}), "--fim-spm-rate needs a --fim-rate above 0");
  expect_refused(with({"--fim-rate", "1", "--fim-split-sample", "|"}),
                 "--fim-split-sample and --fim-fragment-rate need each other");
  expect_refused({"--model", "bert-base", "--data-path", "a.h5", "--fim-rate", "1"}, "which a BERT does not read");
}

TEST(RunConfig, RefusesWhatDoesNotGoWithZero2) {
  const auto with = [](std::vector<std::string> arguments) {
    for (const char* given :
         {"--model", "gpt2-124m", "--data-path", "a.h5", "--data-parallel-sharding-strategy", "optim_grads"}) {
      arguments.emplace_back(given);
    }
    return arguments;
  };
  EXPECT_NO_THROW(read(with({"--cuda-graphs", "--bf16"})));
  expect_refused(with({"--cuda-graphs", "--overlap-grad-reduce"}),
                 "in ZeRO 2, which reduces gradients after every micro-batch");
  expect_refused(with({"--bf16", "--main-grads-dtype", "bf16"}), "ZeRO 2 keeps its shard of the gradients in fp32");
}

TEST(RunConfig, RefusesGraphsOfVariableLengths) {
  const std::vector<std::string> run = {"--model", "bert-base", "--data-path", "a.h5", "--variable-seq-lengths"};
  EXPECT_TRUE(read(run).execution_config().variable_lengths);
  std::vector<std::string> recorded = run;
  recorded.emplace_back("--cuda-graphs");
  expect_refused(recorded, "--cuda-graphs and --variable-seq-lengths exclude each other: recorded work has one length");
}

TEST(RunConfig, NamesReportsThatNothingReads) {
  const auto idle = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--lr", "1"});
    Options options("trireme train", "");
    RunConfigReader reader(options);
    options.parse(arguments);
    return reader.parsed().report.idle(options, /*ranks=*/1, /*saves=*/false);
  };
  const std::vector<std::string> given = {"--log-memory-to-tensorboard", "--tensorboard-log-interval", "2"};
  EXPECT_EQ(idle(given),
            "--tensorboard-log-interval, --log-memory-to-tensorboard: without --tensorboard-dir there is nothing to "
            "write");
  EXPECT_EQ(idle({"--tensorboard-dir", "x", "--log-memory-to-tensorboard", "--log-throughput"}), "");
  EXPECT_EQ(idle({"--profile-ranks", "3"}), "--profile-ranks: without --profile nothing is recorded");
  EXPECT_EQ(idle({"--log-progress", "--log-straggler", "--timing-log-option", "all"}),
            "--log-progress: without --save there is no folder for progress.txt; --timing-log-option: without "
            "--timing-log-level there are no times to log; --log-straggler: one rank has nothing to wait for");
}

TEST(RunConfig, ReadsReportsOfTimes) {
  const std::vector<std::string> run = {"--model", "gpt2-124m", "--data-path", "a.h5"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), run.begin(), run.end());
    return arguments;
  };
  const ReportOptions report =
      read(with({"--mfu-peak", "H100", "--timing-log-level", "2", "--timing-log-option", "max"})).report;
  EXPECT_EQ(report.peak.value().tflops, 989.4);
  EXPECT_EQ(report.timing_level, 2);
  EXPECT_EQ(report.timing_option, train::TimingOption::max);
  expect_refused(with({"--mfu-peak", "H1000"}), "--mfu-peak H1000: is neither a number of TFLOP/s nor one of GB200");
  expect_refused(with({"--log-straggler", "--cuda-graphs"}), "--log-straggler and --cuda-graphs exclude each other");
}

TEST(RunConfig, ReadsWhatAProfilerRecords) {
  const auto with = [](std::vector<std::string> arguments) {
    for (const char* given : {"--model", "gpt2-124m", "--data-path", "a.h5", "--profile"})
      arguments.emplace_back(given);
    return arguments;
  };
  const ReportOptions report = read(with({})).report;
  EXPECT_TRUE(report.profile);
  EXPECT_EQ(report.profile_start, 10);
  EXPECT_EQ(report.profile_end, 12);
  EXPECT_THAT(report.profile_ranks, ::testing::ElementsAre(0));
  expect_refused(with({"--profile-ranks", "0", "1"}), "--profile-ranks 1: the ranks of this job are 0 to 0");
  expect_refused(with({"--profile-ranks", "all"}), "--profile-ranks all: the ranks of this job are 0 to 0");
  expect_refused(with({"--profile-step-end", "10"}), "--profile-step-start 10 must be less than --profile-step-end 10");
}

TEST(RunConfig, ReadsTheCurvesOfTensorboard) {
  const RunConfig all = read({"--model", "gpt2-124m", "--data-path", "a.h5", "--tensorboard-dir", "x"});
  EXPECT_TRUE(all.report.tensorboard.learning_rate && all.report.tensorboard.loss_scale);
  const RunConfig few = read({"--model", "gpt2-124m", "--data-path", "a.h5", "--tensorboard-dir", "x",
                              "--no-log-learnig-rate-to-tensorboard", "--no-log-loss-scale-to-tensorboard"});
  EXPECT_FALSE(few.report.tensorboard.learning_rate || few.report.tensorboard.loss_scale);
}

TEST(RunConfig, HoldsTheSettledValues) {
  const RunConfig config = read({"--model", "gpt2-124m", "--data-path", "a.h5", "--fp16", "--sequence-parallel",
                                 "--use-distributed-optimizer", "--micro-batch-size", "3", "--sampling", "sequential",
                                 "--save", "run", "--save-interval", "7", "--reset-attention-mask"});
  const train::ExecutionConfig execution = config.execution_config();
  EXPECT_EQ(execution.dtype, DType::fp16);
  EXPECT_EQ(execution.micro_batch_size, 3);
  EXPECT_TRUE(execution.parallel.sequence_parallel);
  EXPECT_EQ(execution.parallel.data_parallel.sharding, parallel::DataSharding::optimizer);
  EXPECT_EQ(config.train_options().global_batch_size, 3);
  EXPECT_TRUE(config.train_options().loss_scale.dynamic);
  EXPECT_EQ(config.schedule().eval_iterations, 0);
  EXPECT_EQ(config.schedule().save_interval, 7);
  EXPECT_EQ(config.gpt_data_options({}).sampling, data::Sampling::sequential);
  EXPECT_EQ(config.gpt_data_options({}).document_ends, data::DocumentEnds::labelled);
  EXPECT_TRUE(config.train_options().documents.reset_attention_mask);
  EXPECT_FALSE(config.train_options().documents.reset_position_ids);
  const RunConfig other =
      read({"--model", "gpt2-124m", "--data-path", "a.h5", "--eod-mask-loss", "--reset-position-ids"});
  EXPECT_EQ(other.gpt_data_options({}).document_ends, data::DocumentEnds::unlabelled);
  EXPECT_TRUE(other.train_options().documents.reset_position_ids);
  EXPECT_FALSE(other.train_options().documents.reset_attention_mask);
}

TEST(RunConfig, GivesABertItsSamples) {
  const RunConfig config =
      read({"--model", "bert-336m", "--data-path", "a.h5", "--mask-prob", "0.2", "--short-seq-prob", "0", "--seed", "7",
            "--split", "8,1,1", "--split-by", "documents", "--bert-no-binary-head"});
  data::BertVocabulary vocabulary;
  vocabulary.size = 30524;
  const data::BertDataOptions options = config.bert_data_options(config.model.config(16, 30524), vocabulary);
  EXPECT_EQ(options.samples.sequence_length, 16);
  EXPECT_EQ(options.samples.seed, 7);
  EXPECT_EQ(options.samples.short_sequence_probability, 0);
  EXPECT_EQ(options.samples.masking.mask_probability, 0.2);
  EXPECT_FALSE(options.samples.masking.binary_head);
  EXPECT_EQ(options.samples.masking.vocabulary.size, 30524);
  EXPECT_EQ(options.vocabulary_size, 30524);
  EXPECT_EQ(options.split_fractions[0], 0.8);
  EXPECT_EQ(options.split_by, data::SplitBy::documents);
}

TEST(RunConfig, TakesTheSequenceLengthOfItsModel) {
  const auto length = [](std::vector<std::string> arguments, const std::string& given = "") {
    arguments.insert(arguments.end(), {"--data-path", "a.h5"});
    const RunConfig config = read(std::move(arguments), given);
    EXPECT_EQ(config.execution_config().sequence_length, *config.batch.sequence_length);
    return *config.batch.sequence_length;
  };
  for (const std::string name : {"bert-336m", "bert-1.3b", "bert-3.9b", "bert-base", "bert-large"}) {
    EXPECT_EQ(length({"--model", name}), 512);
  }
  EXPECT_EQ(length({"--model", "gpt2-124m"}), 1024);
  EXPECT_EQ(length({"--model", "llama2-7b"}), 4096);
  EXPECT_EQ(length({"--model", "bert-336m", "--max-position-embeddings", "128"}), 128);
  EXPECT_EQ(length({"--model", "bert-336m"}, "64"), 64);
  const std::vector<std::string> shape = {"--num-layers", "2", "--hidden-size", "16", "--num-attention-heads", "4"};
  EXPECT_EQ(length(shape, "64"), 64);
  EXPECT_THAT([&] { length(shape); }, ThrowsMessage<ConfigError>(HasSubstr("--seq-length must be given")));
  EXPECT_THAT([&] { length({}); }, ThrowsMessage<ConfigError>(HasSubstr("the model's shape is missing")));
  EXPECT_THAT([&] { length({"--model", "bert"}); }, ThrowsMessage<ConfigError>(HasSubstr("unknown --model 'bert'")));
}

TEST(RunConfig, RefusesSamplesThatAModelDoesNotRead) {
  const std::vector<std::string> bert = {"--model", "bert-336m", "--data-path", "a.h5"};
  const auto with = [](std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  expect_refused(with(bert, {"--sampling", "sequential"}), "a BERT's samples are always shuffled");
  for (const std::string name : {"--reset-position-ids", "--reset-attention-mask", "--eod-mask-loss"}) {
    expect_refused(with(bert, {name}), "each sample of a BERT is of one document");
  }
  expect_refused(with(bert, {"--mask-prob", "0"}), "--mask-prob 0 must be above 0 and at most 1");
  expect_refused(with(bert, {"--short-seq-prob", "1.5"}), "--short-seq-prob 1.5");
  for (const std::string name : {"--mask-prob", "--short-seq-prob"}) {
    expect_refused({"--model", "gpt2-124m", "--data-path", "a.h5", name, "0.1"}, "are options of a BERT");
  }
}

TEST(RunConfig, TakesCorporaAloneOrAWeightForEach) {
  const auto corpora = [](std::vector<std::string> paths) {
    DataOptions options;
    options.path = std::move(paths);
    return options.corpora();
  };
  EXPECT_EQ(corpora({"2", "a.h5", "0.5", "b.h5"})[1].path, "b.h5");
  EXPECT_EQ(corpora({"2", "a.h5", "0.5", "b.h5"})[1].weight, 0.5);
  for (const std::vector<std::string>& paths : {std::vector<std::string>{"a.h5"}, {"a.h5", "b.h5"}, {"a", "b", "c"}}) {
    ASSERT_EQ(corpora(paths).size(), paths.size());
    EXPECT_EQ(corpora(paths).back().path, paths.back());
    EXPECT_FALSE(corpora(paths).back().weight);
  }
  expect_refused({"--data-path", "a.h5", "1", "b.h5"}, "unexpected '1' after 'a.h5'; give corpora alone, or a weight");
  expect_refused({"--data-path", "1", "2", "b.h5"}, "unexpected '2' after '1'");
  expect_refused({"--data-path", "1", "a.h5", "b.h5"}, "unexpected 'b.h5' after 'a.h5'");
  expect_refused({"--data-path", "1", "a.h5", "1"}, "no corpus follows the weight 1");
  for (const std::string weight : {"0", "-1", "nan", "inf"}) {
    expect_refused({"--data-path", weight, "a.h5"}, "has weight " + weight + "; weights must be positive");
  }
}

TEST(RunConfig, RefusesOptionsOfACheckpointWithoutOne) {
  expect_refused({"--data-path", "a.h5", "--allow-new-data"}, "--allow-new-data needs --load");
  expect_refused({"--data-path", "a.h5", "--load-or-init"}, "--load-or-init needs --load");
  expect_refused({"--data-path", "a.h5", "--override-opt_param-scheduler"},
                 "--override-opt-param-scheduler needs --load");
  expect_refused(
      {"--data-path", "a.h5", "--load", "b", "--override-opt-param-scheduler", "--use-checkpoint-opt_param-scheduler"},
      "exclude each other");
  const std::vector<std::string> load = {"--model", "gpt2-124m", "--data-path", "a.h5", "--load", "b"};
  const auto source = [&](const char* flag) {
    std::vector<std::string> arguments = load;
    arguments.emplace_back(flag);
    return read(arguments).checkpoint.schedule_source();
  };
  EXPECT_EQ(read(load).checkpoint.schedule_source(), ScheduleSource::must_agree);
  EXPECT_EQ(source("--override-opt_param-scheduler"), ScheduleSource::command_line);
  EXPECT_EQ(source("--use-checkpoint-opt-param-scheduler"), ScheduleSource::checkpoint);
}

TEST(RunConfig, RefusesOptionsOfAnotherOptimizer) {
  for (const std::string name : {"adam-beta1", "adam-beta2", "adam-eps"}) {
    expect_refused({"--data-path", "a.h5", "--optimizer", "sgd", "--" + name, "0.5"},
                   "--" + name + " needs --optimizer adam or muon");
  }
  for (const std::string name : {"muon-momentum", "muon-extra-scale-factor", "muon-num-ns-steps"}) {
    expect_refused({"--data-path", "a.h5", "--" + name, "1"}, "--" + name + " needs --optimizer muon");
  }
  expect_refused({"--data-path", "a.h5", "--muon-nesterov"}, "--muon-nesterov needs --optimizer muon");
  const RunConfig muon = read({"--model", "gpt2-124m", "--data-path", "a.h5", "--optimizer", "muon", "--adam-beta2",
                               "0.9", "--muon-no-split-qkv", "--muon-scale-mode", "unit_rms_norm"});
  EXPECT_EQ(muon.train_options().optimizer.kind, optim::OptimizerKind::muon);
  EXPECT_EQ(muon.train_options().optimizer.adamw.beta2, 0.9);
  EXPECT_FALSE(muon.train_options().optimizer.muon.split_qkv);
  EXPECT_EQ(muon.train_options().optimizer.muon.scale, optim::MuonScale::unit_rms_norm);
  expect_refused({"--data-path", "a.h5", "--sgd-momentum", "0.5"}, "--sgd-momentum needs --optimizer sgd");
}

/// Reads a command line that trains by samples, in sequences of 1024 tokens.
RunConfig read_by_samples(std::vector<std::string> arguments) {
  for (const char* given : {"--lr", "1", "--train-samples", "2000", "--seq-length", "1024", "--model", "gpt2-124m",
                            "--data-path", "a.h5", "--micro-batch-size", "4"}) {
    arguments.emplace_back(given);
  }
  Options options("trireme train", "");
  RunConfigReader reader(options);
  options.parse(arguments);
  return reader.settle(2);
}

TEST(RunConfig, HoldsTheSchedulesOfMegatronLm) {
  const RunConfig wsd = read({"--model",
                              "gpt2-124m",
                              "--data-path",
                              "a.h5",
                              "--lr-decay-style",
                              "WSD",
                              "--lr-decay-iters",
                              "55",
                              "--lr-wsd-decay-iters",
                              "12",
                              "--lr-warmup-iters",
                              "5",
                              "--lr-warmup-init",
                              "0.25",
                              "--weight-decay-incr-style",
                              "cosine",
                              "--start-weight-decay",
                              "0.1",
                              "--end-weight-decay",
                              "0.3"});
  EXPECT_EQ(wsd.optimizer.lr.style, optim::LrDecayStyle::wsd);
  EXPECT_EQ(wsd.optimizer.lr.wsd_style, optim::WsdDecayStyle::exponential);
  EXPECT_EQ(wsd.optimizer.lr.wsd_decay, 12);
  EXPECT_EQ(wsd.optimizer.lr.initial, 0.25);
  const optim::WeightDecayRamp ramp = wsd.train_options().weight_decay_ramp.value();
  EXPECT_EQ(ramp.style, optim::WeightDecayStyle::cosine);
  EXPECT_EQ((std::pair{ramp.start, ramp.end}), (std::pair{0.1, 0.3}));
  EXPECT_EQ(ramp.length, 1);
  EXPECT_FALSE(read({"--model", "gpt2-124m", "--data-path", "a.h5", "--weight-decay-incr-style", "constant"})
                   .train_options()
                   .weight_decay_ramp);
  const RunConfig samples = read_by_samples({"--lr-decay-style", "WSD", "--lr-wsd-decay-samples", "640",
                                             "--lr-warmup-fraction", "0.05", "--weight-decay-incr-style", "linear",
                                             "--start-weight-decay", "0", "--end-weight-decay", "0.1"});
  EXPECT_EQ(samples.optimizer.lr.wsd_decay, 640);
  EXPECT_EQ(samples.optimizer.lr.warmup, 100);
  EXPECT_EQ(samples.train_options().weight_decay_ramp->length, 2000);
}

TEST(RunConfig, TakesStepsOfTheBatchInTokens) {
  const auto steps = [](const std::string& text) {
    const RunConfig config = read_by_samples({"--step-batch-size-schedule", text});
    std::vector<std::pair<std::int64_t, std::int64_t>> levels;
    const train::TrainOptions options = config.train_options();
    for (const auto& level : std::get<train::BatchSteps>(*options.ramp_up).levels) {
      levels.emplace_back(level.begin, level.size);
    }
    EXPECT_EQ(config.train_options().global_batch_size,
              std::ranges::max(levels, {}, [](auto l) { return l.second; }).second);
    return levels;
  };
  using Levels = std::vector<std::pair<std::int64_t, std::int64_t>>;
  EXPECT_EQ(steps("0:32 100K:64 250K:96"), (Levels{{0, 32}, {97, 64}, {244, 96}}));
  EXPECT_EQ(steps("250k:96,0:32, 0.1M:64"), (Levels{{0, 32}, {97, 64}, {244, 96}}));
  EXPECT_EQ(steps("0:64 4B:32 1T:8"), (Levels{{0, 64}, {3906250, 32}, {976562500, 8}}));
  const auto refused = [&](std::vector<std::string> arguments, const std::string& message) {
    EXPECT_THAT([&] { read_by_samples(arguments); }, ThrowsMessage<ConfigError>(HasSubstr(message)));
  };
  refused({"--step-batch-size-schedule", "0:16 1000:32 1023:64"}, "begin at sample 0");
  refused({"--step-batch-size-schedule", "0:16 100"}, "'100' is not TOKENS:BATCH");
  refused({"--step-batch-size-schedule", "0:16 abc:32"}, "'abc' is no number from 0 to 1e18");
  refused({"--step-batch-size-schedule", " "}, "must begin at 0");
  refused({"--step-batch-size-schedule", "0:16", "--global-batch-size", "16"}, "exclude each other");
  refused({"--step-batch-size-schedule", "0:16", "--rampup-batch-size", "8", "8", "100"}, "exclude each other");
  expect_refused({"--data-path", "a.h5", "--step-batch-size-schedule", "0:16"}, "needs --train-samples instead");
}

TEST(RunConfig, RefusesSchedulesThatContradict) {
  expect_refused({"--data-path", "a.h5", "--lr-decay-style", "WSD"}, "WSD needs --lr-wsd-decay-iters");
  expect_refused({"--data-path", "a.h5", "--lr-wsd-decay-iters", "5"},
                 "--lr-wsd-decay-iters needs --lr-decay-style WSD");
  expect_refused({"--data-path", "a.h5", "--lr-wsd-decay-style", "cosine"},
                 "--lr-wsd-decay-style needs --lr-decay-style");
  expect_refused({"--data-path", "a.h5", "--lr-wsd-decay-samples", "5"}, "needs --train-samples");
  expect_refused({"--data-path", "a.h5", "--lr-warmup-init", "0.1"}, "--lr-warmup-init needs a warm-up");
  expect_refused({"--data-path", "a.h5", "--start-weight-decay", "0.1"}, "needs --weight-decay-incr-style linear");
  expect_refused({"--data-path", "a.h5", "--weight-decay-incr-style", "linear", "--start-weight-decay", "0.1"},
                 "needs --start-weight-decay and --end-weight-decay");
  expect_refused({"--data-path", "a.h5", "--weight-decay-incr-style", "linear", "--start-weight-decay", "0.1",
                  "--end-weight-decay", "0.2", "--weight-decay", "0.1"},
                 "--weight-decay and a growing weight decay exclude each other");
  expect_refused({"--data-path", "a.h5", "--weight-decay-incr-style", "linear", "--start-weight-decay", "0.3",
                  "--end-weight-decay", "0.2"},
                 "--start-weight-decay 0.3 must be at least 0 and at most --end-weight-decay 0.2");
}

TEST(RunConfig, HoldsNormsAndDecoupledRates) {
  const std::vector<std::string> model = {"--model", "gpt2-124m", "--data-path", "a.h5"};
  const auto options = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = model;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return read(arguments).train_options();
  };
  EXPECT_EQ(options({}).grad_norm_power, 2);
  EXPECT_EQ(options({"--grad-norm-type", "inf"}).grad_norm_power, optim::infinity_norm);
  EXPECT_EQ(options({"--grad-norm-type", "3"}).grad_norm_power, 3);
  for (const std::string type : {"0", "17", "2.5", "max", ""}) {
    expect_refused({"--data-path", "a.h5", "--grad-norm-type", type}, "is neither a whole number from 1 to 16 nor inf");
  }
  const train::DecoupledRate rate = *options({"--decoupled-lr", "0.5", "--min-lr", "0.1"}).decoupled_rate;
  EXPECT_EQ((std::pair{rate.maximum, rate.minimum}), (std::pair{0.5, 0.1}));
  EXPECT_EQ(options({"--decoupled-lr", "0.5", "--decoupled-min-lr", "0.2"}).decoupled_rate->minimum, 0.2);
  expect_refused({"--data-path", "a.h5", "--decoupled-min-lr", "0.5"}, "--decoupled-min-lr needs --decoupled-lr");
  expect_refused({"--data-path", "a.h5", "--decoupled-lr", "0.5", "--decoupled-min-lr", "0.6"},
                 "--decoupled-min-lr 0.6 (default --min-lr) must be at most --decoupled-lr 0.5");
}

TEST(RunConfig, RefusesOptionsOfADynamicLossScaleWithoutOne) {
  for (const std::string name : {"initial-loss-scale", "min-loss-scale", "loss-scale-window", "hysteresis"}) {
    const auto with = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.end(), {"--model", "gpt2-124m", "--data-path", "a.h5", "--" + name, "4"});
      return arguments;
    };
    expect_refused(with({}), "--" + name + " needs --fp16: fp32 is trained without");
    expect_refused(with({"--dtype", "fp64"}), "--" + name + " needs --fp16: fp64 is trained without");
    expect_refused(with({"--fp16", "--loss-scale", "8"}), "--" + name + " and --loss-scale exclude each other");
    EXPECT_NO_THROW(read(with({"--fp16"})));
    EXPECT_NO_THROW(read(with({"--bf16"})));  // without use there, which the log says
  }
}

TEST(RunConfig, LossScaleOfZeroIsDynamic) {
  const auto scale = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--model", "gpt2-124m", "--data-path", "a.h5"});
    return read(arguments).train_options().loss_scale;
  };
  const optim::LossScalerOptions dynamic = scale({"--fp16", "--loss-scale", "0", "--initial-loss-scale", "64"});
  EXPECT_TRUE(dynamic.dynamic);
  EXPECT_EQ(dynamic.initial_scale, 64);
  EXPECT_FALSE(scale({"--fp16", "--loss-scale", "8"}).dynamic);
  EXPECT_EQ(scale({"--fp16", "--loss-scale", "8"}).initial_scale, 8);
  EXPECT_FALSE(scale({"--bf16", "--loss-scale", "0"}).dynamic);
  EXPECT_EQ(scale({"--bf16", "--loss-scale", "0"}).initial_scale, 1);
  expect_refused({"--model", "gpt2-124m", "--data-path", "a.h5", "--loss-scale", "0"},
                 "--loss-scale 0, a dynamic loss scale, needs --fp16, not fp32");
}

TEST(RunConfig, SkipsTrainingAndSavesNothing) {
  const std::vector<std::string> run = {"--model",      "gpt2-124m", "--data-path", "a.h5",
                                        "--skip-train", "--save",    "runs"};
  EXPECT_TRUE(read(run).schedule().skip_training);
  EXPECT_EQ(read(run).checkpoint.save, "");
  std::vector<std::string> nothing = run;
  nothing.insert(nothing.end(), {"--eval-iters", "0"});
  expect_refused(nothing, "--skip-train evaluates alone, and needs --eval-iters of at least 1");
}

TEST(RunConfig, RefusesOptionsThatAnotherMakesUseless) {
  const std::vector<std::string> run = {"--model", "gpt2-124m", "--data-path", "a.h5"};
  const auto with = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), run.begin(), run.end());
    return arguments;
  };
  expect_refused(with({"--init-method", "hashed-uniform", "--init-method-std", "0.1"}),
                 "--init-method-std needs --init-method normal");
  EXPECT_EQ(read(with({"--init-method-std", "0.1"})).initialisation.std, 0.1);
  expect_refused(with({"--lr-decay-style", "constant", "--min-lr", "0.1"}),
                 "--min-lr 0.1 and --lr-decay-style constant exclude each other: the rate stays at --lr 1");
  EXPECT_NO_THROW(read(with({"--lr-decay-style", "constant", "--min-lr", "1"})));
  for (const std::string name : {"split", "split-by"}) {
    expect_refused(with({"--sampling", "sequential", "--" + name, name == "split" ? "9,1" : "tokens"}),
                   "--sampling sequential has no splits");
  }
}

TEST(RunConfig, BoundsSizes) {
  const std::string max_int = "2147483647";
  for (const std::string name : {"num-layers", "vpp", "num-layers-per-virtual-pipeline-stage", "recompute-num-layers",
                                 "decoder-first-pipeline-num-layers", "decoder-last-pipeline-num-layers"}) {
    expect_refused({"--data-path", "a.h5", "--" + name, max_int}, " 2147483647 must be between 1 and 2000");
  }
  for (const std::string name : {"tp", "pp", "cp"}) {
    expect_refused({"--data-path", "a.h5", "--" + name, max_int}, " 2147483647 must be between 1 and 99999");
  }
  expect_refused({"--data-path", "a.h5", "--lr-decay-iters", "9223372036854775807"}, "must be between 1 and 1e+18");
  expect_refused({"--data-path", "a.h5", "--global-batch-size", max_int}, "more than the 100000 that can be planned");
}

TEST(RunConfig, TasksCountExamplesAndRunWholeEpochs) {
  const auto read_task = [](std::vector<std::string> arguments, int data_ranks) {
    arguments.insert(arguments.end(), {"--lr", "1", "--save", "a", "--micro-batch-size", "2"});
    Options options("trireme finetune", "");
    RunConfigReader reader(options, RunKind::task);
    options.parse(arguments);
    model::ModelConfig model;
    model.output = model::ModelOutput::choices;
    model.classes = 4;
    return RunConfig(reader.settle(data_ranks, {model, 128, 103, 5}));
  };
  const RunConfig config = read_task({"--global-batch-size", "10"}, 1);
  EXPECT_EQ(config.batch.micro_batch_size, 8);  // 2 questions of 4 choices
  EXPECT_EQ(config.batch.global_batch_size, 40);
  EXPECT_EQ(config.batch.train_iterations, 50);  // 5 epochs of 10 whole batches; 3 questions of each are left out
  EXPECT_EQ(config.schedule().eval_interval, 10);
  EXPECT_EQ(config.schedule().save_interval, 10);
  EXPECT_EQ(config.optimizer.lr.decay, 50);
  EXPECT_DOUBLE_EQ(config.optimizer.lr.warmup, 3.25);  // 0.065 of 50
  EXPECT_EQ(read_task({"--lr-warmup-iters", "7", "--save-interval", "4"}, 3).optimizer.lr.warmup, 7);
  EXPECT_EQ(*read_task({}, 3).batch.global_batch_size, 24);  // a micro-batch for each data rank
  EXPECT_THAT(
      [&] {
        read_task({"--global-batch-size", "104"}, 1);
      },
      ThrowsMessage<ConfigError>(HasSubstr("have 103 examples, fewer than one batch")));
  EXPECT_THAT(
      [&] {
        read_task({"--cross-entropy-chunks", "2"}, 1);
      },
      ThrowsMessage<ConfigError>(HasSubstr("an output layer over the vocabulary, which a task's head is not")));
}

}  // namespace
}  // namespace trireme::app
