#include "src/app/commands/train/train_plan.hpp"

#include <algorithm>
#include <utility>

#include "io/corpus/index_files.hpp"
#include "src/base/log.hpp"
#include "src/base/timer.hpp"
#include "src/data/dataset/token_store.hpp"
#include "src/data/tokenizer/tokenizer.hpp"
#include "src/train/upcycling.hpp"

namespace trireme::app {
namespace {

double weight_of(const WeightedPath& corpus, const data::TokenStore& store) {
  if (corpus.weight) return *corpus.weight;
  TRIREME_CHECK(store.token_count() > 0, DataError,
                "{} has no tokens, which are its weight: leave it out, or give each corpus a weight", store.name());
  return corpus.epochs * static_cast<double>(store.token_count());
}

/// Opens corpora, on all ranks or none.
std::vector<data::WeightedStore> open_corpora(const Job& job, const RunConfig& config,
                                              const std::vector<WeightedPath>& corpora) {
  std::vector<data::WeightedStore> stores;
  for (const WeightedPath& corpus : corpora) {
    const auto store = open_corpus(*job.world, corpus.path, config.data.check_level, config.seed);
    stores.push_back({store, weight_of(corpus, *store)});
  }
  return stores;
}

/// Returns the sample at which a stage of a blend begins.
std::int64_t first_sample_of(const BlendFileStage& stage, const BatchOptions& batch, int data_ranks) {
  using Unit = BlendFileStage::Unit;
  if (stage.unit == Unit::steps) return batch.batches(data_ranks).samples(0, stage.begin);
  return stage.unit == Unit::samples ? stage.begin : stage.begin / *batch.sequence_length;
}

/// Opens the training corpora, each once, and returns the weights of the stages after the first.
std::vector<data::BlendStage> open_training_corpora(const Job& job, const RunConfig& config, TrainPlan& plan) {
  std::vector<BlendFileStage> stages;
  collectively(*job.world, [&] { stages = config.data.stages(); });
  plan.stores = open_corpora(job, config, stages.front().corpora);
  plan.weighted_by_tokens = !stages.front().corpora.front().weight;
  std::vector<std::string> paths;
  for (const WeightedPath& corpus : stages.front().corpora) paths.push_back(corpus.path);
  std::vector<data::BlendStage> later;
  for (auto stage = stages.begin() + 1; stage != stages.end(); ++stage) {
    std::vector<double>& weights = later
                                       .emplace_back(first_sample_of(*stage, config.batch, job.grid.data_size()),
                                                     std::vector<double>(paths.size()))
                                       .weights;
    for (const WeightedPath& corpus : stage->corpora) {
      const auto known = static_cast<std::size_t>(std::ranges::find(paths, corpus.path) - paths.begin());
      if (known == paths.size()) {
        paths.push_back(corpus.path);
        plan.stores.push_back({open_corpora(job, config, {corpus}).front().store, 0});
        weights.push_back(0);
      }
      weights[known] = weight_of(corpus, *plan.stores[known].store);
    }
  }
  for (data::BlendStage& stage : later) stage.weights.resize(paths.size());
  return later;
}

SampleOptions sample_options(const RunConfig& config, const TrainPlan& plan) {
  if (!plan.model.is_bert()) {
    data::GptDataOptions options = config.gpt_data_options(plan.model);
    options.fim = config.data.fim.settled(plan.stores.front().store->info(), plan.model.vocabulary);
    return options;
  }
  return config.bert_data_options(plan.model, bert_vocabulary(*plan.stores.front().store));
}

/// Returns synthetic tokens, of a tokenizer that reads and writes ids.
std::shared_ptr<const data::TokenStore> mock_corpus(std::int64_t vocabulary_size, std::uint64_t seed) {
  const std::unique_ptr<data::Tokenizer> tokenizer = data::make_null_tokenizer(vocabulary_size, vocabulary_size - 1);
  data::CorpusInfo info;
  info.tokenizer = tokenizer->name();
  info.tokenizer_digest = tokenizer->digest();
  info.ids_digest = tokenizer->ids_digest();
  info.tokenizer_payload = tokenizer->payload();
  info.vocabulary_size = vocabulary_size;
  return std::make_shared<data::MockStore>(info, seed);
}

bool has_others(const TrainPlan& plan, data::Split split) {
  return std::ranges::any_of(plan.other_stores, [&](const OtherCorpora& other) { return other.split == split; });
}

/// Returns the samples that the run reads from the test split: `wanted`, or 0 if there is no such split.
std::int64_t test_samples(std::int64_t wanted, const RunConfig& config, const TrainPlan& plan) {
  if (plan.own_splits) return has_others(plan, data::Split::test) ? wanted : 0;
  const bool is_split =
      config.data.sampling != data::Sampling::sequential && data::parse_split(config.data.split)[2] > 0 && wanted > 0;
  if (!is_split) return 0;
  // An explicit split must have enough samples, as for validation; the default 0.1 % need not.
  const auto has_samples = [&](const auto& options) {
    return data::has_samples(plan.stores, options, data::Split::test);
  };
  if (!config.data.has_default_split || std::visit(has_samples, plan.samples)) return wanted;
  log::info("no test at the end: the default --split leaves too little text for a sample of --seq-length {}",
            *config.batch.sequence_length);
  return 0;
}

data::SampleSplits make_samples(const std::vector<data::WeightedStore>& stores, const SampleOptions& options) {
  const auto* gpt = std::get_if<data::GptDataOptions>(&options);
  return gpt != nullptr ? data::make_gpt_data(stores, *gpt)
                        : data::make_bert_data(stores, std::get<data::BertDataOptions>(options));
}

/// Makes the samples of all corpora of `plan`. A split with separate corpora uses all of their documents, unless
/// `plan.split_sets`.
data::SampleSplits make_all_samples(const TrainPlan& plan, const SampleOptions& samples) {
  SampleOptions shares = samples;
  std::visit(
      [&](auto& options) {
        // Validation may consist only of validation sets.
        bool has_share = options.split_fractions[1] > 0;
        if constexpr (requires { options.sampling; }) {
          has_share = has_share && options.sampling != data::Sampling::sequential;
        }
        for (data::SampleBudget& budget : options.budgets) {
          if (plan.own_splits || (!has_share && has_others(plan, data::Split::valid))) budget.valid = 0;
          if (plan.own_splits) budget.test = 0;
        }
      },
      shares);
  data::SampleSplits data = make_samples(plan.stores, shares);
  for (const OtherCorpora& other : plan.other_stores) {
    const bool is_test = other.split == data::Split::test;
    SampleOptions own = samples;
    std::visit(
        [&](auto& options) {
          options.later_stages.clear();
          if (!plan.split_sets) options.split_fractions = {0, is_test ? 0.0 : 1.0, is_test ? 1.0 : 0.0};
          for (data::SampleBudget& budget : options.budgets) {
            budget = {0, is_test ? 0 : budget.valid, is_test ? budget.test : 0};
          }
        },
        own);
    data::SampleSplits made = make_samples(other.stores, own);
    if (is_test) {
      data.test = std::move(made.test);
    } else if (other.set.empty()) {
      data.valid = std::move(made.valid);
    } else if (made.valid) {
      data.valid_sets.push_back({other.set, std::move(made.valid)});
    }
  }
  return data;
}

/// Returns the attributes of the corpora besides the training corpora, for the log of a run that resumes with others.
Attributes attributes_of(const std::vector<OtherCorpora>& others, bool split_sets) {
  Attributes attributes;
  std::string sets;
  for (const OtherCorpora& other : others) {
    const std::string content = data::content_of(other.stores);
    if (other.set.empty()) {
      attributes.put(other.split == data::Split::test ? "training.test-data-path" : "training.valid-data-path",
                     content);
    } else {
      sets += fmt::format("{}{}={}{}", sets.empty() ? "" : " ", other.set, content, split_sets ? " by --split" : "");
    }
  }
  if (!sets.empty()) attributes.put("training.valid-set", sets);
  return attributes;
}

/// Logs how the special tokens of corpora differ from those of the first.
void log_differing_tokens(const std::vector<data::WeightedStore>& stores) {
  const data::TokenStore& first = *stores.front().store;
  for (const data::WeightedStore& weighted : stores) {
    const data::TokenStore& store = *weighted.store;
    const std::string difference = data::compare_tokenizers(first.info().tokenizer, first.info().tokenizer_payload,
                                                            store.info().tokenizer, store.info().tokenizer_payload)
                                       .difference;
    if (difference.empty()) continue;
    log::info("{} and {} have the same ids, but other special tokens, of which the first count: {}", first.name(),
              store.name(), difference);
  }
}

/// Keeps the tokenizer of the checkpoint that a run begins from if it gives the same ids as that of the corpora, and
/// logs how the special tokens differ. A new run takes those of the corpora if the model has none, or if it learns
/// conversations, which these tokens and their chat template make.
void keep_tokenizer(const checkpoint::RunDescription& stored, bool resumes, TrainPlan& plan) {
  const auto blob = stored.blobs.find("tokenizer");
  if (blob == stored.blobs.end() || !stored.attributes.contains("data.tokenizer")) return;
  const auto name = stored.attributes.get<std::string>("tokenizer");
  const data::CorpusInfo& corpus = plan.stores.front().store->info();
  const data::TokenizerComparison comparison =
      data::compare_tokenizers(name, blob->second, corpus.tokenizer, corpus.tokenizer_payload);
  if (!comparison.same_ids) return;
  if (!resumes && data::split_payload(blob->second).special == data::SpecialTokens{}) return;
  if (!resumes && plan.stores.front().store->learned_ranges()) {
    if (!comparison.difference.empty()) {
      log::info("the model takes the special tokens and the chat template of {}, which differ from its own: {}",
                plan.stores.front().store->name(), comparison.difference);
    }
    return;
  }
  if (!comparison.difference.empty()) {
    log::info("the model keeps its special tokens, which differ from those of {}: {}",
              plan.stores.front().store->name(), comparison.difference);
  }
  plan.blobs["tokenizer"] = blob->second;
  plan.attributes.put("tokenizer", name);
  plan.attributes.put("data.tokenizer", stored.attributes.get<std::string>("data.tokenizer"));
}

}  // namespace

std::unique_ptr<io::CheckpointStore> open_store(Communicator& world, const RunConfig& config) {
  if (config.checkpoint.save.empty()) return nullptr;
  auto store = std::make_unique<io::CheckpointStore>(config.checkpoint.save);
  collectively(world, [&] {
    if (world.rank() == 0 && !config.run.dry_run) store->reserve();
  });
  return store;
}

void open_start(const Job& job, const RunConfig& config, bool resumes, TrainPlan& plan) {
  if (config.checkpoint.local_interval > 0 && !config.run.dry_run) {
    plan.local = std::make_unique<LocalCheckpoints>(job, config.checkpoint);
  }
  if (!resumes) return;
  const Timer timer;
  plan.start =
      plan.local ? plan.local->open_start()
                 : open_checkpoint(*job.world, config.checkpoint.load, config.checkpoint.source(job.bytes_for_files()));
  plan.load_ms = timer.elapsed_ms();
}

void settle_start(const Attributes& stored, const CheckpointOptions& options, TrainPlan& plan) {
  require_same_run(stored, plan.attributes, options.allow_new_data, options.loaded_optimizer());
  for (const std::string& line : settle_schedule(stored, options.schedule_source(), plan.options, plan.attributes)) {
    log::info("{}", line);
  }
  for (const std::string& line : changed_options(stored, plan.attributes)) log::info("{}", line);
  plan.done = train::progress_from(stored);
}

TrainPlan make_plan(const Job& job, const RunConfig& config) {
  TrainPlan plan;
  plan.options = config.train_options();
  std::vector<data::BlendStage> later_stages;
  if (config.data.mock) {
    const std::int64_t vocabulary = config.model.config(*config.batch.sequence_length, 1).vocabulary;
    plan.stores.push_back({mock_corpus(vocabulary, config.seed)});
  } else {
    later_stages = open_training_corpora(job, config, plan);
  }
  plan.own_splits = config.data.has_own_splits();
  plan.split_sets = config.data.valid_sets_split;
  std::vector<data::WeightedStore> all = plan.stores;
  for (const DataOptions::SplitPaths& other : config.data.other_corpora()) {
    plan.other_stores.push_back({other.split, other.set, open_corpora(job, config, other.corpora)});
    all.insert(all.end(), plan.other_stores.back().stores.begin(), plan.other_stores.back().stores.end());
  }
  plan.has_conversations = std::ranges::any_of(
      all, [](const data::WeightedStore& weighted) { return weighted.store->learned_ranges().has_value(); });
  plan.options.documents.conversations_apart = plan.has_conversations && config.data.packed_apart;
  plan.blobs["tokenizer"] = plan.stores.front().store->info().tokenizer_payload;
  const data::CorpusInfo& info = plan.stores.front().store->info();
  plan.model = config.model.config(*config.batch.sequence_length, info.vocabulary_size,
                                   data::needed_ids(info.tokenizer, info.tokenizer_payload, info.vocabulary_size));
  collectively(*job.world, [&] {
    data::check_vocabularies(all, plan.model.vocabulary);
    log_differing_tokens(all);
  });
  const data::TokenStore& corpus = *plan.stores.front().store;
  check_tokenizer(*job.world, config.data.tokenizer, "corpus " + corpus.name(), corpus.info().tokenizer,
                  corpus.info().tokenizer_payload);
  plan.samples = sample_options(config, plan);
  std::visit([&](auto& options) { options.later_stages = std::move(later_stages); }, plan.samples);
  plan.attributes = run_attributes(plan.model, plan.stores, plan.samples, plan.options, config.precision.dtype);
  plan.attributes.merge(attributes_of(plan.other_stores, plan.split_sets));
  plan.attributes.merge(train::attributes_of(config.precision.fp8));

  plan.store = open_store(*job.world, config);
  open_start(job, config, !config.checkpoint.load.empty(), plan);
  if (plan.start.reader && config.checkpoint.starts_anew()) {
    const Attributes& stored = plan.start.description.attributes;
    if (config.checkpoint.upcycling) {
      TRIREME_CHECK(!model::config_from(stored).experts.any(), CheckpointError,
                    "--moe-use-upcycling: the model in {} has experts: leave out this option, and give --finetune for "
                    "a new run",
                    config.checkpoint.load);
      TRIREME_CHECK(!model::config_from(stored).linear_bias, CheckpointError,
                    "--moe-use-upcycling: the model in {} has biases, which experts cannot have. Try a model that was "
                    "trained with --disable-bias-linear",
                    config.checkpoint.load);
      const train::Upcycling upcycling(plan.model, config.checkpoint.upcycling_granularity);
      require_same_model(stored, model::attributes_of(upcycling.dense_form()));
    } else {
      // The base of new adapters has none.
      model::ModelConfig before = plan.model;
      if (!model::config_from(stored).adapters.any()) before.adapters = {};
      require_same_model(stored, attributes_of(before));
    }
    keep_tokenizer(plan.start.description, false, plan);
    plan.pretrained = std::make_shared<OpenCheckpoint>(std::exchange(plan.start, {}));
  }
  TRIREME_CHECK(!plan.model.adapters.any() || plan.start.reader || plan.pretrained, ConfigError,
                "--lora-rank: adapters are trained beside the weights of a model: give --load of its checkpoint, with "
                "--finetune");
  std::vector<data::SampleBudget> earlier_budgets;
  if (plan.start.reader) {
    const Attributes& stored = plan.start.description.attributes;
    keep_tokenizer(plan.start.description, true, plan);
    settle_start(stored, config.checkpoint, plan);
    if (!config.checkpoint.allow_new_data) earlier_budgets = data::budgets_from(stored);
  }
  plan.iterations = config.batch.iterations(plan.done, job.grid.data_size());
  // Validation reads the samples of the iteration reached, even beyond the run's end.
  if (config.run.schedule.skip_training) plan.iterations = std::max(plan.iterations, plan.done.iteration);
  TRIREME_CHECK(plan.iterations > 0 || plan.done.iteration > 0 || !config.batch.train_samples, ConfigError,
                "--train-samples {} are fewer than the first batch has: give more, or a smaller --global-batch-size",
                *config.batch.train_samples);
  data::SampleBudget needed = data::samples_needed(config.run_length(plan.iterations));
  needed.train = training_samples(config, plan, job.grid.data_size());
  needed.test = test_samples(needed.test, config, plan);
  if (plan.own_splits && !has_others(plan, data::Split::valid)) needed.valid = 0;
  const std::vector<data::SampleBudget> budgets = data::extend_budgets(earlier_budgets, needed);
  std::visit([&](auto& options) { options.budgets = budgets; }, plan.samples);
  plan.attributes.merge(attributes_of(budgets));
  return plan;
}

std::int64_t training_samples(const RunConfig& config, const TrainPlan& plan, int data_ranks) {
  const std::int64_t needed = data::samples_needed(config.run_length(plan.iterations)).train;
  if (config.batch.train_samples || plan.iterations <= plan.done.iteration) return needed;
  const train::BatchSchedule batches = config.batch.batches(data_ranks);
  const std::int64_t consumed = plan.done.consumed_samples;
  return std::max(needed, consumed + batches.samples(consumed, plan.iterations - plan.done.iteration));
}

data::SampleSplits make_data(Communicator& world, const TrainPlan& plan, const std::string& cache_path) {
  io::IndexFiles cache(cache_path);
  SampleOptions samples = plan.samples;
  // Without its own folder the cache is beside the corpora, but synthetic corpora are not files.
  const bool keeps =
      !cache_path.empty() || dynamic_cast<const data::MockStore*>(plan.stores.front().store.get()) == nullptr;
  std::visit([&](auto& options) { options.cache = keeps ? &cache : nullptr; }, samples);
  data::SampleSplits data;
  const auto make_where = [&](bool here) {
    collectively(world, [&] {
      if (here) data = make_all_samples(plan, samples);
    });
  };
  make_where(world.rank() == 0);
  if (world.size() > 1) make_where(world.rank() != 0);
  return data;
}

}  // namespace trireme::app
