#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/data/tokenizer/tokenizer.hpp"
#include "tests/app/run_config/read_config.hpp"
#include "tests/support/message_of.hpp"

namespace trireme::app {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(RunConfig, TakesCorporaOfEachSplitAndValidationSets) {
  const Words model = "--model gpt2-124m";
  const RunConfig config =
      read(model +
           "--train-data-path 3 a.h5 1 b.h5 --test-data-path t.h5 --valid-set code=c.h5 mix=2 ./x=c.h5 1 dir/d=e.h5 "
           "--valid-data-path v.h5");
  EXPECT_EQ(config.data.fractions(), (std::array<double, 3>{1, 0, 0}));
  EXPECT_EQ(config.data.stages(), (std::vector<BlendFileStage>{{.corpora = {{"a.h5", 3}, {"b.h5", 1}}}}));
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
  EXPECT_EQ(read(model + "--data-path a.h5 --sampling sequential").schedule().eval_iterations, 0);
  EXPECT_EQ(read(model + "--data-path a.h5 --sampling sequential").gpt_data_options({}).sampling,
            data::Sampling::sequential);
  EXPECT_EQ(read(model + "--data-path a.h5 --sampling sequential --valid-set v=v.h5").schedule().eval_iterations, 100);

  EXPECT_TRUE(read(model + "--data-path a.h5 --valid-set v=v.h5 --split-valid-sets").data.valid_sets_split);
  const std::string needs = "--split-valid-sets needs --data-path or --blend, and a validation split in --split";
  expect_refused(model + "--train-data-path a.h5 --valid-set v=v.h5 --split-valid-sets", needs);
  expect_refused(model + "--data-path a.h5 --split 9,0,1 --valid-set v=v.h5 --split-valid-sets", needs);
  expect_refused(model + "--data-path a.h5 --split-valid-sets", "--split-valid-sets needs --valid-set");
  expect_refused(model, "--data-path must be given, or --blend, --train-data-path or --mock-data");
  const auto refused = [&](const Words& words, const std::string& message) {
    expect_refused(model + "--train-data-path a.h5" + words, message);
  };
  refused("--data-path a.h5", "--data-path and --train-data-path exclude each other");
  refused("--split 1", "--split divides the corpora of training");
  refused("--split-by tokens", "--split-by divides the corpora of training");
  refused("--valid-data-path 0.5 a.h5 b.h5", "--valid-data-path: unexpected 'b.h5' after 'a.h5'");
  refused("--valid-set a.h5", "--valid-set: 'a.h5' is not NAME=FILE");
  refused("--valid-set a=a.h5 a=b.h5", "--valid-set: the name a occurs twice");
  refused("--valid-set a=-1 a.h5", "has weight -1");
  expect_refused(model + "--data-path a.h5 --test-data-path b.h5", "--test-data-path needs --train-data-path");
}

TEST(RunConfig, TakesABlendFile) {
  const Words model = "--model gpt2-124m";
  const DataOptions data = read(model + "--blend b.txt").data;
  EXPECT_FALSE(data.has_own_splits());
  EXPECT_EQ(data.fractions(), data::parse_split("969,30,1"));
  EXPECT_THROW(static_cast<void>(data.stages()), IoError);
  EXPECT_TRUE(read(model + "--blend b.txt --valid-data-path v.h5").data.has_own_splits());
  EXPECT_TRUE(read(model + "--blend b.txt --valid-set v=v.h5 --split-valid-sets").data.valid_sets_split);
  expect_refused(model + "--blend b.txt --data-path a.h5", "--data-path and --blend exclude each other");
  expect_refused(model + "--blend b.txt --train-data-path a.h5", "--train-data-path and --blend exclude each other");
  expect_refused(model + "--blend b.txt --mock-data", "--mock-data replaces --data-path, --blend");
  expect_refused(model + "--blend b.txt --test-data-path v.h5 --split 1", "--split divides the corpora of training");
}

TEST(BlendFile, HasWeightsOrEpochsAndStages) {
  using Unit = BlendFileStage::Unit;
  EXPECT_EQ(parse_blend("\xEF\xBB\xBF# mostly web\r\n 0.7 web.h5\r\n.3\tmy code.h5\n\nfrom step 20K\n2 epochs wiki.h5\n"
                        "1 epoch a b.h5\nweb.h5\nfrom token 2.5B\n1 x.h5",
                        "b"),
            (std::vector<BlendFileStage>{{0, Unit::samples, {{"web.h5", 0.7}, {"my code.h5", 0.3}}},
                                         {20'000, Unit::steps, {{"wiki.h5", {}, 2}, {"a b.h5"}, {"web.h5"}}},
                                         {2'500'000'000, Unit::tokens, {{"x.h5", 1}}}}));
  EXPECT_EQ(parse_blend("from sample 0\na.h5", "b"), (std::vector<BlendFileStage>{{.corpora = {{"a.h5"}}}}));
}

TEST(BlendFile, NamesTheLineThatIsWrong) {
  const auto error = [](const char* text) { return test::message_of<DataError>([&] { parse_blend(text, "b"); }); };
  EXPECT_EQ(error("# none\n"), "--blend b:1: no corpus is named; give a line 'WEIGHT CORPUS' each");
  EXPECT_THAT(error("1 a\nfrom step 5\nfrom step 6\n1 a\n"), HasSubstr("b:3: no corpus"));
  EXPECT_THAT(error("0 a"), HasSubstr("b:1: '0' must be a positive number"));
  EXPECT_THAT(error("0,7 a"), HasSubstr("b:1: '0,7' is not a number"));
  EXPECT_THAT(error("1e999 a"), HasSubstr("'1e999' is not a number"));
  EXPECT_THAT(error("\x89HDF\r\n\x1A\n"), HasSubstr("this is a corpus: give it by --data-path"));
  EXPECT_THAT(error("-1 epochs a"), HasSubstr("'-1' must be a positive number"));
  EXPECT_THAT(error("1 a\n1 b\n2 a\n"), HasSubstr("b:3: the corpus a occurs twice in a stage"));
  EXPECT_THAT(error("1 a\nb\n"), HasSubstr("b:2: a stage has either a weight for each corpus, or none"));
  EXPECT_THAT(error("1 a\nfrom hour 2\n1 a"), HasSubstr("b:2: 'from hour 2' is not 'from step N'"));
  EXPECT_THAT(error("1 a\nfrom step x\n1 a"), HasSubstr("b:2: 'x' is not a number"));
  EXPECT_THAT(error("from step 1\n1 a"), HasSubstr("b:1: the first stage begins at step 0"));
}

TEST(RunConfig, TakesEachCorpusOfValidationAsASet) {
  const Words run = "--model gpt2-124m --train-data-path a.h5";
  const auto names = [&](const Words& arguments) {
    std::vector<std::string> names;
    for (const DataOptions::SplitPaths& other : read(run + arguments).data.other_corpora()) names.push_back(other.set);
    return names;
  };
  EXPECT_EQ(names("--multiple-validation-sets --valid-data-path v.h5 w.h5"), (std::vector<std::string>{"0", "1"}));
  EXPECT_EQ(names("--multiple-validation-sets --valid-data-path v.h5 w.h5 --validation-set-names wiki code "
                  "--valid-set c=c.h5"),
            (std::vector<std::string>{"wiki", "code", "c"}));
  const auto refused = [&](const Words& words, const std::string& message) { expect_refused(run + words, message); };
  refused("--multiple-validation-sets", "--multiple-validation-sets needs --valid-data-path");
  refused("--valid-data-path v.h5 --validation-set-names a", "needs --multiple-validation-sets");
  refused("--multiple-validation-sets --valid-data-path v.h5 w.h5 --validation-set-names a",
          "--validation-set-names has 1 names, --valid-data-path 2 corpora");
  refused("--multiple-validation-sets --valid-data-path 1 v.h5 2 w.h5", "have no weights");
  refused("--multiple-validation-sets --valid-data-path v.h5 w.h5 --validation-set-names a a",
          "the name a occurs twice");
  refused({"--multiple-validation-sets", "--valid-data-path", "v.h5", "--validation-set-names", "a b"},
          "is not a name");
}

TEST(RunConfig, TakesMockDataAndTheCyclicLoader) {
  const Words shape = "--num-layers 2 --hidden-size 16 --num-attention-heads 2";
  EXPECT_TRUE(read(shape + "--mock-data --vocab-size 100").data.mock);
  EXPECT_NO_THROW(read("--model gpt2-124m --mock-data"));
  expect_refused(shape + "--mock-data", "--mock-data has no tokenizer: give --vocab-size");
  expect_refused(shape + "--mock-data --data-path a.h5", "--mock-data replaces --data-path");
  expect_refused("--model bert-base --mock-data", "--mock-data is running text");

  const RunConfig config = read(shape + "--data-path a.h5 --dataloader-type cyclic");
  EXPECT_EQ(config.gpt_data_options({}).sampling, data::Sampling::cyclic);
  EXPECT_EQ(read(shape + "--data-path a.h5 --dataloader-type single").data.sampling, data::Sampling::shuffled);
  expect_refused(shape + "--data-path a.h5 --dataloader-type cyclic --sampling sequential",
                 "--sampling sequential and --dataloader-type cyclic exclude each other");
  expect_refused("--model bert-base --data-path a.h5 --dataloader-type cyclic", "would mask a BERT's samples alike");
}

TEST(RunConfig, TakesFillInTheMiddle) {
  data::CorpusInfo bytes;
  bytes.tokenizer = "bytes";
  bytes.tokenizer_payload = data::make_byte_tokenizer()->payload();
  bytes.end_of_document = 256;
  const RunConfig config = read(gpt +
                                "--fim-rate 0.5 --fim-prefix-token 257 --fim-middle-token 258 --fim-suffix-token ~ "
                                "--fim-split-sample | --fim-fragment-rate 1");
  const std::optional<data::FimOptions> fim = config.data.fim.settled(bytes, 259);
  ASSERT_TRUE(fim);
  EXPECT_EQ(fim->prefix, 257);
  EXPECT_EQ(fim->suffix, '~');
  EXPECT_EQ(fim->split_token, '|');
  EXPECT_EQ(fim->codec.decode(std::vector<std::int32_t>{'a', 'b'}), "ab");
  EXPECT_TRUE(fim->codec.is_special(256));
  EXPECT_FALSE(fim->codec.is_special('~'));
  EXPECT_FALSE(read(gpt).data.fim.settled(bytes, 259));
  EXPECT_THAT([&] { config.data.fim.settled(bytes, 258); },
              ThrowsMessage<ConfigError>(HasSubstr("--fim-middle-token: the tokenizer bytes has no token '258'")));
  FillInMiddleOptions named = config.data.fim;
  named.end_token = "256";
  EXPECT_TRUE(named.settled(bytes, 259));
  named.end_token = "~";
  EXPECT_THAT(
      [&] { named.settled(bytes, 259); },
      ThrowsMessage<ConfigError>(HasSubstr("--fim-eod-token ~ is not the token that ends the corpus' documents")));
  expect_refused(gpt + "--fim-spm-rate 1", "--fim-spm-rate needs a --fim-rate above 0");
  expect_refused(gpt + "--fim-rate 1 --fim-split-sample |",
                 "--fim-split-sample and --fim-fragment-rate must be given together");
  expect_refused("--model bert-base --data-path a.h5 --fim-rate 1", "which a BERT does not read");
}

TEST(RunConfig, ReadsTheSamplesOfBert) {
  const RunConfig config = read(
      "--model bert-336m --data-path a.h5 --mask-prob 0.2 --short-seq-prob 0 --seed 7 --split 8,1,1 --split-by "
      "documents --bert-no-binary-head");
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

TEST(RunConfig, RefusesSamplesThatAModelDoesNotRead) {
  const Words bert = "--model bert-336m --data-path a.h5";
  expect_refused(bert + "--sampling sequential", "a BERT's samples are always shuffled");
  for (const std::string name : {"--reset-position-ids", "--reset-attention-mask", "--eod-mask-loss"}) {
    expect_refused(bert + name, "each sample of a BERT is of one document");
  }
  expect_refused(bert + "--mask-prob 0", "--mask-prob 0 must be above 0 and at most 1");
  expect_refused(bert + "--short-seq-prob 1.5", "--short-seq-prob 1.5");
  for (const std::string name : {"--mask-prob", "--short-seq-prob"}) {
    expect_refused(gpt + Words{name, "0.1"}, "are options of a BERT");
  }
}

TEST(RunConfig, TakesCorporaAloneOrAWeightForEach) {
  const auto corpora = [](std::vector<std::string> paths) {
    DataOptions options;
    options.path = std::move(paths);
    return options.stages().front().corpora;
  };
  EXPECT_EQ(corpora({"2", "a.h5", "0.5", "b.h5"})[1].path, "b.h5");
  EXPECT_EQ(corpora({"2", "a.h5", "0.5", "b.h5"})[1].weight, 0.5);
  for (const std::vector<std::string>& paths : {std::vector<std::string>{"a.h5"}, {"a.h5", "b.h5"}, {"a", "b", "c"}}) {
    ASSERT_EQ(corpora(paths).size(), paths.size());
    EXPECT_EQ(corpora(paths).back().path, paths.back());
    EXPECT_FALSE(corpora(paths).back().weight);
  }
  expect_refused("--data-path a.h5 1 b.h5", "unexpected '1' after 'a.h5'; give only corpora, or a weight");
  expect_refused("--data-path 1 2 b.h5", "unexpected '2' after '1'");
  expect_refused("--data-path 1 a.h5 b.h5", "unexpected 'b.h5' after 'a.h5'");
  expect_refused("--data-path 1 a.h5 1", "no corpus follows the weight 1");
  expect_refused("--data-path 1e308 a.h5 1e308 b.h5", "the weights of --data-path add up to more than 1.8e+308");
  for (const std::string weight : {"0", "-1", "nan", "inf"}) {
    expect_refused({"--data-path", weight, "a.h5"}, "has weight " + weight + "; weights must be positive");
  }
}

}  // namespace
}  // namespace trireme::app
