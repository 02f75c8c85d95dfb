#pragma once

#include <string>

namespace trireme::plan {

/// Returns the constants of the cost model as a table, one row per line: values for the presets of clusters of GPUs,
/// including those fitted to published runs, and their sources.
std::string constants_text();

}  // namespace trireme::plan
