// Batches that are read ahead, compared with those read on demand.
#include "src/train/batch_loader.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "src/data/dataset/gpt_samples.hpp"

namespace trireme::train {
namespace {

/// Sample i is i, i + 1, i + 2 ...; reading fails from sample `damaged` on.
class Numbers final : public data::NextTokenSamples {
 public:
  explicit Numbers(std::int64_t damaged = 1000) : damaged_(damaged) {}
  std::int64_t size() const override { return 1000; }
  std::int64_t sequence_length() const override { return 4; }
  void read_text(std::int64_t index, std::span<std::int32_t> tokens) const override {
    TRIREME_CHECK(index < damaged_, DataError, "sample {} is damaged", index);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(index) + static_cast<int>(i);
    if (std::this_thread::get_id() != reader_) ++elsewhere;
  }
  void check_unchanged() const override { TRIREME_CHECK(!changed, DataError, "the file was written to"); }
  std::atomic<bool> changed = false;
  mutable std::atomic<int> elsewhere = 0;  ///< samples read on a thread other than the creating one

 private:
  std::int64_t damaged_;
  std::thread::id reader_ = std::this_thread::get_id();
};

class BatchesAhead : public testing::Test {
 protected:
  static std::vector<BatchLoader::Sample> samples(std::int64_t first) {
    std::vector<BatchLoader::Sample> list;
    for (std::int64_t i = 0; i < 4; ++i) list.push_back({first + i, 100 + first + i});
    return list;
  }
  /// Loads the samples and checks their contents.
  void expect_loaded(const data::SampleSource& source, std::int64_t first, LossAverage average = LossAverage::tokens) {
    const std::vector<model::MicroBatch> batches = loader_.load(source, samples(first), {.average = average});
    ASSERT_EQ(batches.size(), 2U);
    for (std::int64_t j = 0; j < 2; ++j) {
      const model::MicroBatch& batch = batches[static_cast<std::size_t>(j)];
      for (std::int64_t row = 0; row < 4; ++row) {
        for (std::int64_t i = 0; i < 2; ++i) {
          const std::int64_t element = row * 2 + i, token = first + 2 * j + i + row;
          EXPECT_EQ(batch.tokens.as<std::int32_t>()[element], token);
          EXPECT_EQ(batch.labels.as<std::int32_t>()[element], token + 1);
          EXPECT_EQ(batch.loss_weights.as<float>()[element], average == LossAverage::tokens ? 1 : 0.125F);
        }
      }
      EXPECT_EQ(batch.samples.as<std::int64_t>()[1], 100 + first + 2 * j + 1);
    }
    EXPECT_EQ(loader_.counted_tokens(), 16);
  }
  std::unique_ptr<Backend> backend_ = make_backend(BackendChoice::cpu, 1);
  BatchLoader loader_{*backend_, parallel::SequenceShard::of(4), 2, 2, DType::fp32};
};

TEST_F(BatchesAhead, MatchDirectReadsAndComeFromAnotherThread) {
  const Numbers source;
  expect_loaded(source, 0);
  EXPECT_EQ(source.elsewhere, 0);
  for (const std::int64_t first : {4, 8, 12}) {
    loader_.read_ahead(source, samples(first));
    loader_.copy_ahead();
    expect_loaded(source, first);
  }
  EXPECT_EQ(source.elsewhere, 12);
}

TEST_F(BatchesAhead, WaitWhileOthersAreLoaded) {
  const Numbers training, validation;
  loader_.read_ahead(training, samples(4));
  expect_loaded(validation, 4);
  expect_loaded(training, 8);
  expect_loaded(training, 4, LossAverage::micro_batch);  // other weights: not what was read ahead
  expect_loaded(training, 4);
  EXPECT_EQ(training.elsewhere, 4);
  EXPECT_EQ(validation.elsewhere, 0);
}

TEST_F(BatchesAhead, AreDiscardedIfOthersArePrefetched) {
  const Numbers source;
  loader_.read_ahead(source, samples(4));
  loader_.read_ahead(source, samples(8));
  expect_loaded(source, 8);
  expect_loaded(source, 4);
}

TEST_F(BatchesAhead, AreRefusedIfTheFileHasChangedWhichAlsoExplainsOtherErrors) {
  Numbers source(6);
  source.changed = true;
  for (const std::int64_t first : {0, 4}) {
    EXPECT_THAT([&] { loader_.load(source, samples(first)); },
                testing::ThrowsMessage<DataError>(testing::StrEq("the file was written to")));
  }
  source.changed = false;
  loader_.read_ahead(source, samples(0));
  expect_loaded(source, 0);
}

TEST_F(BatchesAhead, ReportErrorsOnceToTheirCaller) {
  const Numbers source(6);
  loader_.read_ahead(source, samples(4));
  expect_loaded(source, 0);
  try {
    loader_.load(source, samples(4));
    FAIL() << "sample 6 is damaged";
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "sample 6 is damaged");
    EXPECT_EQ(error.exit_code(), ExitCode::data);
  }
  expect_loaded(source, 2);
  // These samples are never loaded.
  loader_.read_ahead(source, samples(8));
  loader_.end_reading();
  loader_.copy_ahead();
  expect_loaded(source, 1);
}

/// Padded pairs of segments, as for BERT: sample i has i + 1 of 8 positions.
class PaddedSamples final : public data::SampleSource {
 public:
  std::int64_t size() const override { return 8; }
  std::int64_t sequence_length() const override { return 8; }
  data::SampleFields fields() const override {
    return {.token_types = true, .positions = true, .first_visible = true, .length = true, .is_random = true};
  }
  void read(std::int64_t index, const data::SampleView& sample) const override {
    const auto fill = [&](std::span<std::int32_t> field, std::int32_t base) {
      for (std::size_t p = 0; p < field.size(); ++p) field[p] = value(base, index, static_cast<std::int64_t>(p));
    };
    fill(sample.tokens, 1);
    fill(sample.token_types, 2);
    fill(sample.positions, 3);
    fill(sample.first_visible, 6);
    fill(sample.length, 4);
    fill(sample.is_random, 5);
    std::ranges::fill(sample.labels, -1);
    sample.labels[static_cast<std::size_t>(index)] = 7;  // the last position before the padding is masked
  }
  /// A number for each field, sample and position.
  static std::int32_t value(std::int32_t base, std::int64_t index, std::int64_t position) {
    return 100 * base + 10 * static_cast<std::int32_t>(index) + static_cast<std::int32_t>(position);
  }
};

TEST(BatchLoader, LoadsTheRequestedFieldsInTheRowsOfEachContextRank) {
  const auto backend = make_backend(BackendChoice::cpu, 1);
  const data::SampleFields asked = PaddedSamples().fields();
  for (const int rank : {0, 1}) {
    const auto shard = parallel::SequenceShard::of(8, rank, 2);
    BatchLoader loader(*backend, shard, 2, 2, DType::fp32, asked);
    const std::vector<model::MicroBatch> batches = loader.load(PaddedSamples(), {{4, 0}, {5, 1}, {6, 2}, {-1, 3}});
    EXPECT_EQ(loader.counted_tokens(), 3);
    for (std::int64_t i = 0; i < 4; ++i) {
      const model::MicroBatch& batch = batches[static_cast<std::size_t>(i / 2)];
      const bool counts = i < 3;  // the last one is a filler
      const auto expected = [&](std::int32_t base, std::int64_t position) {
        return counts ? PaddedSamples::value(base, 4 + i, position) : 0;
      };
      for (std::int64_t row = 0; row < 4; ++row) {
        const std::int64_t element = row * 2 + i % 2, position = shard.positions[row];
        EXPECT_EQ(batch.tokens.as<std::int32_t>()[element], expected(1, position));
        EXPECT_EQ(batch.token_types.as<std::int32_t>()[element], expected(2, position));
        EXPECT_EQ(batch.positions.as<std::int32_t>()[element], expected(3, position));
        EXPECT_EQ(batch.first_visible.as<std::int32_t>()[element], expected(6, position));
        const bool masked = counts && position == 4 + i;
        EXPECT_EQ(batch.labels.as<std::int32_t>()[element], masked ? 7 : 0);
        EXPECT_EQ(batch.loss_weights.as<float>()[element], masked ? 1 : 0);
      }
      EXPECT_EQ(batch.lengths.as<std::int32_t>()[i % 2], counts ? expected(4, 0) : 8);
      EXPECT_EQ(batch.sample_labels.as<std::int32_t>()[i % 2], expected(5, 0));
      EXPECT_EQ(batch.sample_weights.as<float>()[i % 2], counts ? 1 : 0);
      EXPECT_EQ(loader.sample_labels()[static_cast<std::size_t>(i)], counts ? expected(5, 0) : -1);
    }
  }
}

/// Padded pairs whose sample i has i % 4 labels, 10 + p at positions p = 2, 4 and 7.
class FewLabels final : public data::SampleSource {
 public:
  std::int64_t size() const override { return 8; }
  std::int64_t sequence_length() const override { return 8; }
  void read(std::int64_t index, const data::SampleView& sample) const override {
    std::ranges::fill(sample.tokens, 1);
    std::ranges::fill(sample.labels, -1);
    for (std::int64_t k = 0; k < index % 4; ++k) sample.labels[places[k]] = static_cast<std::int32_t>(10 + places[k]);
  }
  static constexpr std::size_t places[] = {2, 4, 7};
};

TEST(BatchLoader, ListsTheRowsWithLabelsOnRequest) {
  const auto backend = make_backend(BackendChoice::cpu, 1);
  for (const int context : {1, 2}) {
    for (int rank = 0; rank < context; ++rank) {
      const auto shard = parallel::SequenceShard::of(8, rank, context);
      // On a context rank of 4 positions no more can have labels.
      const std::int64_t each = context == 1 ? 6 : 4, n = 2 * each;
      BatchLoader loader(*backend, shard, 2, 2, DType::fp32, {.predictions = 6});
      for (const bool again : {false, true}) {  // unused predictions do not keep earlier values
        const std::vector<BatchLoader::Sample> samples = {{again ? 1 : 3, 0}, {2, 1}, {-1, 2}, {3, 3}};
        const std::vector<model::MicroBatch> batches = loader.load(FewLabels(), samples);
        EXPECT_EQ(loader.counted_tokens(), again ? 6 : 8);
        for (std::size_t j = 0; j < 2; ++j) {
          const model::MicroBatch& batch = batches[j];
          ASSERT_EQ(batch.labels.shape(), Shape{n});
          ASSERT_EQ(batch.loss_weights.shape(), Shape{n});
          ASSERT_EQ(batch.predictions.shape(), Shape{n});
          ASSERT_EQ(batch.prediction_numbers.shape(), batch.tokens.shape());
          const auto* labels = batch.labels.as<std::int32_t>();
          const auto* rows = batch.predictions.as<std::int32_t>();
          const auto* numbers = batch.prediction_numbers.as<std::int32_t>();
          std::int64_t used = 0;
          for (std::int64_t row = 0; row < shard.rows; ++row) {
            for (std::int64_t i = 0; i < 2; ++i) {
              const std::int64_t index = samples[2 * j + static_cast<std::size_t>(i)].index,
                                 position = shard.positions[row];
              const auto* end = FewLabels::places + (index < 0 ? 0 : index % 4);
              const bool has_label = std::find(FewLabels::places, end, static_cast<std::size_t>(position)) != end;
              const std::int32_t number = numbers[row * 2 + i];
              ASSERT_EQ(number >= 0, has_label);
              if (!has_label) continue;
              ASSERT_LT(number, n);
              EXPECT_EQ(rows[number], row * 2 + i);
              EXPECT_EQ(labels[number], 10 + position);
              EXPECT_EQ(batch.loss_weights.as<float>()[number], 1);
              ++used;
            }
          }
          EXPECT_EQ(n - std::count(rows, rows + n, -1), used);
          for (std::int64_t k = 0; k < n; ++k) {
            if (rows[k] >= 0) continue;
            EXPECT_EQ(labels[k], 0);
            EXPECT_EQ(batch.loss_weights.as<float>()[k], 0);
          }
        }
      }
    }
  }
}

TEST(BatchLoader, RefusesMoreLabelsThanRequested) {
  const auto backend = make_backend(BackendChoice::cpu, 1);
  BatchLoader loader(*backend, parallel::SequenceShard::of(8), 1, 1, DType::fp32, {.predictions = 2});
  loader.load(FewLabels(), {{2, 0}});
  EXPECT_THROW(loader.load(FewLabels(), {{3, 0}}), ShapeError);
}

/// Samples of which number i has i + 1 of 32 positions, filled with i + 1 + 100 position.
class ShortSamples final : public data::SampleSource {
 public:
  explicit ShortSamples(bool has_lengths = true) : has_lengths_(has_lengths) {}
  std::int64_t size() const override { return 32; }
  std::int64_t sequence_length() const override { return 32; }
  std::int64_t length(std::int64_t index) const override { return index + 1; }
  data::SampleFields fields() const override { return {.length = has_lengths_}; }
  void read(std::int64_t index, const data::SampleView& sample) const override {
    std::ranges::fill(sample.tokens, 0);
    std::ranges::fill(sample.labels, -1);
    std::ranges::fill(sample.length, static_cast<std::int32_t>(index + 1));
    for (std::int64_t p = 0; p <= index; ++p) sample.tokens[static_cast<std::size_t>(p)] = token(index, p);
    sample.labels[static_cast<std::size_t>(index)] = 7;
  }
  static std::int32_t token(std::int64_t index, std::int64_t position) {
    return static_cast<std::int32_t>(position > index ? 0 : index + 1 + 100 * position);
  }

