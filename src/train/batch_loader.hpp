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

/// Returns the `count` samples from `first` on, the longest first. Samples that share a label stay together, by their
/// longest; equally long ones keep their order.
std::vector<std::int64_t> longest_first(const data::SampleSource& source, std::int64_t first, std::int64_t count);

/// Loads micro-batches to the device and prefetches those of the next update. Memory, on the device and for the host,
/// is allocated once, for two updates, and reused by every call. There is memory for the requested fields only.
class BatchLoader {
 public:
  /// For `micro_batches` micro-batches of `b` samples, of whose positions this rank has `shard`; weights in the
  /// accumulation type of `dtype`. `requested` are the optional fields that the model reads.
  BatchLoader(Backend& backend, const parallel::SequenceShard& shard, std::int64_t b, std::int64_t micro_batches,
              DType dtype, const data::SampleFields& requested = {});

  /// One sample of a micro-batch: its index in the source, or -1 for a filler that counts in no loss; and its number
  /// since the start of training, which its dropout masks depend on.
  struct Sample {
    std::int64_t index = -1;
    std::int64_t number = 0;
    friend bool operator==(const Sample&, const Sample&) = default;
  };

  /// Samples that data rank `data_rank` reads of a batch of `size` samples, micro-batch after micro-batch. The batch
  /// begins at index `first_index` of its source and at number `first_number` since the start of training.
  static std::vector<Sample> samples_of_rank(std::int64_t first_index, std::int64_t first_number, std::int64_t size,
                                             std::int64_t data_rank, const data::SamplerGrid& grid);

  /// Weights and lengths of micro-batches.
  struct Form {
    LossAverage average = LossAverage::tokens;
    /// Above 0, a micro-batch ends with its longest sample, rounded up to a multiple of this; else every one has all
    /// positions. Every rank of a pipeline, and of a tensor or context group, reads the same samples, so that all of
    /// them find the same length without a message.
    std::int64_t length_multiple = 0;
    friend bool operator==(const Form&, const Form&) = default;
  };
  /// Reads `samples`, b for each micro-batch, one after another, or takes them where they were read ahead. A position
  /// with a label has weight 1 or, with LossAverage::micro_batch, one over their number in its micro-batch; others have
  /// label 0 and weight 0. Labels of entire samples have weights alike. The result is valid until the next call. Throws
  /// ConfigError if `source` lacks a field asked for.
  std::vector<model::MicroBatch> load(const data::SampleSource& source, const std::vector<Sample>& samples,
                                      const Form& form);
  std::vector<model::MicroBatch> load(const data::SampleSource& source, const std::vector<Sample>& samples) {
    return load(source, samples, Form());
  }
  /// The shard of micro-batch `micro_batch` of those loaded last.
  parallel::SequenceShard shard(std::int64_t micro_batch) const {
    return shard_.of_length(sets_[current_].sequences[static_cast<std::size_t>(micro_batch)]);
  }
  /// Positions of the samples loaded last before their padding, where these have lengths; else all of their positions.
  std::int64_t unpadded_positions() const { return sets_[current_].unpadded_positions; }
  /// Number of labels in the samples loaded last, on all context ranks together.
  std::int64_t counted_tokens() const { return sets_[current_].counted_tokens; }
  /// Labels of the samples loaded last, in their order, negative where a sample has none; empty unless requested.
  const std::vector<std::int32_t>& sample_labels() const { return sets_[current_].sample_labels; }

  /// Begins to read, in a thread, the samples of a later `load` of the same `source`, and drops those read ahead
  /// before. That `load` throws an error of the reading. `source` must live until `end_reading`.
  void read_ahead(const data::SampleSource& source, std::vector<Sample> samples, const Form& form);
  void read_ahead(const data::SampleSource& source, std::vector<Sample> samples) {
    read_ahead(source, std::move(samples), Form());
  }
  /// Begins to copy the samples read ahead to the device, beside its work. Does nothing while they are being read.
  void copy_ahead();
  /// Waits for the reading thread; the source is not used afterwards.
  void end_reading();

 private:
  /// Extent of a field in a micro-batch: [s, b], [b], [b] as rows of [s, b] instead of positions, or a number for each
  /// label.
  enum class Extent { position, sample, row, label };
  /// An int32 field copied from samples to micro-batches.
  struct Field {
    const char* name;
    std::span<std::int32_t> data::SampleView::*of_sample;
    ConstTensorView model::MicroBatch::*of_micro_batch;
    bool data::SampleFields::*requested = nullptr;  // null: always
    Extent extent = Extent::position;               // [s] of a sample, else [1]
  };
  static std::vector<Field> fields_of(const data::SampleFields& requested);
  /// Shape of a field in a micro-batch of which this rank has `rows` positions.
  Shape shape_of(const Field& field, std::int64_t rows) const;
  std::int64_t labels_of_batch() const { return b_ / requested_.samples_per_label; }
  /// Tensors of one update: weights [m, s b] A, numbers of the samples [m, b] int64, weights of the samples [m, b] A
  /// where they have labels, then the fields [m, s, b] or [m, b] int32; s are the rows of the shard.
  std::vector<Tensor> make_tensors(std::int64_t micro_batches) const;
  static constexpr std::size_t weights_index = 0, numbers_index = 1, sample_weights_index = 2;
  std::size_t first_field_index() const { return requested_.is_random ? 3 : 2; }
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
  /// Request to the loader.
  struct Request {
    const data::SampleSource* source = nullptr;
    std::vector<Sample> samples;
    Form form;
    friend bool operator==(const Request&, const Request&) = default;
  };
  void check(const Request& request) const;
  /// Positions of a micro-batch whose longest sample has `longest`.
  std::int64_t padded_length(std::int64_t longest, const Form& form) const;
  /// Reads into the host memory of `set`.
  void read(Set& set, const Request& request) const;
  /// Writes sample `i` of a request, which this rank holds as `shard`, to the host memory of `set`.
  void write(Set& set, std::int64_t i, const parallel::SequenceShard& shard, const data::SampleView& sample) const;
  /// Writes weights of 0 and 1 to a tensor of `set`; with LossAverage::micro_batch divided by `counted`, the number of
  /// labels in each micro-batch.
  void write_weights(Set& set, std::size_t tensor, std::vector<double> weights,
                     const std::vector<std::int64_t>& counted, LossAverage average) const;
  /// The same. Throws where the source's files have changed.
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
  std::unique_ptr<Stream> copying_;  // copies beside the device's work
  Request ahead_;                    // no source: nothing was read ahead
  bool copied_ahead_ = false;
  std::exception_ptr failure_;               // thrown while reading ahead
  std::future<std::exception_ptr> reading_;  // the last member: its destructor waits for the thread
};

}  // namespace trireme::train
