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

  /// Plans a run of 20 samples with these options more, and makes its samples.
  data::SampleSplits samples(const Words& more) const {
    const Words bert =
        "--model-type bert --num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 32 --lr 1 "
        "--train-iters 5 --global-batch-size 4 --eval-iters 1 --backend cpu --split-by documents";
    Options options("trireme train", "");
    RunConfigReader reader(options);
    options.parse(bert + more);
    const Job job(test::mpi_environment(), options, reader.parsed().parallel.grid, reader.parsed().device);
    TrainPlan plan = make_plan(job, reader.settle(1));
    return make_data(*job.world, plan, "");
  }
  void expect_refused(const Words& more, const std::string& words) const {
    EXPECT_THAT([&] { samples(more); }, ThrowsMessage<DataError>(HasSubstr(words)));
  }
};

TEST_F(TrainPlanOfABert, ReadsABlendAndSamplesOfOneSegment) {
  build_wordpiece("a", "--split-sentences");
  build_wordpiece("b", "--split-sentences");
  const data::SampleSplits made =
      samples({"--data-path", "1", directory_ / "a.h5", "3", directory_ / "b.h5", "--bert-no-binary-head"});
  EXPECT_EQ(made.train->size(), 20);
  EXPECT_FALSE(made.train->fields().is_random);
  EXPECT_EQ(made.test, nullptr);  // 0.1 % of 60 documents
}

TEST_F(TrainPlanOfABert, RefusesOtherCorpora) {
  build("bytes", "--tokenizer bytes --split-sentences");
  build_wordpiece("flat", {});
  expect_refused({"--data-path", directory_ / "bytes.h5"}, "bytes.h5 was made by tokenizer bytes, but BERT reads");
  expect_refused({"--data-path", directory_ / "flat.h5", "--split", "4,1,1"},
                 "flat.h5 has no sentences, which BERT's samples consist of. Try to build it again with "
                 "<split_sentences>");
}

}  // namespace
}  // namespace trireme::app