 private:
  bool has_lengths_;
};

TEST(BatchLoader, CutsMicroBatchesToTheirLongestSampleOnRequest) {
  const auto backend = make_backend(BackendChoice::cpu, 1);
  const std::vector<BatchLoader::Sample> samples = {{8, 0}, {2, 1}, {-1, 2}, {3, 3}, {29, 4}, {0, 5}, {-1, 6}, {-1, 7}};
  const std::vector<std::int64_t> lengths = {16, 8, 32, 8};
  const ShortSamples source;
  for (const int context : {1, 2, 4}) {
    for (int rank = 0; rank < context; ++rank) {
      BatchLoader loader(*backend, parallel::SequenceShard::of(32, rank, context), 2, 4, DType::fp32, {});
      for (const bool ahead : {false, true}) {
        const BatchLoader::Form form{.length_multiple = 8};
        if (ahead) loader.read_ahead(source, samples, form);
        const std::vector<model::MicroBatch> batches = loader.load(source, samples, form);
        EXPECT_EQ(loader.unpadded_positions(), 9 + 3 + 4 + 30 + 1);
        EXPECT_EQ(loader.counted_tokens(), 5);
        for (std::int64_t j = 0; j < 4; ++j) {
          const model::MicroBatch& batch = batches[static_cast<std::size_t>(j)];
          const parallel::SequenceShard shard = loader.shard(j);
          EXPECT_EQ(shard.sequence, lengths[static_cast<std::size_t>(j)]);
          ASSERT_EQ(batch.tokens.shape(), (Shape{shard.sequence / context, 2}));
          ASSERT_EQ(batch.labels.shape(), batch.tokens.shape());
          ASSERT_EQ(batch.loss_weights.shape(), Shape{batch.tokens.numel()});
          for (std::int64_t i = 0; i < batch.tokens.numel(); ++i) {
            const std::int64_t index = samples[static_cast<std::size_t>(2 * j + i % 2)].index;
            const std::int64_t position = shard.positions[i / 2];
            EXPECT_EQ(batch.tokens.as<std::int32_t>()[i], ShortSamples::token(index, position));
            EXPECT_EQ(batch.loss_weights.as<float>()[i], index >= 0 && index == position ? 1 : 0);
          }
        }
      }
    }
  }
}

TEST(BatchLoader, KeepsAllPositionsOfSamplesWithoutLengths) {
  const auto backend = make_backend(BackendChoice::cpu, 1);
  BatchLoader loader(*backend, parallel::SequenceShard::of(32), 1, 1, DType::fp32);
  const auto rows = [&](const ShortSamples& source, std::int64_t multiple) {
    return loader.load(source, {{3, 0}}, {.length_multiple = multiple}).front().tokens.shape()[0];
  };
  EXPECT_EQ(rows(ShortSamples(false), 8), 32);
  EXPECT_EQ(rows(ShortSamples(), 0), 32);
  EXPECT_EQ(rows(ShortSamples(), 8), 8);
  EXPECT_EQ(rows(ShortSamples(), 48), 32);  // a multiple beyond the sequence
}

TEST(LongestFirst, SortsSamplesAndKeepsThoseOfOneLabelTogether) {
  class Choices final : public data::SampleSource {
   public:
    std::int64_t size() const override { return 8; }
    std::int64_t sequence_length() const override { return 9; }
    std::int64_t length(std::int64_t index) const override {
      return std::vector<std::int64_t>{9, 9, 2, 5, 4, 4, 5, 1}[static_cast<std::size_t>(index)];
    }
    data::SampleFields fields() const override { return {.samples_per_label = 2}; }
    void read(std::int64_t, const data::SampleView&) const override {}
  };
  EXPECT_THAT(longest_first(Choices(), 2, 6), testing::ElementsAre(2, 3, 6, 7, 4, 5));
  EXPECT_THAT(longest_first(ShortSamples(), 4, 3), testing::ElementsAre(6, 5, 4));
  EXPECT_THAT(longest_first(Numbers(), 4, 3), testing::ElementsAre(4, 5, 6));
}

TEST(BatchLoader, RefusesSamplesWithoutARequestedField) {
  const auto backend = make_backend(BackendChoice::cpu, 1);
  BatchLoader loader(*backend, parallel::SequenceShard::of(4), 1, 1, DType::fp32, {.length = true});
  EXPECT_THAT(
      [&] {
        loader.load(Numbers(), {{0, 0}});
      },
      testing::ThrowsMessage<ConfigError>(testing::HasSubstr("the model needs lengths")));
}

TEST(SamplesOfRank, AreThoseOfItsMicroBatchesWithTheirNumbers) {
  using testing::ElementsAre;
  using Sample = BatchLoader::Sample;
  // Two micro-batches of two samples for each of two data ranks.
  EXPECT_THAT(BatchLoader::samples_of_rank(10, 100, 8, 0, {2, 2}),
              ElementsAre(Sample{10, 100}, Sample{11, 101}, Sample{14, 104}, Sample{15, 105}));
  EXPECT_THAT(BatchLoader::samples_of_rank(10, 100, 8, 1, {2, 2}),
              ElementsAre(Sample{12, 102}, Sample{13, 103}, Sample{16, 106}, Sample{17, 107}));
}

}  // namespace
}  // namespace trireme::train
