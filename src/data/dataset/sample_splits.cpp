#include "src/data/dataset/sample_splits.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/base/check.hpp"
#include "src/base/parse_number.hpp"
#include "src/base/text.hpp"

namespace trireme::data {
namespace {

constexpr const char* budgets_name = "data_budgets";

/// Returns whether `text` is three integers separated by commas.
bool parse(std::string_view text, SampleBudget& budget) {
  const std::vector<std::string_view> numbers = split(text, ',');
  if (numbers.size() != 3 || text.ends_with(',')) return false;
  const auto number = [&](std::size_t i) { return parse_number<std::int64_t>(numbers[i]).value_or(-1); };
  budget = {number(0), number(1), number(2)};
  return budget.train >= 0 && budget.valid >= 0 && budget.test >= 0;
}

// Only the counts before each block are kept; a read recomputes the choices within its block. This takes a few
// microseconds per sample, and a hundredth of the memory of storing every choice.
constexpr std::int64_t block_samples = 128;

const char* name_of(SplitBy by) {
  return by == SplitBy::automatic ? "auto" : by == SplitBy::documents ? "documents" : "tokens";
}

/// Samples of several sources in the order of a blend, with the fields that all of them have.
class BlendedSamples final : public SampleSource {
 public:
  /// `sources[i]` has at least order.counts(order.size())[i] samples; null: none. All have one length and the same
  /// fields.
  BlendedSamples(std::shared_ptr<const BlendOrder> order, std::vector<std::unique_ptr<SampleSource>> sources)
      : order_(std::move(order)), sources_(std::move(sources)), any_(sources_[order_->at(0).first].get()) {}
  std::int64_t size() const override { return order_->size(); }
  std::int64_t sequence_length() const override { return any_->sequence_length(); }
  SampleFields fields() const override { return any_->fields(); }
  void read(std::int64_t index, const SampleView& sample) const override {
    TRIREME_CHECK(index >= 0 && index < size(), DataError, "reading sample {} failed: there are {}", index, size());
    const auto [source, source_index] = order_->at(index);
    sources_[source]->read(source_index, sample);
  }
  void check_unchanged() const override {
    for (const auto& source : sources_) {
      if (source) source->check_unchanged();
    }
  }

