#pragma once

#include <vector>

#include "src/backend/host_copies.hpp"
#include "src/data/sample_source.hpp"
#include "src/model/gpt_stage.hpp"
#include "src/train/train_options.hpp"

namespace trireme::train {

/// Brings samples to the device as micro-batches. The memory, on the device and for the host, is allocated once and
/// used again by every call.
class BatchLoader {
 public:
  /// For `micro_batches` micro-batches of `b` samples, of whose tokens this rank has `share`; weights in the
  /// accumulation type of `dtype`.
  BatchLoader(Backend& backend, const parallel::SequenceShare& share, std::int64_t b, std::int64_t micro_batches,
              DType dtype);

  /// One sample of a micro-batch: its place in `source`, or -1 for one that only fills up and does not count; and its
  /// number since the start of training, which dropout goes by.
  struct Sample {
    std::int64_t index = -1;
    std::int64_t number = 0;
  };

  /// Reads `samples`, b for each micro-batch, one after another. A token that counts has weight 1 or, with
  /// LossAverage::micro_batch, one over their number in its micro-batch. The result is valid until the next call.
  std::vector<model::MicroBatch> load(const data::SampleSource& source, const std::vector<Sample>& samples,
                                      LossAverage average = LossAverage::tokens);
  /// How many tokens of the samples read last count, on all context ranks together.
  std::int64_t counted_tokens() const { return counted_tokens_; }

 private:
  Backend& backend_;
  parallel::SequenceShare share_;
  std::int64_t b_;
  DType weight_type_;
  std::int64_t counted_tokens_ = 0;
  Tensor ids_;         // [m, s, b] int32, s the rows of the share
  Tensor targets_;     // [m, s, b] int32
  Tensor weights_;     // [m, s b] A
  Tensor numbers_;     // [m, b] int64
  HostCopies copies_;  // of the four, in this order
};

}  // namespace trireme::train
