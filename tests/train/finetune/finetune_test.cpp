// Scores of fine-tuning: serialization, results, and means over seeds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/data/tasks/race.hpp"
#include "src/train/finetune/epoch_scoring.hpp"

namespace trireme::test {
namespace {

using train::BestScores;

TEST(TaskScores, AreRestoredForTheSameSamplesOnly) {
  const train::TaskScores scores{2, {0.1, -3e300, 1.0 / 3, 4, 5, 6}, 0.7};
  const std::string bytes = to_bytes(scores, "dev 512");
  const auto again = train::scores_from(bytes, "dev 512", 3);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->columns, 2);
  EXPECT_EQ(again->scores, scores.scores);
  EXPECT_EQ(again->loss, scores.loss);
  EXPECT_FALSE(train::scores_from(bytes, "dev 384", 3));
  EXPECT_FALSE(train::scores_from(bytes, "dev", 3));
  EXPECT_FALSE(train::scores_from(bytes, "dev 512", 2));
  EXPECT_FALSE(train::scores_from(bytes, "dev 512", 0));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(train::scores_from(bytes.substr(0, size), "dev 512", 3)) << size;
  }
}

TEST(Measure, CountsTheRightClassesOfLabelledSamples) {
  const train::FinetuneTask task;  // RACE
  data::RaceExamples examples;
  const std::int64_t text = examples.lists.add(std::vector<std::int32_t>{1, 2});
  for (const std::int32_t label : {2, 0}) examples.questions.push_back({text, {text, text, text, text}, label});
  train::TaskSplit split;
  split.samples = std::make_unique<data::RaceSamples>(data::TaskPacking{8, {0, 0, 0}}, std::move(examples));
  const train::TaskScores scores{4, {0, 1, 3, 2, 1, 1, 5, 0}, 0.5};
  const train::TaskResult labelled = measure(task, split, scores);
  EXPECT_EQ(labelled.text(), "accuracy 50.00 % (1 of 2)");
  EXPECT_EQ(labelled.all.score, 0.5);
  split.has_labels = false;
  const train::TaskResult bare = measure(task, split, scores);
  EXPECT_EQ(bare.text(), "2 predictions");
  EXPECT_EQ(bare.classes, (std::vector<std::int32_t>{2, 2}));
}

double metric_of(const train::TaskResult::Figures& figures, data::Metric metric) {
  return std::ranges::find(figures.metrics, metric, [](const auto& each) { return each.first; })->second;
}

TEST(Measure, OfGlueHasTheTasksMetricsOfEachSetAndTheirMean) {
  // Labels 1 1 0 0 1 0, predictions 1 0 1 0 1 0.
  std::vector<data::TextPair> pairs;
  for (const std::int32_t label : {1, 1, 0, 0, 1, 0}) pairs.push_back({0, "a", "", label});
  const train::TaskScores scores{2, {0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0}, 0.5};
  train::TaskSplit split;
  split.samples =
      std::make_unique<data::PairSamples>(data::TaskPacking{8, {0, 0, 0}}, *data::make_byte_tokenizer(), pairs);
  split.sets = {{"all wrong or right", 4}, {"right", 2}};
  const train::TaskResult mrpc = measure({.name = "MRPC"}, split, scores);
  EXPECT_EQ(mrpc.text(), "accuracy 66.67 % (4 of 6), F1 0.6667");
  ASSERT_EQ(mrpc.sets.size(), 2u);
  EXPECT_EQ(metric_of(mrpc.sets[0].second, data::Metric::f1), 0.5);
  EXPECT_EQ(metric_of(mrpc.sets[1].second, data::Metric::f1), 1);
  EXPECT_NEAR(mrpc.all.score, 2.0 / 3, 1e-15);
  const train::TaskResult cola = measure({.name = "CoLA"}, split, scores);
  EXPECT_NEAR(cola.all.score, 1.0 / 3, 1e-15);  // (2 * 2 - 1 * 1) / 9
  EXPECT_EQ(cola.text(), "accuracy 66.67 % (4 of 6), Matthews' correlation 0.3333");
  EXPECT_EQ(cola.sets[0].second.score, 0);
  EXPECT_EQ(cola.sets[1].second.score, 1);
  EXPECT_EQ(measure({.name = "SST-2"}, split, scores).all.score, 4.0 / 6);
}

TEST(Measure, OfValuesIsTheMeanOfBothCorrelations) {
  std::vector<data::TextPair> pairs;
  for (const double value : {0.0, 1.0, 1.0, 4.0, 5.0}) pairs.push_back({0, "a", "b", data::label_of_value(value)});
  train::TaskSplit split;
  split.samples =
      std::make_unique<data::PairSamples>(data::TaskPacking{8, {0, 0, 0}}, *data::make_byte_tokenizer(), pairs);
  split.sets = {{"alike", 3}, {"reversed", 2}};
  const train::TaskScores scores{1, {-1, 0, 0, 7, 6}, 0.5};
  const train::TaskResult result = measure({.name = "STS-B"}, split, scores);
  EXPECT_EQ(result.values, scores.scores);
  EXPECT_EQ(result.text(), "Pearson's correlation 0.9636, Spearman's correlation 0.8947");
  EXPECT_NEAR(result.all.score, (0.96363 + 0.89474) / 2, 1e-5);
  EXPECT_FALSE(result.all.correct);
  EXPECT_NEAR(result.sets[0].second.score, 1, 1e-15);
  EXPECT_NEAR(result.sets[1].second.score, -1, 1e-15);
}

TEST(TaskScores, ThatAreNotFiniteAreRefused) {
  EXPECT_NO_THROW(train::check_finite({.columns = 2, .scores = {1, -2}, .loss = 3}, "test"));
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  for (const train::TaskScores& scores : {train::TaskScores{2, {1, nan}, 3}, train::TaskScores{2, {1, -2}, infinity}}) {
    EXPECT_THAT([&] { train::check_finite(scores, "test"); },
                testing::ThrowsMessage<NumericalError>(testing::HasSubstr("outputs for the test data are not finite")));
  }
  train::Progress progress;
  progress.iteration = 4;
  EXPECT_TRUE(progress.note_score(0.5));
  progress.iteration = 8;
  EXPECT_FALSE(progress.note_score(nan));
  EXPECT_EQ(progress.best_iteration, 4);
}

TEST(MeanOfSeeds, AveragesProbabilities) {
  // Softmax of (0, log 3) is (1/4, 3/4), and that of (log 3, 0) is (3/4, 1/4).
  const double log3 = std::log(3.0);
  const train::TaskScores mean = train::mean_of({}, {{2, {0, log3}, 0}, {2, {log3, 0}, 0}});
  ASSERT_EQ(mean.scores.size(), 2u);
  for (const double score : mean.scores) EXPECT_NEAR(score, std::log(0.5), 1e-15);
  EXPECT_EQ(train::mean_of({.name = "STS-B"}, {{1, {1, -2}, 0}, {1, {4, 2}, 0}}).scores, (std::vector<double>{2.5, 0}));
}

TEST(MedianOfSeeds, IsTheMiddleValueOrTheMeanOfTheMiddleTwo) {
  EXPECT_EQ(train::median_of({3, 1, 2}), 2);
  EXPECT_EQ(train::median_of({4, 1, 2, 8}), 3);
}

}  // namespace
}  // namespace trireme::test
