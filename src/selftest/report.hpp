#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trireme::selftest {

/// Judgement rule of a result.
enum class Kind {
  correctness,  ///< `value` is an error in units of the allowed one, or 0; the check itself decides
  rate,         ///< larger is better; compared with the median of all ranks
  time,         ///< smaller is better; compared with the median of all ranks
  share,        ///< larger is better; compared with `expected`, set by the check: the device's ceiling
  property,     ///< `detail` is a text that should be the same everywhere
  skipped       ///< not measured; `detail` says why
};

/// Judgement of a result, the worst first.
enum class Verdict { failed, slow, differs, skipped, passed };
std::string_view name_of(Verdict verdict);

struct Result {
  std::string check = {};  ///< one line of the table: "gemm bf16"
  std::string item = {};   ///< part of the check: "linear bias gelu_tanh [1024, 1024] x 4096"; may be empty
  Kind kind = Kind::correctness;
  bool passed = true;  ///< false: the check itself found a fault
  double value = 0;
  std::string unit = {};
  double expected = 0;   ///< median of all ranks (judge), limit or ceiling; 0: none
  double min_share = 0;  ///< share of the expected speed below which the rank is slow; 0: not judged
  std::string detail = {};
  int rank = 0;
  std::string host = {};  ///< name of the node, as spelled by the scheduler
  Verdict verdict = Verdict::passed;
};

/// Returns results as text, one line each, that `results_of` reads. Control characters in them become spaces.
std::string text_of(const std::vector<Result>& results);
std::vector<Result> results_of(const std::string& text);

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
