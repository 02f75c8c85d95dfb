#include "src/app/commands/train/train_plan.hpp"

#include <utility>

#include "io/corpus/index_files.hpp"
#include "src/app/bert_vocabulary.hpp"
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

SampleOptions sample_options(const RunConfig& config, const TrainPlan& plan) {
  if (!plan.model.is_bert()) return config.gpt_data_options(plan.model);
  return config.bert_data_options(plan.model, bert_vocabulary(*plan.stores.front().store));
}

/// Returns the samples that the run reads of the test split: none of `wanted` where there is no such split.
std::int64_t test_samples(std::int64_t wanted, const RunConfig& config, const TrainPlan& plan) {
  const bool is_split =
      config.data.sampling == data::Sampling::shuffled && data::parse_split(config.data.split)[2] > 0 && wanted > 0;
  if (!is_split) return 0;
  // A split that was asked for must have its samples, as for validation; the default's 0.1 % need not.
  const auto has_samples = [&](const auto& options) {
    return data::has_samples(plan.stores, options, data::Split::test);
  };
  if (!config.data.has_default_split || std::visit(has_samples, plan.samples)) return wanted;
  log::info("no test at the end: the default --split leaves too little text for a sample of --seq-length {}",
            *config.batch.sequence_length);
  return 0;
}

data::SampleSplits make_samples(const std::vector<data::WeightedStore>& stores, const data::GptDataOptions& options) {
  return data::make_gpt_data(stores, options);
}
data::SampleSplits make_samples(const std::vector<data::WeightedStore>& stores, const data::BertDataOptions& options) {
  return data::make_bert_data(stores, options);
}

}  // namespace

TrainPlan make_plan(const Job& job, const RunConfig& config) {
  TrainPlan plan;
  plan.stores = open_corpora(job, config);
  plan.blobs["tokenizer"] = plan.stores.front().store->info().tokenizer_payload;
  plan.model = config.model.config(*config.batch.sequence_length, plan.stores.front().store->info().vocabulary_size);
  plan.samples = sample_options(config, plan);
  plan.attributes =
      run_attributes(plan.model, plan.stores, plan.samples, config.train_options(), config.precision.dtype);

  if (!config.checkpoint.load.empty()) {
    plan.start = open_checkpoint(*job.world, config.checkpoint.load, config.checkpoint.source());
  }
  if (plan.start.reader && config.checkpoint.finetune) {
    require_same_model(plan.start.description.attributes, plan.attributes);
    plan.pretrained = std::make_shared<OpenCheckpoint>(std::exchange(plan.start, {}));
  }
  std::vector<data::SampleBudget> earlier_budgets;
  if (plan.start.reader) {
    const Attributes& stored = plan.start.description.attributes;
    require_same_run(stored, plan.attributes, config.checkpoint.allow_new_data, config.checkpoint.loaded_optimizer());
    if (!config.checkpoint.allow_new_data) earlier_budgets = data::budgets_from(stored);
    for (const std::string& line : changed_options(stored, plan.attributes)) log::info("{}", line);
    plan.done = train::progress_from(stored);
  }
  plan.iterations = config.batch.iterations(plan.done, job.grid.data_size());
  data::SampleBudget needed = data::samples_needed(config.run_length(plan.iterations));
  needed.test = test_samples(needed.test, config, plan);
  const std::vector<data::SampleBudget> budgets = data::extend_budgets(earlier_budgets, needed);
  std::visit([&](auto& options) { options.budgets = budgets; }, plan.samples);
  plan.attributes.merge(attributes_of(budgets));
  return plan;
}

data::SampleSplits make_data(Communicator& world, const TrainPlan& plan, const std::string& cache_path) {
  io::IndexFiles cache(cache_path);
  SampleOptions samples = plan.samples;
  std::visit([&](auto& options) { options.cache = &cache; }, samples);
  data::SampleSplits data;
  const auto make_where = [&](bool here) {
    collectively(world, [&] {
      if (here) {
        data = std::visit([&](const auto& options) { return make_samples(plan.stores, options); }, samples);
      }
    });
  };
  make_where(world.rank() == 0);
  if (world.size() > 1) make_where(world.rank() != 0);
  return data;
}

}  // namespace trireme::app
