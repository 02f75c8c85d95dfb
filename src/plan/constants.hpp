#pragma once

#include <span>
#include <string>
#include <vector>

#include "src/plan/cluster/cluster.hpp"

namespace trireme::plan {

/// One row of a table of constants: a value for each column, and its source.
struct ConstantRow {
  std::string name;
  std::vector<std::string> values;
  std::string source;
};

/// Constants of the cost model, by devices or clusters.
struct ConstantTable {
  std::vector<std::string> columns;
  std::vector<ConstantRow> rows;
};

/// Table of devices only.
ConstantTable device_constants(std::span<const Device> devices);
/// Table of the presets of clusters of GPUs: their devices, their links, and the values fitted to published runs.
ConstantTable cluster_constants();

/// The table as text, one row per line.
std::string text_of(const ConstantTable& table);

}  // namespace trireme::plan
