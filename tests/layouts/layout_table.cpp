// Trains one small model in every layout of a table, each twice, and compares it with one rank, or with PyTorch's
// figures. The layout does not change the run. tests/layouts.sh runs it for every number of ranks that the table names.
#include <fmt/ranges.h>

#include <cstdio>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>

#include "mpi/run_main.hpp"
#include "src/app/run_config/run_config.hpp"
#include "src/base/timer.hpp"
#include "src/comm/self_communicator.hpp"
#include "src/model/fields.hpp"
#include "tests/support/synthetic_runs.hpp"
#include "tests/support/training_run.hpp"

namespace trireme::test {
namespace {

/// A line of the table: RANKS [TAG...] [--OPTION...], the options those of `trireme train`.
struct Row {
  int ranks = 1;
  std::set<std::string> tags;
  std::vector<std::string> options;
};

std::vector<Row> read_table(const std::string& path) {
  std::ifstream file(path);
  TRIREME_CHECK(file.is_open(), ConfigError, "cannot read {}", path);
  std::vector<Row> rows;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    Row row;
    if (!(words >> row.ranks)) continue;
    for (std::string word; words >> word;) {
      if (row.options.empty() && !word.starts_with("--")) {
        row.tags.insert(word);
      } else {
        row.options.push_back(word);
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

/// How far a type's figures may be from those of one rank: rounding, over ten updates.
struct Tolerance {
  double loss;
  double grad_norm;
};
Tolerance tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return {1e-10, 1e-10};
    case DType::fp32:
      return {1e-6, 1e-5};
    default:
      return {1e-3, 2e-2};  // a squared ReLU's norm differs by up to 0.011, depending on the processor's bf16 products
  }
}

double max_difference(const std::vector<double>& actual, const std::vector<double>& expected) {
  double largest = actual.size() == expected.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    const double difference = std::abs(actual[i] / expected[i] - 1);
    largest = difference <= largest ? largest : difference;  // NaN stays
  }
  return largest;
}

/// Returns whether `all` begins with the same bits as `first`.
bool begins_with(const std::vector<double>& all, const std::vector<double>& first) {
  return first.size() <= all.size() && std::equal(first.begin(), first.end(), all.begin());
}

/// Heads of tasks by the tags that name them.
const std::map<std::string, model::ModelOutput> task_outputs = {{"classes", model::ModelOutput::classes},
                                                                {"choices", model::ModelOutput::choices},
                                                                {"spans", model::ModelOutput::spans}};

class Table {
 public:
  /// `most_steps` bounds the updates of a row.
  Table(Communicator& world, const std::string& folder, std::int64_t most_steps)
      : world_(world), base_(folder + "/base.ini"), most_steps_(most_steps) {}

  /// Trains a row; a line of Markdown, and whether the row holds.
  std::pair<std::string, bool> run(const Row& row) {
    std::string options = row.options.empty() ? "one rank" : fmt::format("{}", fmt::join(row.options, " "));
    for (const auto& [task, output] : task_outputs) options += row.tags.contains(task) ? ", task of " + task : "";
    const std::string head = fmt::format("| {} | {} |", row.ranks, options);
    try {
      const Timer timer;
      app::Options parser("layouts", "A row of the table.");
      app::RunConfigReader reader(parser);
      std::vector<std::string> arguments = {"--config", base_};
      arguments.insert(arguments.end(), row.options.begin(), row.options.end());
      parser.parse(arguments);
      const parallel::ProcessGrid grid = reader.parsed().parallel.grid.of(world_.size());
      const app::RunConfig& row_config = reader.settle(grid.data_size());
      Layout layout;
      layout.tensor = grid.tensor_size();
      layout.pipeline = grid.pipeline_size();
      layout.context = grid.context_size();
      layout.expert = grid.expert_size();
      layout.expert_tensor = grid.expert_tensor_size();
      layout.options = row_config.execution_config();
      // Each position of a sample is masked with the probability, not so many positions.
      layout.options.max_predictions = 13;
      const bool oracle = row.tags.contains("oracle");
      TrainingRunConfig config = oracle ? synthetic_run("synthetic_hot").config : config_of(row, row_config);
      if (!oracle) config.steps = std::min(config.steps, most_steps_);
      const Tolerance tolerance = oracle ? Tolerance{1e-9, 1e-9} : tolerance_of(config.dtype);
      const Curve expected = oracle ? synthetic_run("synthetic_hot").curve : reference(config);
      const Curve curve = training_curve(world_, config, layout);
      // Repeats, of a few updates, those that read updated weights and moments.
      if (most_steps_ <= 4) config.steps = std::min<std::int64_t>(config.steps, 3);
      const Curve again = training_curve(world_, config, layout);
      const bool same = begins_with(curve.loss, again.loss) && begins_with(curve.grad_norm, again.grad_norm);
      const double loss = max_difference(curve.loss, expected.loss);
      const double norm = max_difference(curve.grad_norm, expected.grad_norm);
      const bool pass = same && loss <= tolerance.loss && norm <= tolerance.grad_norm;
      return {fmt::format("{} {}{} | {:.1e} | {:.1e} | {} | {:.1f} | {} |", head, name_of(config.dtype),
                          oracle ? ", PyTorch" : "", loss, norm, same ? "yes" : "no", timer.elapsed_s(),
                          pass ? "PASS" : "FAIL"),
              pass};
    } catch (const Error& error) {
      return {fmt::format("{} {} | | | | | FAIL |", head, error.what()), false};
    }
  }

