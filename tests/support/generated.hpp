#pragma once

#include <vector>

#include "src/infer/generation.hpp"

namespace trireme::test {

/// Returns `count` new tokens of a prompt, which nothing ends.
inline std::vector<std::int32_t> generated(train::ParallelModel& model, Communicator& world,
                                           const std::vector<std::int32_t>& prompt, std::int64_t count,
                                           const infer::SamplingOptions& sampling = {}) {
  infer::GenerationOptions options;
  options.sampling = sampling;
  return infer::generate(model, world, {{0, "", prompt, count}}, options).front().tokens;
}

}  // namespace trireme::test
