#pragma once

#include <string>
#include <vector>

#include "src/app/options/options.hpp"
#include "src/parallel/grid/process_grid.hpp"
#include "src/tensor/dtype.hpp"

namespace trireme::app {

/// Samples of a run: padded, or running text; conversations, or all text alike.
struct SampleKind {
  bool has_padding = false, has_conversations = false;
};

/// Lists the given options that have no effect on `grid`, in training in `dtype`, for samples of this kind or without
/// another option, each with the reason: "--overlap-grad-reduce (one data rank)". They are
/// not mistakes, because a script for many ranks also runs on one. Options that contradict each other on every grid are
/// Problems instead.
std::vector<std::string> idle_options(const Options& options, const parallel::ProcessGrid& grid, DType dtype,
                                      const SampleKind& samples);

}  // namespace trireme::app
