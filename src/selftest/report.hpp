#pragma once

#include <string>
#include <vector>

#include "src/selftest/result.hpp"

namespace trireme::selftest {

/// Judged results of all ranks, in rank order.
struct Report {
  std::vector<Result> results;
  std::vector<std::string> nodes;      ///< all nodes, sorted
  std::vector<std::string> bad_nodes;  ///< nodes with a result that failed or is slow, sorted
  bool passed() const { return bad_nodes.empty(); }
};

/// Judges results of all ranks. Rates and times of one check and item are compared with their median over the ranks: a
/// rank is slow if its speed is below `min_share` of the median, or of the device's ceiling. Properties are compared
/// with the most common text; a difference is shown and excludes no node. The report is identical on every rank.
Report judge(std::vector<Result> results);

/// Formats the report for a terminal, worst first: a line per check and node with a problem, at most 40, then one per
/// check, with its worst rank. The last line is "ok" or the comma-separated bad nodes, as for sbatch --exclude.
std::string table_of(const Report& report);

}  // namespace trireme::selftest
