#pragma once

#include <string>
#include <vector>

#include "src/app/options/options.hpp"
#include "src/parallel/grid/process_grid.hpp"
#include "src/tensor/dtype.hpp"

namespace trireme::app {

/// Lists the given options that are ignored on `grid`, in training in `dtype` or for samples of running text (without
/// `has_padding`), each with the reason: "--overlap-grad-reduce (one data rank)". They are not mistakes, because a
/// script for many ranks also runs on one. Options that contradict each other on every grid are Problems instead.
std::vector<std::string> idle_options(const Options& options, const parallel::ProcessGrid& grid, DType dtype,
                                      bool has_padding);

}  // namespace trireme::app
