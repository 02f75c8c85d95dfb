#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/data/dataset/bert/bert_data.hpp"
#include "tests/data/dataset/bert/bert_corpus.hpp"

namespace trireme::data {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

/// Samples and maps that Megatron-LM 23.06 made of 49 documents of WordPiece ids.
class BertGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("TRIREME_TEST_DATA");
    if (folder == nullptr) GTEST_SKIP() << "TRIREME_TEST_DATA does not name the folder of outside test data";
    std::ifstream file(std::string(folder) + "/../oracle/bert_samples.json");
    if (!file) GTEST_SKIP() << "there is no oracle/bert_samples.json beside the folder that TRIREME_TEST_DATA names";
    golden_ = json::parse(file);
    store_ = test::sentence_store(golden_.at("documents").get<std::vector<test::Sentences>>());
    std::vector<std::string> tokens;
    std::ifstream lines(std::string(folder) + "/bert/bert-base-uncased-vocab.txt");
    for (std::string line; std::getline(lines, line);) tokens.push_back(line);
    tokens.insert(tokens.end(), {"[BOS]", "[EOS]"});
    vocabulary_ = bert_vocabulary_of(tokens);
  }

  DocumentRange documents(std::int64_t first, std::int64_t end) const {
    const auto offsets = store_->document_offsets();
    return {offsets, first, end - first, offsets[static_cast<std::size_t>(first)],
            offsets[static_cast<std::size_t>(end)]};
  }

  static BertSampleRow row_of(const json& row) { return {row.at(0), row.at(1), row.at(2)}; }

  static Ids padded(Ids values, std::size_t size, std::int32_t rest) {
    values.resize(size, rest);
    return values;
  }

  void expect_equal(const BertSample& made, const json& expected) const {
    const std::size_t length = expected.at("text").size();
    EXPECT_EQ(padded(made.tokens, length, vocabulary_.pad), expected.at("text").get<Ids>());
    EXPECT_EQ(padded(made.token_types, length, vocabulary_.pad), expected.at("types").get<Ids>());
    EXPECT_EQ(padded(made.labels, length, -1), expected.at("labels").get<Ids>());
    EXPECT_EQ(padded(Ids(made.tokens.size(), 1), length, 0), expected.at("padding_mask").get<Ids>());
    EXPECT_EQ(made.is_random, expected.at("is_random").get<int>() != 0);
    EXPECT_EQ(made.is_truncated, expected.at("truncated").get<int>() != 0);
    Ids loss_mask;
    for (const std::int32_t label : padded(made.labels, length, -1)) loss_mask.push_back(label >= 0);
    EXPECT_EQ(loss_mask, expected.at("loss_mask").get<Ids>());
  }

  json golden_;
  std::shared_ptr<const TokenStore> store_;
  BertVocabulary vocabulary_;
};

TEST_F(BertGolden, SpecialTokensMatchTheReference) {
  const json& expected = golden_.at("tokenizer");
  EXPECT_EQ(vocabulary_.size, expected.at("vocab_size"));
  EXPECT_EQ(vocabulary_.pad, expected.at("pad"));
  EXPECT_EQ(vocabulary_.cls, expected.at("cls"));
  EXPECT_EQ(vocabulary_.sep, expected.at("sep"));
  EXPECT_EQ(vocabulary_.mask, expected.at("mask"));
}

TEST_F(BertGolden, MapsMatchTheReference) {
  for (const json& expected : golden_.at("maps")) {
    SCOPED_TRACE(expected.dump().substr(0, 250));
    BertSampleMapOptions options;
    const auto take_limit = [&](const char* name, std::int64_t& limit) {
      if (!expected.at(name).is_null()) limit = expected.at(name);
    };
    take_limit("num_epochs", options.max_epochs);
    take_limit("max_num_samples", options.max_samples);
    options.max_target_length = expected.at("max_seq_length");
    options.short_sequence_probability = expected.at("short_seq_prob");
    options.min_sentences = expected.at("min_num_sent");
    options.seed = expected.at("seed");
    const json& slice = expected.at("documents");
    const BertSampleMap map(
        *store_, slice.is_null() ? documents(0, store_->documents()) : documents(slice[0], slice[1]), options);
    const json& rows = expected.at("rows");
    ASSERT_EQ(map.size(), std::ssize(rows));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_EQ(map.row(static_cast<std::int64_t>(i)), row_of(rows[i])) << "row " << i;
    }
  }
  EXPECT_EQ(golden_.at("maps").size(), 26u);
}

TEST_F(BertGolden, SamplesOfDatasetsMatchTheReference) {
  std::size_t count = 0;
  for (const json& set : golden_.at("sets")) {
    BertSampleOptions options;
    options.sequence_length = set.at("max_seq_length");
    options.seed = set.at("seed");
    options.short_sequence_probability = set.at("short_seq_prob");
    options.masking = {vocabulary_, set.at("masked_lm_prob"), set.at("binary_head")};
    const std::int64_t budget = set.at("max_num_samples");
    const BertSamples samples(store_, documents(0, store_->documents()), options, std::span(&budget, 1));
    EXPECT_EQ(samples.size(), set.at("dataset_length"));
    const SampleBuffer buffer(samples.sequence_length(), samples.fields());
    const SampleView& view = buffer.view();
    for (const json& expected : set.at("samples")) {
      SCOPED_TRACE(expected.at("idx").dump() + " at length " + set.at("max_seq_length").dump());
      const std::int64_t index = expected.at("idx");
      const BertSample made = samples.make(index);
      EXPECT_EQ(made.row, row_of(expected.at("row")));
      expect_equal(made, expected);
      samples.read(index, view);
      EXPECT_EQ(Ids(view.tokens.begin(), view.tokens.end()), expected.at("text").get<Ids>());
      EXPECT_EQ(Ids(view.token_types.begin(), view.token_types.end()), expected.at("types").get<Ids>());
      EXPECT_EQ(Ids(view.labels.begin(), view.labels.end()), expected.at("labels").get<Ids>());
      EXPECT_EQ(view.length[0], std::ssize(made.tokens));
      const Ids is_random = options.masking.binary_head ? Ids{expected.at("is_random").get<int>()} : Ids{};
      EXPECT_EQ(Ids(view.is_random.begin(), view.is_random.end()), is_random);
      if (HasFailure()) return;
      ++count;
    }
  }
  EXPECT_EQ(count, 360u);
}

TEST_F(BertGolden, SamplesOfSentencesMatchTheReference) {
  for (const json& expected : golden_.at("direct")) {
    const auto sentences = expected.at("sentences").get<test::Sentences>();
    const BertSampleRow row{0, std::ssize(sentences), expected.at("target_seq_length")};
    NumpyRandom random(expected.at("rng_seed").get<std::uint32_t>());
    expect_equal(make_bert_sample(*test::sentence_store({sentences}), row,
                                  {vocabulary_, expected.at("masked_lm_prob"), expected.at("binary_head")}, random),
                 expected);
  }
  EXPECT_EQ(golden_.at("direct").size(), 49u);
}

}  // namespace
}  // namespace trireme::data