 private:
  static TrainingRunConfig config_of(const Row& row, const app::RunConfig& options) {
    TrainingRunConfig config;
    config.model = options.model.config(*options.batch.sequence_length, 1);
    for (const auto& [task, output] : task_outputs) {
      if (!row.tags.contains(task)) continue;
      config.model.output = output;
      config.model.classes = 4;
    }
    config.s = *options.batch.sequence_length;
    config.batch = *options.batch.global_batch_size;
    config.dtype = options.precision.dtype;
    config.steps = *options.batch.train_iterations;
    config.init_scale = 8;  // attention far from uniform, so that a wrong position or mask is seen
    config.train = options.train_options();
    config.documents = options.data.documents;
    return config;
  }

  /// Curve of one rank: rank 0 alone computes it, once for each model, batch and type.
  const Curve& reference(const TrainingRunConfig& config) {
    std::string key = fmt::format("{} {} {}", config.batch, config.s, name_of(config.dtype));
    for (const model::Field& field : model::fields()) key += " " + field.text(config.model);
    for (const auto& [name, value] : attributes_of(*config.train).texts()) key += " " + name + " " + value;
    const auto [place, is_new] = references_.try_emplace(key);
    if (!is_new) return place->second;
    std::string text;
    collectively(world_, [&] {
      if (world_.rank() != 0) return;
      SelfCommunicator alone;
      const Curve curve = training_curve(alone, config, "b 4");
      for (std::size_t i = 0; i < curve.loss.size(); ++i) {
        text += fmt::format("{:.17g} {:.17g}\n", curve.loss[i], curve.grad_norm[i]);
      }
    });
    std::istringstream numbers(broadcast_text(world_, text, 0));
    for (double loss = 0, norm = 0; numbers >> loss >> norm;) {
      place->second.loss.push_back(loss);
      place->second.grad_norm.push_back(norm);
    }
    return place->second;
  }

  Communicator& world_;
  std::string base_;
  std::int64_t most_steps_;
  std::map<std::string, Curve> references_;
};

/// usage: layout_table FOLDER OUTPUT [TAG STEPS]. Runs the rows of FOLDER/layouts.txt for as many ranks as there are,
/// or only those with the TAG, for at most STEPS updates. Appends them to the file OUTPUT and prints them; 1 if one
/// fails.
int run_table(mpi::MpiEnvironment& environment, const std::vector<std::string>& arguments) {
  const bool tagged = arguments.size() == 4;
  TRIREME_CHECK(tagged || arguments.size() == 2, ConfigError, "usage: layout_table FOLDER OUTPUT [TAG STEPS]");
  const std::unique_ptr<mpi::MpiCommunicator> world = environment.make_world();
  Table table(*world, arguments[0], tagged ? std::stoll(arguments[3]) : std::numeric_limits<std::int64_t>::max());
  int failed = 0;
  for (const Row& row : read_table(arguments[0] + "/layouts.txt")) {
    if (row.ranks != world->size() || (tagged && !row.tags.contains(arguments[2]))) continue;
    const auto& [line, pass] = table.run(row);
    failed += pass ? 0 : 1;
    if (world->rank() != 0) continue;
    std::ofstream(arguments[1], std::ios::app) << line << "\n";
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  }
  return failed > 0 ? 1 : 0;
}

}  // namespace
}  // namespace trireme::test

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return trireme::mpi::run_main(argc, argv, [&](trireme::mpi::MpiEnvironment& environment) {
    return trireme::test::run_table(environment, arguments);
  });
}
