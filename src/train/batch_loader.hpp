#pragma once

#include <exception>
#include <future>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/backend/host_copies.hpp"
#include "src/data/dataset/sample_source.hpp"
#include "src/data/dataset/sample_splits.hpp"
#include "src/model/micro_batch.hpp"
#include "src/parallel/context/sequence_shard.hpp"
#include "src/train/train_options.hpp"

namespace trireme::train {

/// Returns the `count` samples from `first` on, longest first. Samples that share a label stay together and are sorted
/// by their longest; ties keep their order.
std::vector<std::int64_t> longest_first(const data::SampleSource& source, std::int64_t first, std::int64_t count);

/// Loads micro-batches to the device and prefetches those of the next update. Allocates memory once, on device and
/// host, for the requested fields of two updates.
class BatchLoader {
 public:
  /// Prepares for up to `micro_batches` micro-batches of `b` samples. This rank has the positions `shard` of each
  /// sample. Weights are in the accumulation type of `dtype`. `requested` are the optional fields that the model reads.
  BatchLoader(Backend& backend, const parallel::SequenceShard& shard, std::int64_t b, std::int64_t micro_batches,
              DType dtype, const data::SampleFields& requested = {});

  /// Sample of a micro-batch: its index in the source, or -1 for a filler without loss; and its number since the start
  /// of training, which determines its dropout masks.
  struct Sample {
    std::int64_t index = -1;
    std::int64_t number = 0;
    friend bool operator==(const Sample&, const Sample&) = default;
  };

  /// Returns the samples that data rank `data_rank` reads of a batch of `size` samples, micro-batch by micro-batch. The
  /// batch begins at index `first_index` of its source and at number `first_number` since the start of training.
  static std::vector<Sample> samples_of_rank(std::int64_t first_index, std::int64_t first_number, std::int64_t size,
                                             std::int64_t data_rank, const data::SamplerGrid& grid);

  /// Weights and lengths of micro-batches.
  struct Form {
    LossAverage average = LossAverage::tokens;
    /// If positive, a micro-batch ends with its longest sample, rounded up to a multiple of this; otherwise it has all
    /// positions. The ranks of a pipeline, tensor or context group read the same samples, so they agree on the length
    /// without communication.
    std::int64_t length_multiple = 0;
    friend bool operator==(const Form&, const Form&) = default;
  };
  /// Reads `samples`, b for each consecutive micro-batch, or takes those that were read ahead. A position with a label
  /// has weight 1 or, with LossAverage::micro_batch, one over the number of labels in its micro-batch; others have
  /// label 0 and weight 0. Labels of entire samples are weighted likewise. The result is valid until the next call.
  /// Throws ConfigError if `source` lacks a requested field.
  std::vector<model::MicroBatch> load(const data::SampleSource& source, const std::vector<Sample>& samples,
                                      const Form& form);
  std::vector<model::MicroBatch> load(const data::SampleSource& source, const std::vector<Sample>& samples) {
    return load(source, samples, Form());
  }
  /// Shard of micro-batch `micro_batch` of the last load.
  parallel::SequenceShard shard(std::int64_t micro_batch) const {
    return shard_.of_length(sets_[current_].sequences[static_cast<std::size_t>(micro_batch)]);
  }
  /// Positions of the last loaded samples, without padding if the samples have lengths.
  std::int64_t unpadded_positions() const { return sets_[current_].unpadded_positions; }
  /// Number of labels in the last loaded samples, on all context ranks together.
  std::int64_t counted_tokens() const { return sets_[current_].counted_tokens; }
  /// Labels of the last loaded samples, in order, negative for samples without one; empty unless requested.
  const std::vector<std::int32_t>& sample_labels() const { return sets_[current_].sample_labels; }

  /// Starts a thread that reads the samples of a later `load` of the same `source`; discards those read ahead before.
  /// That `load` rethrows errors of the reading. `source` must stay valid until `end_reading`.
  void read_ahead(const data::SampleSource& source, std::vector<Sample> samples, const Form& form);
  void read_ahead(const data::SampleSource& source, std::vector<Sample> samples) {
    read_ahead(source, std::move(samples), Form());
  }
  /// Starts copying the samples read ahead to the device, concurrently with its work. Does nothing while they are still
  /// being read.
  void copy_ahead();
  /// Waits for the reading thread; the source is not used afterwards.
  void end_reading();