 private:
  std::shared_ptr<const BlendOrder> order_;
  std::vector<std::unique_ptr<SampleSource>> sources_;
  const SampleSource* any_;
};

}  // namespace

SampleBudget samples_needed(const RunLength& run) {
  TRIREME_CHECK(
      run.train_iters >= 0 && run.global_batch_size > 0 && run.eval_interval > 0 && run.eval_iters >= 0, ConfigError,
      "<train_iters> {} and <eval_iters> {} must not be negative, <global_batch_size> {} and <eval_interval> {} "
      "must be at least 1",
      run.train_iters, run.eval_iters, run.global_batch_size, run.eval_interval);
  SampleBudget budget;
  std::int64_t evaluations = 0;
  const bool overflow = __builtin_add_overflow(run.train_iters / run.eval_interval, 1, &evaluations) ||
                        __builtin_mul_overflow(run.train_iters, run.global_batch_size, &budget.train) ||
                        __builtin_mul_overflow(run.eval_iters, run.global_batch_size, &budget.test) ||
                        __builtin_mul_overflow(evaluations, budget.test, &budget.valid);
  TRIREME_CHECK(!overflow, ConfigError,
                "{} iterations of {} samples, evaluated for {} iterations, are more samples than can be counted",
                run.train_iters, run.global_batch_size, run.eval_iters);
  if (run.train_samples > 0) budget.train = run.train_samples;
  return budget;
}

Attributes attributes_of(const std::vector<SampleBudget>& budgets) {
  std::string text;
  for (const SampleBudget& budget : budgets) {
    text += fmt::format("{}{},{},{}", text.empty() ? "" : ";", budget.train, budget.valid, budget.test);
  }
  return {{budgets_name, text}};
}

std::vector<SampleBudget> budgets_from(const Attributes& attributes) {
  std::vector<SampleBudget> budgets;
  const auto text = attributes.get<std::string>(budgets_name);
  for (const std::string_view entry : split(text, ';')) {
    attributes.require(parse(entry, budgets.emplace_back()), budgets_name,
                       "three whole numbers TRAIN,VALID,TEST a budget, with ; between budgets");
  }
  return budgets;
}

std::vector<double> normalized_weights(std::span<const double> weights) {
  double sum = 0;
  for (const double weight : weights) {
    TRIREME_CHECK(std::isfinite(weight) && weight > 0, ConfigError,
                  "a corpus of <data_path> has weight {}; weights must be positive numbers", weight);
    sum += weight;
  }
  TRIREME_CHECK(std::isfinite(sum), ConfigError,
                "the weights of <data_path> add up to more than {:.1e}. Try fractions, such as 0.7 and 0.3",
                std::numeric_limits<double>::max());
  std::vector<double> normalized;
  for (const double weight : weights) {
    normalized.push_back(weight / sum);
    TRIREME_CHECK(normalized.back() > 0, ConfigError, "a corpus of <data_path> has weight {} of {}, too small to count",
                  weight, sum);
  }
  return normalized;
}

std::vector<BlendStage> blend_stages(const std::vector<WeightedStore>& stores, const std::vector<BlendStage>& later) {
  std::vector<BlendStage> stages(1);
  for (const WeightedStore& store : stores) stages.front().weights.push_back(store.weight);
  for (const BlendStage& stage : later) {
    TRIREME_CHECK(stage.first_sample > stages.back().first_sample, ConfigError,
                  "<blend>: a stage begins at sample {}, not after sample {}, where the one before it begins",
                  stage.first_sample, stages.back().first_sample);
    stages.push_back(stage);
  }
  const bool is_blend = stores.size() > 1;
  for (BlendStage& stage : stages) {
    std::vector<double> used;
    std::ranges::copy_if(stage.weights, std::back_inserter(used), [](double weight) { return weight != 0; });
    TRIREME_CHECK(!used.empty() || !is_blend, ConfigError, "all weights of <data_path> are 0");
    if (is_blend) used = normalized_weights(used);
    auto next = used.begin();
    for (double& weight : stage.weights) weight = !is_blend ? 1 : weight == 0 ? 0 : *next++;
  }
  return stages;
}

BlendOrder::BlendOrder(std::vector<BlendStage> stages, std::int64_t samples)
    : stages_(std::move(stages)), size_(samples) {
  std::vector<std::int64_t> counts(stages_.front().weights.size());
  for (std::int64_t k = 0; k < size_; ++k) {
    if (k % block_samples == 0) block_counts_.insert(block_counts_.end(), counts.begin(), counts.end());
    const std::size_t next = stage_counts_.size();
    if (next < stages_.size() && stages_[next].first_sample == k) stage_counts_.push_back(counts);
    ++counts[choose(stage_counts_.size() - 1, k, counts)];
  }
  block_counts_.insert(block_counts_.end(), counts.begin(), counts.end());
}

std::size_t BlendOrder::stage_of(std::int64_t k) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(stages_, k, {}, &BlendStage::first_sample) -
                                  stages_.begin()) -
         1;
}

std::size_t BlendOrder::choose(std::size_t stage, std::int64_t k, std::span<const std::int64_t> counts) const {
  const auto& [first_sample, weights] = stages_[stage];
  const std::vector<std::int64_t>& before = stage_counts_[stage];
  const auto wanted = static_cast<double>(std::max<std::int64_t>(k - first_sample, 1));
  std::size_t best = 0;
  double max_deficit = -std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    const double deficit = weights[i] * wanted - static_cast<double>(counts[i] - before[i]);
    if (deficit > max_deficit) {
      best = i;
      max_deficit = deficit;
    }
  }
  return best;
}

std::vector<std::int64_t> BlendOrder::counts(std::int64_t k) const {
  const auto corpora = static_cast<std::int64_t>(stages_.front().weights.size());
  const auto block = block_counts_.begin() + k / block_samples * corpora;
  std::vector<std::int64_t> counts(block, block + corpora);
  for (std::int64_t i = k / block_samples * block_samples; i < k; ++i) ++counts[choose(stage_of(i), i, counts)];
  return counts;
}

std::pair<std::size_t, std::int64_t> BlendOrder::at(std::int64_t k) const {
  const std::vector<std::int64_t> before = counts(k);
  const std::size_t corpus = choose(stage_of(k), k, before);
  return {corpus, before[corpus]};
}

namespace {

/// Returns the samples that a corpus of a blend provides to a run that reads `budget`.
std::int64_t budget_of(const BlendOrder& order, std::size_t corpus, std::int64_t budget) {
  const std::vector<BlendStage>& stages = order.stages();
  double share = 0;
  for (std::size_t s = 0; s < stages.size() && stages[s].first_sample < budget; ++s) {
    const std::int64_t end = s + 1 < stages.size() ? std::min(stages[s + 1].first_sample, budget) : budget;
    share += static_cast<double>(end - stages[s].first_sample) * stages[s].weights[corpus];
  }
  // The surplus is Megatron-LM's. If it is insufficient, with few samples and many corpora, Megatron-LM fails; this
  // takes what the blend reads.
  return std::max(static_cast<std::int64_t>(std::ceil(share * 1.005)), order.counts(budget)[corpus]);
}

}  // namespace

