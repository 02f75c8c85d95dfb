#include "src/app/commands/plan/plan_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <vector>

#include "io/json/plan_json.hpp"
#include "io/posix/file.hpp"
#include "src/app/manual/terminal_text.hpp"
#include "src/base/error.hpp"
#include "src/plan/cases/run_prediction.hpp"

namespace trireme::app {
namespace {

/// Absolute errors of a group of rows, in percent.
using Errors = std::vector<double>;

void print_errors(const std::string& name, Errors errors) {
  if (errors.empty()) return;
  std::ranges::sort(errors);
  const double mean = std::accumulate(errors.begin(), errors.end(), 0.0) / static_cast<double>(errors.size());
  const double median = (errors[errors.size() / 2] + errors[(errors.size() - 1) / 2]) / 2;
  fmt::print("{:<64} {:>4} {:>6.1f} {:>6.1f} {:>6.1f}\n", name, errors.size(), mean, median, errors.back());
}

/// The table, and the errors by source.
class CaseTable {
 public:
  CaseTable() {
    fmt::print(
        "{:>5} {:<18} {:<13} {:>5} {:>3} {:>3} {:>4} {:>3} {:>3} {:>4} {:>6}  {:<20} {:>10} {:>10} {:>8} {:>8} {:>7}\n",
        "line", "model", "cluster", "gpus", "tp", "pp", "dp", "ep", "etp", "mbs", "gbs", "schedule", "iter_s",
        "published", "TFLOP/s", "publ.", "error");
  }

  void add(const plan::PublishedRun& run, const plan::RunPrediction& p) {
    const std::optional<double> published = run.published_seconds();
    const auto number = [](const std::optional<double>& value, int digits) {
      return value ? fmt::format("{:.{}f}", *value, digits) : std::string("-");
    };
    const auto experts = [&](int ranks) { return run.experts.any() ? fmt::format("{}", ranks) : std::string("-"); };
    const std::string error =
        published ? fmt::format("{:+.1f} %", 100 * (p.seconds / *published - 1)) : std::string("-");
    fmt::print(
        "{:>5} {:<18} {:<13} {:>5} {:>3} {:>3} {:>4} {:>3} {:>3} {:>4} {:>6}  {:<20} {:>10.3f} {:>10} {:>8.1f} {:>8} "
        "{:>7}\n",
        run.line, printable(field(run, "model")), run.cluster, run.gpus, run.tp, run.pp, run.dp,
        experts(run.experts.ep), experts(run.experts.etp), run.micro_batch, run.global_batch,
        printable(field(run, "schedule")).substr(0, 20), p.seconds, number(run.iter_s, 3), p.tflops_gpu,
        number(run.tflops_gpu, 1), error);
    if (!published) return;
    const double percent = 100 * std::abs(p.seconds / *published - 1);
    (run.experts.any() ? experts_ : run.is_fsdp() ? sharded_ : grids_).push_back(percent);
    by_source_[field(run, "source") + (run.is_fsdp() ? " (ZeRO-2, ZeRO-3)" : "")].push_back(percent);
  }

  void print_summary() const {
    if (by_source_.empty()) return;
    fmt::print("\n{:<64} {:>4} {:>6} {:>6} {:>6}\n", "errors of the step's time, percent", "rows", "mean", "median",
               "worst");
    for (const auto& [source, errors] : by_source_) print_errors(printable(source).substr(0, 64), errors);
    print_errors("all with tensor, pipeline and data parallelism", grids_);
    print_errors("all with ZeRO-2 or ZeRO-3 (FSDP)", sharded_);
    print_errors("all with experts", experts_);
  }

 private:
  static std::string field(const plan::PublishedRun& run, const char* column) {
    const auto found = run.text.find(column);
    return found == run.text.end() ? std::string() : found->second;
  }

  std::map<std::string, Errors> by_source_;
  Errors grids_, sharded_, experts_;
};

}  // namespace

int run_cases(const std::string& path, bool json) {
  constexpr std::int64_t max_bytes = std::int64_t{1} << 30;
  const std::vector<plan::PublishedRow> rows =
      plan::parse_published_runs(path, io::read_whole_file(path, max_bytes, io::Symlinks::follow));
  std::optional<CaseTable> table;
  if (!json) table.emplace();
  bool all_good = true;
  for (const plan::PublishedRow& row : rows) {
    if (!row.run) {
      all_good = false;
      fmt::print(stderr, "{}\n", printable(row.error));
      if (json) fmt::print("{}", io::bad_row_json(row));
      continue;
    }
    const plan::RunPrediction prediction = plan::predict_run(*row.run);
    if (json) {
      fmt::print("{}", io::run_prediction_json(*row.run, prediction));
    } else {
      table->add(*row.run, prediction);
    }
  }
  if (table) table->print_summary();
  return static_cast<int>(all_good ? ExitCode::success : ExitCode::data);
}

}  // namespace trireme::app
