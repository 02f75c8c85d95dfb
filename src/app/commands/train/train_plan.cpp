#include "src/app/commands/train/train_plan.hpp"

#include "io/corpus/index_files.hpp"
#include "src/base/log.hpp"

namespace trireme::app {
namespace {

/// Opens the corpora that `--data-path` names, on every rank or on none.
std::vector<data::WeightedStore> open_corpora(const Job& job, const RunConfig& config) {
  std::vector<data::WeightedStore> stores;
  for (const auto& corpus : config.data.corpora()) {
    stores.push_back({open_corpus(*job.world, corpus.path, config.data.check_level, config.seed), corpus.weight});
  }
  return stores;
}

/// Returns the samples that the run reads of the test split: none of `wanted` where there is no such split.
std::int64_t test_samples(std::int64_t wanted, const RunConfig& config, const TrainPlan& plan) {
  const data::GptDataOptions& options = plan.data_options;
  const bool is_split = options.sampling == data::Sampling::shuffled && options.split_fractions[2] > 0 && wanted > 0;
  if (!is_split) return 0;
  // A split that was asked for must have its samples, as for validation; the default's 0.1 % need not.
  if (!config.data.has_default_split || data::has_samples(plan.stores, options, data::Split::test)) return wanted;
  log::info("no test at the end: the default --split leaves too few tokens for a sample of --seq-length {}",
            options.sequence_length);
  return 0;
}

}  // namespace

TrainPlan make_plan(const Job& job, const RunConfig& config) {
  TrainPlan plan;
  plan.stores = open_corpora(job, config);
  plan.model = config.model.config(config.batch.sequence_length, plan.stores.front().store->info().vocabulary_size);
  plan.data_options = config.data_options(plan.model);
  plan.attributes =
      run_attributes(plan.model, plan.stores, plan.data_options, config.train_options(), config.precision.dtype);

  if (!config.checkpoint.load.empty()) {
    plan.start = open_checkpoint(*job.world, config.checkpoint.load, config.checkpoint.load_or_init);
  }
  std::vector<data::SampleBudget> earlier_budgets;
  if (plan.start.reader) {
    const Attributes& stored = plan.start.description.attributes;
    require_same_run(stored, plan.attributes, config.checkpoint.allow_new_data);
    if (!config.checkpoint.allow_new_data) earlier_budgets = data::budgets_from(stored);
    for (const std::string& line : changed_options(stored, plan.attributes)) log::info("{}", line);
    plan.done = train::progress_from(stored);
  }
  plan.iterations = config.batch.iterations(plan.done, job.grid.data_size());
  data::SampleBudget needed = data::samples_needed(config.run_length(plan.iterations));
  needed.test = test_samples(needed.test, config, plan);
  plan.data_options.budgets = data::extend_budgets(earlier_budgets, needed);
  plan.attributes.merge(attributes_of(plan.data_options.budgets));
  return plan;
}

data::SampleSplits make_data(Communicator& world, const TrainPlan& plan, const std::string& cache_path) {
  io::IndexFiles cache(cache_path);
  data::GptDataOptions options = plan.data_options;
  options.cache = &cache;
  data::SampleSplits data;
  const auto make_where = [&](bool here) {
    collectively(world, [&] {
      if (here) data = data::make_gpt_data(plan.stores, options);
    });
  };
  make_where(world.rank() == 0);
  if (world.size() > 1) make_where(world.rank() != 0);
  return data;
}

}  // namespace trireme::app
