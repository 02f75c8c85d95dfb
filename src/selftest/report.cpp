#include "src/selftest/report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>

#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::selftest {
namespace {

constexpr std::size_t field_count = 11;

/// Returns the text with control characters replaced by spaces, and trailing ones removed. MPI's version ends with a
/// zero.
std::string one_line(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

double number_of(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

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
  const Result* best = series.front();  // the first rank's on ties
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

/// Line of the table: the worst result of a check on one node, or on all of them.
struct Row {
  const Result* result;
  std::size_t others = 0;  ///< further problem results of the same check and node
};

std::string text_of(const Row& row) {
  const Result& r = *row.result;
  std::string text = r.item.empty() || r.kind == Kind::property ? "" : r.item;
  if (!r.detail.empty()) text += (text.empty() ? "" : ": ") + r.detail;
  if (row.others > 0) text += fmt::format(" (and {} more on this node)", row.others);
  const std::string line = fmt::format("{:<8} {:<34} {:>10} {:>10} {:<10} {:>5} {:<12} {}", name_of(r.verdict), r.check,
                                       number_text(r.value, r), r.expected == 0 ? "" : number_text(r.expected, r),
                                       r.unit, r.rank, r.host, text);
  return line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
}

bool is_bad(const Result* result) { return result->verdict < Verdict::skipped; }

/// Returns the rows of one check: one per node with problems, worst first, or else that of its worst result.
std::vector<Row> rows_of(std::vector<const Result*> results) {
  std::ranges::stable_sort(results, is_worse);
  if (!is_bad(results.front())) return {{results.front()}};
  std::vector<Row> rows;
  std::map<std::string, std::size_t> row_of_node;
  for (const Result* result : results) {
    if (!is_bad(result)) break;
    const auto [found, is_new] = row_of_node.emplace(result->host, rows.size());
    if (is_new) {
      rows.push_back({result});
    } else {
      ++rows[found->second].others;
    }
  }
  return rows;
}

/// Shortens the table to fit a screen, limiting problem rows per check and in total. Returns the number of omitted
/// results.
std::size_t shorten(std::vector<Row>& rows) {
  constexpr int max_rows = 40, max_rows_of_check = 8;
  std::map<std::string, int> rows_of_check;
  int shown = 0;
  std::size_t left_out = 0;
  std::erase_if(rows, [&](const Row& row) {
    if (!is_bad(row.result)) return false;
    if (shown < max_rows && rows_of_check[row.result->check]++ < max_rows_of_check) {
      ++shown;
      return false;
    }
    left_out += 1 + row.others;
    return true;
  });
  return left_out;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  constexpr std::string_view names[] = {"FAILED", "SLOW", "differs", "skipped", "ok"};
  return names[static_cast<int>(verdict)];
}

std::string text_of(const std::vector<Result>& results) {
  std::string text;
  for (const Result& r : results) {
    text += fmt::format("{}\t{}\t{}\t{}\t{:.17g}\t{}\t{:.17g}\t{:.17g}\t{}\t{}\t{}\n", one_line(r.check),
                        one_line(r.item), static_cast<int>(r.kind), r.passed ? 1 : 0, r.value, one_line(r.unit),
                        r.expected, r.min_share, one_line(r.detail), r.rank, one_line(r.host));
  }
  return text;
}

std::vector<Result> results_of(const std::string& text) {
  std::vector<Result> results;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    const std::string ended = fmt::format("{}\t", line);  // the last field may be empty
    const std::vector<std::string_view> fields = split(ended, '\t');
    const std::vector<std::string> f(fields.begin(), fields.end());
    TRIREME_CHECK(f.size() == field_count, EnvironmentError, "a result of {} fields instead of {}: '{}'", f.size(),
                  field_count, line);
    results.push_back({.check = f[0],
                       .item = f[1],
                       .kind = static_cast<Kind>(std::atoi(f[2].c_str())),
                       .passed = f[3] == "1",
                       .value = number_of(f[4]),
                       .unit = f[5],
                       .expected = number_of(f[6]),
                       .min_share = number_of(f[7]),
                       .detail = f[8],
                       .rank = std::atoi(f[9].c_str()),
                       .host = f[10]});
  }
  return results;
}

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
  std::vector<Row> rows;
  for (const Result& result : report.results) checks[result.check].push_back(&result);
  for (const auto& [check, results] : checks) {
    for (const Row& row : rows_of(results)) rows.push_back(row);
  }
  std::ranges::stable_sort(rows, {}, [](const Row& row) { return row.result->verdict; });
  const std::size_t left_out = shorten(rows);
  std::string text = fmt::format("{:<8} {:<34} {:>10} {:>10} {:<10} {:>5} {:<12} {}\n", "verdict", "check", "worst",
                                 "expected", "unit", "rank", "node", "detail");
  for (const Row& row : rows) text += text_of(row);
  if (left_out > 0) text += fmt::format("{} more results are not as they should be: <json> lists all\n", left_out);
  if (report.passed()) return text + "ok\n";
  if (report.nodes.size() > 1 && report.bad_nodes == report.nodes) {
    text += "all nodes fail: the program or its installation is more likely at fault than they are\n";
  }
  return text + fmt::format("{}\n", fmt::join(report.bad_nodes, ","));
}

}  // namespace trireme::selftest
