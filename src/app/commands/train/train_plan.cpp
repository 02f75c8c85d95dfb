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
  const bool is_split = options.sampling == data::Sampling::shuffled && options.split_shares[2] > 0 && wanted > 0;
  if (!is_split) return 0;
  // A split that was asked for must have its samples, as for validation; the default's 0.1 % need not.
  if (!config.data.has_default_split || data::has_samples(plan.stores, options, data::Split::test)) return wanted;
  log::info("no test at the end: the default --split leaves too few tokens for a sample of --seq-length {}",
            options.sequence_length);
  return 0;
}

/// Holds a checkpoint against what was asked for. Returns the budgets that its runs were given, where the order of
/// samples goes on.
std::vector<data::SampleBudget> check_checkpoint(const Attributes& stored, const Attributes& model,
                                                 const Attributes& order, bool allow_new_data) {
  require_equal(attributes_of(config_from(stored)), model, "the checkpoint holds another model",
                "Give its options, or another --load.");
  if (allow_new_data) return {};
  require_equal(
      stored, order, "the checkpoint's run read other data, or in another order",
      "Give its options and corpora, or --allow-new-data to go on with these from the sample it has reached.");
  return budgets_from(stored);
}

}  // namespace

TrainPlan make_plan(const Job& job, const RunConfig& config) {
  TrainPlan plan;
  plan.stores = open_corpora(job, config);
  const data::CorpusInfo& corpus = plan.stores.front().store->info();
  plan.model = config.model.config(config.batch.sequence_length, corpus.vocabulary_size);
  plan.data_options = config.data_options(plan.model);
  const Attributes model = attributes_of(plan.model);
  const Attributes order = attributes_of(plan.stores, plan.data_options);
  plan.attributes = model;
  plan.attributes.merge(Attributes(order));
  plan.attributes["tokenizer"] = corpus.tokenizer;
  plan.attributes["dtype"] = name_of(config.precision.dtype);
  plan.attributes.merge(attributes_of(config.train_options()));

  if (!config.checkpoint.load.empty()) {
    plan.start = open_checkpoint(*job.world, config.checkpoint.load, config.checkpoint.load_or_init);
  }
  std::vector<data::SampleBudget> earlier_budgets;
  if (plan.start.reader) {
    const Attributes& stored = plan.start.description.attributes;
    earlier_budgets = check_checkpoint(stored, model, order, config.checkpoint.allow_new_data);
    require_same_optimizer(stored, plan.attributes);
    for (const std::string& line : changed_options(stored, plan.attributes)) log::info("{}", line);
    plan.done = train::progress_from(stored);
  }
  plan.iterations = config.batch.iterations(plan.done, job.grid.data_size());
  data::SampleBudget needed = data::samples_needed(config.run_length(plan.iterations));
  needed.test = test_samples(needed.test, config, plan);
  plan.data_options.budgets = data::extend_budgets(earlier_budgets, needed);
  plan.attributes["data_budgets"] = budgets_text(plan.data_options.budgets);
  return plan;
}

data::GptData make_data(Communicator& world, const TrainPlan& plan, const std::string& cache_path) {
  io::IndexFiles cache(cache_path);
  data::GptDataOptions options = plan.data_options;
  options.cache = &cache;
  data::GptData data;
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