SampleSplits make_splits(const std::vector<WeightedStore>& stores, const std::vector<BlendStage>& later_stages,
                         const std::vector<SampleBudget>& run_budgets, const MakeSource& make_source) {
  std::vector<BlendStage> stages = blend_stages(stores, later_stages);
  SampleSplits splits;
  const auto make = [&](Split split, std::int64_t SampleBudget::*member) -> std::unique_ptr<SampleSource> {
    std::vector<std::int64_t> budgets;
    for (const SampleBudget& budget : run_budgets) {
      TRIREME_CHECK(budget.*member >= 0, ConfigError, "{} {} samples were requested; the minimum is 0", budget.*member,
                    name_of(split));
      budgets.push_back(budget.*member);
    }
    const std::int64_t need = budgets.empty() ? 0 : std::ranges::max(budgets);
    if (need == 0) return nullptr;
    if (stores.size() == 1) return make_source(stores.front().store, split, budgets);

    if (split != Split::train) stages.resize(1);
    const auto order = std::make_shared<const BlendOrder>(stages, need);
    if (split == Split::train) splits.blend = order;
    std::vector<std::unique_ptr<SampleSource>> sources;
    for (std::size_t i = 0; i < stores.size(); ++i) {
      std::vector<std::int64_t> own;
      for (const std::int64_t budget : budgets) own.push_back(budget_of(*order, i, budget));
      const bool is_read = std::ranges::max(own) > 0;
      sources.push_back(is_read ? make_source(stores[i].store, split, own) : nullptr);
    }
    return std::make_unique<BlendedSamples>(order, std::move(sources));
  };
  splits.train = make(Split::train, &SampleBudget::train);
  splits.valid = make(Split::valid, &SampleBudget::valid);
  splits.test = make(Split::test, &SampleBudget::test);
  return splits;
}

void check_has_corpus(const std::vector<WeightedStore>& stores) {
  TRIREME_CHECK(!stores.empty(), ConfigError, "<data_path> names no corpus");
}

void check_seed(std::int64_t seed) {
  TRIREME_CHECK(seed >= 0 && seed <= UINT32_MAX, ConfigError,
                "<seed> {} must be from 0 to {}, as NumPy's generator requires, which shuffles the samples", seed,
                UINT32_MAX);
}

void check_vocabularies(const std::vector<WeightedStore>& stores, std::int64_t vocabulary_size) {
  const TokenStore& first = *stores.front().store;
  for (const WeightedStore& weighted : stores) {
    const TokenStore& store = *weighted.store;
    TRIREME_CHECK(
        store.info().ids_digest == first.info().ids_digest, DataError,
        "{} was made by tokenizer {} ({}), {} by {} ({}): their ids mean different things. Build them with the "
        "same tokenizer",
        first.name(), first.info().tokenizer, first.info().ids_digest, store.name(), store.info().tokenizer,
        store.info().ids_digest);
    const std::int64_t vocabulary = vocabulary_size > 0 ? vocabulary_size : store.info().vocabulary_size;
    TRIREME_CHECK(store.info().max_id < vocabulary, DataError,
                  "{} holds token {}, but the vocabulary has {} ids, 0 to {}", store.name(), store.info().max_id,
                  vocabulary, vocabulary - 1);
  }
}

std::string content_of(const std::vector<WeightedStore>& stores) {
  std::string corpora;
  for (const WeightedStore& store : stores) {
    corpora += (corpora.empty() ? "" : " ") + store.store->info().content_digest;
    if (stores.size() > 1) corpora += fmt::format("*{:.17g}", store.weight);
  }
  return corpora;
}

Attributes attributes_of_splits(const std::vector<WeightedStore>& stores, const std::vector<BlendStage>& later_stages,
                                std::int64_t seed, std::int64_t sequence_length,
                                const std::array<double, 3>& split_fractions, SplitBy split_by) {
  const auto& [train, valid, test] = split_fractions;
  Attributes attributes;
  attributes.put("data.corpora", content_of(stores));
  std::string later;
  for (const BlendStage& stage : later_stages) {
    later += fmt::format("{}from {}:", later.empty() ? "" : ", ", stage.first_sample);
    for (const double weight : stage.weights) later += fmt::format(" {:.17g}", weight);
  }
  if (!later.empty()) attributes.put("data.stages", later);
  attributes.put("data.tokenizer", stores.front().store->info().tokenizer_digest);
  attributes.put("data.seed", seed);
  attributes.put("data.sequence_length", sequence_length);
  attributes.put("data.split", fmt::format("{:.17g},{:.17g},{:.17g} by {}", train, valid, test, name_of(split_by)));
  return attributes;
}

}  // namespace trireme::data
