#include "src/selftest/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace trireme::selftest {
namespace {

/// Results of all ranks for one check and item.
using Series = std::vector<Result*>;

bool has_median(const Result& result) { return result.kind == Kind::rate || result.kind == Kind::time; }
bool is_speed(const Result& result) { return has_median(result) || result.kind == Kind::share; }

double median_of(const Series& series) {
  std::vector<double> values;
  for (const Result* result : series) {
    if (result->passed && std::isfinite(result->value)) values.push_back(result->value);
  }
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const std::size_t n = values.size();
  return (values[n / 2] + values[(n - 1) / 2]) / 2;
}

/// Speed of a result over the expected one.
double share_of(const Result& result) {
  if (result.expected <= 0) return 1;
  return result.kind == Kind::time ? result.expected / result.value : result.value / result.expected;
}

std::string most_common_text(const Series& series) {
  std::map<std::string, int> counts;
  for (const Result* result : series) ++counts[result->detail];
  const Result* best = series.front();  // the first rank's, where several are as common
  for (const Result* result : series) {
    if (counts[result->detail] > counts[best->detail]) best = result;
  }
  return best->detail;
}

void judge_series(const Series& series) {
  const Kind kind = series.front()->kind;
  const double median = has_median(*series.front()) ? median_of(series) : 0;
  const std::string common = kind == Kind::property ? most_common_text(series) : "";
  for (Result* result : series) {
    if (has_median(*result)) result->expected = median;
    if (!result->passed) {
      result->verdict = Verdict::failed;
    } else if (kind == Kind::skipped) {
      result->verdict = Verdict::skipped;
    } else if (kind == Kind::property && result->detail != common) {
      result->verdict = Verdict::differs;
      result->detail = fmt::format("{}; most ranks: {}", result->detail, common);
    } else if (is_speed(*result) && result->min_share > 0 && !(share_of(*result) >= result->min_share)) {
      result->verdict = Verdict::slow;
      result->detail = fmt::format("{:.0f} % of {}{}{}", 100 * share_of(*result),
                                   kind == Kind::share ? "the device's ceiling" : "the median's speed",
                                   result->detail.empty() ? "" : "; ", result->detail);
    }
  }
}

/// Badness of a result among those of the same verdict: larger is worse.
double badness(const Result& result) {
  const double value = is_speed(result) ? 1 / share_of(result) : result.value;
  return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
}

bool is_worse(const Result* a, const Result* b) {
  if (a->verdict != b->verdict) return a->verdict < b->verdict;
  return badness(*a) > badness(*b);
}

std::string number_text(double value, const Result& result) {
  return result.kind == Kind::property || result.kind == Kind::skipped ? "" : fmt::format("{:.4g}", value);
}

std::string row_of(const Result& r) {
  std::string text = r.item.empty() || r.kind == Kind::property ? "" : r.item;
  if (!r.detail.empty()) text += (text.empty() ? "" : ": ") + r.detail;
  const std::string row = fmt::format("{:<8} {:<34} {:>10} {:>10} {:<10} {:>5} {:<12} {}", name_of(r.verdict), r.check,
                                      number_text(r.value, r), r.expected == 0 ? "" : number_text(r.expected, r),
                                      r.unit, r.rank, r.host, text);
  return row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
}

/// Returns the rows of one check: those that are not as they should be, or its worst one.
std::vector<const Result*> rows_of(std::vector<const Result*> results, std::size_t& left_out) {
  constexpr std::size_t max_rows = 12;
  std::ranges::stable_sort(results, is_worse);
  const auto good = std::ranges::find_if(results, [](const Result* r) { return r->verdict >= Verdict::skipped; });
  const auto bad_count = static_cast<std::size_t>(good - results.begin());
  const std::size_t shown = std::clamp<std::size_t>(bad_count, 1, max_rows);
  left_out += std::max(bad_count, shown) - shown;
  results.resize(shown);
  return results;
}

}  // namespace

Report judge(std::vector<Result> results) {
  Report report{std::move(results), {}, {}};
  std::map<std::pair<std::string, std::string>, Series> all;
  for (Result& result : report.results) all[{result.check, result.item}].push_back(&result);
  for (const auto& [key, series] : all) judge_series(series);
  std::set<std::string> nodes, bad;
  for (const Result& result : report.results) {
    nodes.insert(result.host);
    if (result.verdict <= Verdict::slow) bad.insert(result.host);
  }
  report.nodes.assign(nodes.begin(), nodes.end());
  report.bad_nodes.assign(bad.begin(), bad.end());
  return report;
}

std::string table_of(const Report& report) {
  std::map<std::string, std::vector<const Result*>> checks;
  std::vector<const Result*> rows;
  for (const Result& result : report.results) checks[result.check].push_back(&result);
  std::size_t left_out = 0;
  for (const auto& [check, results] : checks) {
    for (const Result* row : rows_of(results, left_out)) rows.push_back(row);
  }
  std::ranges::stable_sort(rows, {}, [](const Result* row) { return row->verdict; });
  std::string text = fmt::format("{:<8} {:<34} {:>10} {:>10} {:<10} {:>5} {:<12} {}\n", "verdict", "check", "worst",
                                 "expected", "unit", "rank", "node", "detail");
  for (const Result* row : rows) text += row_of(*row);
  if (left_out > 0) text += fmt::format("{} more results are not as they should be\n", left_out);
  if (report.passed()) return text + "ok\n";
  if (report.nodes.size() > 1 && report.bad_nodes == report.nodes) {
    text += "all nodes fail: the program or its installation is more likely at fault than they are\n";
  }
  return text + fmt::format("{}\n", fmt::join(report.bad_nodes, ","));
}

}  // namespace trireme::selftest
