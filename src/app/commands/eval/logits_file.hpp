#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/data/dataset/sample_source.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::app {

/// Writes the logits of `samples` of `source` to the HDF5 file `path`. Group `sample-N` has `logits` [positions,
/// vocabulary], fp64 for a model in fp64, else fp32; `tokens` [positions] int32; and `labels` [positions] int32, the
/// next tokens, -1 if there is none. Collective. Throws ConfigError for a sample that does not exist or is named
/// twice, and IoError, on every rank.
void write_logits(train::ParallelModel& model, const data::SampleSource& source,
                  const std::vector<std::int64_t>& samples, const std::string& path);

}  // namespace trireme::app
