// Samples that `train` plans and makes of a corpus, before there is a model.
#include "src/app/commands/train/train_plan.hpp"

#include <gmock/gmock.h>

#include "tests/app/commands/command_test.hpp"
#include "tests/app/words.hpp"

namespace trireme::app {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class TrainPlanOfABert : public CommandTest {
 protected:
  TrainPlanOfABert() : CommandTest("corpus") {}

  /// Builds NAME.h5 of 60 documents of two to five sentences.
  void build(const std::string& name, const Words& arguments) {
    std::string text;
    for (int d = 0; d < 60; ++d) {
      text += "{\"text\": \"";
      for (int i = 0; i < 2 + d % 4; ++i) text += i % 2 == 0 ? "The ship rows. " : "The the ships row. ";
      text += "\"}\n";
    }
    const Words words{"build", "--input", file("a.jsonl", text), "--output", directory_ / (name + ".h5")};
    ASSERT_EQ(run(words + arguments), 0) << message_;
  }
  void build_wordpiece(const std::string& name, const Words& more) {
    const Words tokenizer{"--tokenizer", "wordpiece", "--vocab-file",
                          file("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n.\nthe\nship\nrow\n##s\n")};
    build(name, tokenizer + more);
  }

  struct Planned {
    TrainPlan plan;
    data::SampleSplits samples;
  };
  /// Plans a run of 20 samples with these options more, and makes its samples.
  Planned planned(const Words& more) const {
    const Words bert =
        "--model-type bert --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 32 --lr 1 "
        "--train-iters 5 --global-batch-size 4 --eval-iters 1 --backend cpu --split-by documents";
    Options options("trireme train", "");
    RunConfigReader reader(options);
    options.parse(bert + more);
    const Job job(test::mpi_environment(), options, reader.parsed().parallel.grid, reader.parsed().device);
    Planned planned;
    planned.plan = make_plan(job, reader.settle(1));
    planned.samples = make_data(*job.world, planned.plan, "");
    return planned;
  }
  void expect_refused(const Words& more, const std::string& words) const {
    EXPECT_THAT([&] { planned(more); }, ThrowsMessage<DataError>(HasSubstr(words)));
  }
};

TEST_F(TrainPlanOfABert, MakesItsSamples) {
  build_wordpiece("a", "--split-sentences");
  const Planned run = planned({"--data-path", directory_ / "a.h5", "--split", "4,1,1", "--mask-prob", "0.25"});
  EXPECT_EQ(run.plan.model.vocabulary, 12);  // with [BOS] and [EOS]
  EXPECT_EQ(run.plan.attributes.get<std::string>("data.mask_probability"), "0.25");
  const auto& options = std::get<data::BertDataOptions>(run.plan.samples);
  ASSERT_EQ(options.budgets.size(), 1u);
  EXPECT_EQ(options.budgets[0].train, 20);
  EXPECT_EQ(options.budgets[0].test, 4);
  for (const auto* samples : {&run.samples.train, &run.samples.valid, &run.samples.test}) {
    ASSERT_TRUE(*samples);
    EXPECT_GE((*samples)->size(), 4);
    EXPECT_EQ((*samples)->fields(), (data::SampleFields{.token_types = true, .length = true, .is_random = true}));
  }
  EXPECT_GE(run.samples.train->size(), 20);
}

TEST_F(TrainPlanOfABert, ReadsABlendAndSamplesOfOneSegment) {
  build_wordpiece("a", "--split-sentences");
  build_wordpiece("b", "--split-sentences");
  const Planned run =
      planned({"--data-path", "1", directory_ / "a.h5", "3", directory_ / "b.h5", "--bert-no-binary-head"});
  EXPECT_EQ(run.samples.train->size(), 20);
  EXPECT_FALSE(run.samples.train->fields().is_random);
  EXPECT_EQ(run.samples.test, nullptr);  // 0.1 % of 60 documents
}

TEST_F(TrainPlanOfABert, RefusesOtherCorpora) {
  build("bytes", "--tokenizer bytes --split-sentences");
  build_wordpiece("flat", {});
  expect_refused({"--data-path", directory_ / "bytes.h5"}, "bytes.h5 was made by tokenizer bytes, but BERT reads");
  for (const std::string split : {"1", "4,1,1", "969,30,1"}) {
    expect_refused({"--data-path", directory_ / "flat.h5", "--split", split},
                   "flat.h5 has no sentences, which BERT's samples consist of. Try to build it again with "
                   "<split_sentences>");
  }
}

}  // namespace
}  // namespace trireme::app
