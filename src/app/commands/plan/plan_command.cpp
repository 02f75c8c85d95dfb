#include "src/app/commands/commands.hpp"
#include "src/app/commands/plan/plan_report.hpp"
#include "src/app/options/text_files.hpp"
#include "src/plan/constants.hpp"

namespace trireme::app {
int plan_command(const CommandLine& line) {
  PlanOptions o;
  Options options(line.command(),
                  "Predicts the step time and memory of a training job before any cluster is booked, and finds the "
                  "fastest layout that fits. Runs nothing.");
  o.declare(options);
  if (!line.read(options)) return 0;
  o.check_form(options);
  if (o.constants) {
    fmt::print("{}", plan::constants_text());
    return 0;
  }
  if (!o.cases.empty()) return run_cases(o.cases, o.json);
  if (o.show_schedule) {
    show_schedule(o);
    return 0;
  }
  TRIREME_CHECK(!o.cluster.empty(), ConfigError,
                "--cluster must be given: one of {}, or an INI file. A search also needs a model and "
                "--global-batch-size; for only a schedule give --show-schedule and --micro-batches",
                plan::cluster_preset_names());
  plan::Cluster cluster = o.read_cluster();
  const plan::SearchSpace space = o.space(options, cluster);
  cluster = o.calibrated(std::move(cluster), space.base.execution.dtype);
  plan::ClusterCosts costs(cluster);
  plan::SearchResult result;
  if (o.no_search) {
    result.grids.push_back(plan::predict_one(space.base, costs));
    result.limit_bytes = costs.limit_bytes();
  } else {
    result = plan::search(space, costs, o.top);
    check_found(result);
  }
  const plan::RankedGrid& best = result.grids.front();
  PlanReport report{cluster, o.nodes, result, train_options(options, best.job)};
  if (!o.compare.empty()) report.comparison = compare_with(o.compare, best);
  if (o.json) {
    fmt::print("{}", io::plan_json(report));
  } else {
    print_text(report);
    if (!o.compare.empty()) print_comparison(o.compare, report.comparison);
  }
  if (!o.batch_file.empty()) write_text_file("batch-file", o.batch_file, batch_file_of(report));
  if (!o.svg.empty()) write_schedule_svg(o.svg, best);
  if (!o.trace_file.empty()) write_predicted_trace(o.trace_file, best);
  return 0;
}

}  // namespace trireme::app