 private:
  /// Extent of a field in a micro-batch: [s, b], [b], [b] as rows of [s, b] instead of positions, one for each label,
  /// [n] of the positions with a label, [n] of their rows or [s, b] of their numbers (MicroBatch::predictions), or
  /// [D, s, b] of the values 1 ... D places ahead.
  enum class Extent { position, sample, row, label, prediction, prediction_row, prediction_number, ahead };
  /// Field of int32 that is copied from samples to micro-batches.
  struct Field {
    const char* name;
    std::span<std::int32_t> data::SampleView::*of_sample;
    ConstTensorView model::MicroBatch::*of_micro_batch;
    bool data::SampleFields::*requested = nullptr;  // null: always
    Extent extent = Extent::position;               // [s] of a sample, else [1]
  };
  static std::vector<Field> fields_of(const data::SampleFields& requested);
  /// Shape of a field in a micro-batch with `rows` positions on this rank.
  Shape shape_of(const Field& field, std::int64_t rows) const;
  std::int64_t labels_of_batch() const { return b_ / requested_.samples_per_label; }
  /// Predictions of a micro-batch with `rows` positions on this rank: [s b], or [n].
  std::int64_t predictions_of_batch(std::int64_t rows) const { return b_ * requested_.predictions_of(rows); }
  /// Calls `function(index, row)` for each prediction of sample `i` by the rows of this rank's `shard`, with its index
  /// in a tensor [m, s b] or [m, n]: for all rows, or for those with one of `labels` if their number is limited. Throws
  /// ShapeError if there are more.
  template <class Function>
  void for_each_prediction(std::int64_t i, const parallel::SequenceShard& shard, std::span<const std::int32_t> labels,
                           const Function& function) const;
  /// Allocates the tensors of one update: weights [m, s b] A or [m, n] A, numbers of the samples [m, b] int64, weights
  /// of the samples [m, b] A if they have labels, weights ahead [m, D s b] A if requested, then the fields [m, s, b],
  /// [m, n], [m, b] or [m, D, s, b] int32; s are the rows of the shard.
  std::vector<Tensor> make_tensors(std::int64_t micro_batches) const;
  static constexpr std::size_t weights_index = 0, numbers_index = 1, sample_weights_index = 2;
  std::size_t ahead_weights_index() const { return requested_.is_random ? 3 : 2; }
  std::size_t first_field_index() const { return ahead_weights_index() + (requested_.ahead > 0 ? 1 : 0); }
  struct Set {
    Set(Backend& backend, std::vector<Tensor> made)
        : tensors(std::move(made)), copies(backend, {tensors.begin(), tensors.end()}) {}
    std::vector<Tensor> tensors;
    HostCopies copies;                    // copies of the tensors, in their order
    std::vector<std::int64_t> sequences;  // positions of each micro-batch
    std::int64_t unpadded_positions = 0;
    std::int64_t counted_tokens = 0;
    std::vector<std::int32_t> sample_labels;
  };
  /// Samples to load.
  struct Request {
    const data::SampleSource* source = nullptr;
    std::vector<Sample> samples;
    Form form;
    friend bool operator==(const Request&, const Request&) = default;
  };
  void check(const Request& request) const;
  /// Returns the positions of a micro-batch whose longest sample has `longest`.
  std::int64_t padded_length(std::int64_t longest, const Form& form) const;
  void read(Set& set, const Request& request) const;
  /// Writes this rank's `shard` of sample `i` of a request to the host memory of `set`.
  void write(Set& set, std::int64_t i, const parallel::SequenceShard& shard, const data::SampleView& sample) const;
  /// Calls `function(index, position, ahead)` for each element of sample `i` in a tensor [m, D, s, b] of this rank's
  /// `shard`. `ahead` is 1 ... D places after `position`, or -1 if that is beyond the sample.
  template <class Function>
  void for_each_ahead(std::int64_t i, const parallel::SequenceShard& shard, const Function& function) const;
  /// Writes weights of 0 and 1 to a tensor of `set`; with LossAverage::micro_batch, divides them by `counted`, the
  /// number of labels in each micro-batch.
  void write_weights(Set& set, std::size_t tensor, std::vector<double> weights,
                     const std::vector<std::int64_t>& counted, LossAverage average) const;
  /// Calls `read`. Throws if the source's files have changed.
  void fill(Set& set, const Request& request) const;
  void upload(Set& set, const Request& request, Stream& stream) const;

  Backend& backend_;
  parallel::SequenceShard shard_;
  std::int64_t b_;
  DType weight_type_;
  data::SampleFields requested_;
  std::vector<Field> fields_;
  Set sets_[2];
  std::size_t current_ = 0;          // the set loaded last; the other one is for reading ahead
  std::unique_ptr<Stream> copying_;  // runs copies concurrently with the device's work
  Request ahead_;                    // without a source, nothing was read ahead
  bool copied_ahead_ = false;
  std::exception_ptr failure_;               // thrown while reading ahead
  std::future<std::exception_ptr> reading_;  // last member, because its destructor waits for the thread
};

}  // namespace trireme::train
