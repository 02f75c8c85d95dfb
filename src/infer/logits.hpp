#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "src/data/dataset/sample_source.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::infer {

/// Receives logits [positions, vocabulary], row-major, of one sample from position `first` on.
using LogitsSink = std::function<void(std::int64_t sample, std::int64_t first, std::span<const double> logits)>;

/// Runs a model that predicts tokens on these samples of `source`, without dropout, and passes the logits of every
/// position to `sink` on every rank: sample by sample in the order of `samples`, some positions at a time, gathered
/// from the shards of vocabulary and sequence on the last stage. The grid affects only the rounding of sums. Allocates
/// device memory for the logits of one more micro-batch. Collective.
void collect_logits(train::ParallelModel& model, const data::SampleSource& source,
                    const std::vector<std::int64_t>& samples, const LogitsSink& sink);

}  // namespace trireme::infer
