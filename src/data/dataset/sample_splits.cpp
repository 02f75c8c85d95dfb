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

/// Samples of several sources in the order of a blend, with the fields of the first source.
class BlendedSamples final : public SampleSource {
 public:
  /// `sources[i]` has at least order.counts(order.size())[i] samples. All have one length and the same fields.
  BlendedSamples(BlendOrder order, std::vector<std::unique_ptr<SampleSource>> sources)
      : order_(std::move(order)), sources_(std::move(sources)) {}
  std::int64_t size() const override { return order_.size(); }
  std::int64_t sequence_length() const override { return sources_.front()->sequence_length(); }
  SampleFields fields() const override { return sources_.front()->fields(); }
  void read(std::int64_t index, const SampleView& sample) const override {
    TRIREME_CHECK(index >= 0 && index < size(), DataError, "reading sample {} failed: there are {}", index, size());
    const auto [source, source_index] = order_.at(index);
    sources_[source]->read(source_index, sample);
  }
  void check_unchanged() const override {
    for (const auto& source : sources_) source->check_unchanged();
  }

 private:
  BlendOrder order_;
  std::vector<std::unique_ptr<SampleSource>> sources_;
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

BlendOrder::BlendOrder(std::vector<double> weights, std::int64_t samples)
    : weights_(std::move(weights)), size_(samples) {
  std::vector<std::int64_t> counts(weights_.size());
  for (std::int64_t k = 0; k < size_; ++k) {
    if (k % block_samples == 0) block_counts_.insert(block_counts_.end(), counts.begin(), counts.end());
    ++counts[choose(k, counts)];
  }
  block_counts_.insert(block_counts_.end(), counts.begin(), counts.end());
}

std::size_t BlendOrder::choose(std::int64_t k, std::span<const std::int64_t> counts) const {
  const auto wanted = static_cast<double>(std::max<std::int64_t>(k, 1));
  const auto deficit = [&](std::size_t i) { return weights_[i] * wanted - static_cast<double>(counts[i]); };
  std::size_t best = 0;
  double max_deficit = deficit(0);
  for (std::size_t i = 1; i < weights_.size(); ++i) {
    if (const double value = deficit(i); value > max_deficit) {
      best = i;
      max_deficit = value;
    }
  }
  return best;
}

std::vector<std::int64_t> BlendOrder::counts(std::int64_t k) const {
  const auto block = block_counts_.begin() + k / block_samples * static_cast<std::int64_t>(weights_.size());
  std::vector<std::int64_t> counts(block, block + static_cast<std::int64_t>(weights_.size()));
  for (std::int64_t i = k / block_samples * block_samples; i < k; ++i) ++counts[choose(i, counts)];
  return counts;
}

std::pair<std::size_t, std::int64_t> BlendOrder::at(std::int64_t k) const {
  const std::vector<std::int64_t> before = counts(k);
  const std::size_t corpus = choose(k, before);
  return {corpus, before[corpus]};
}

SampleSplits make_splits(const std::vector<WeightedStore>& stores, const std::vector<SampleBudget>& run_budgets,
                         const MakeSource& make_source) {
  std::vector<double> weights;
  for (const WeightedStore& store : stores) weights.push_back(store.weight);
  if (stores.size() > 1) weights = normalized_weights(weights);
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

    BlendOrder order(weights, need);
    std::vector<std::unique_ptr<SampleSource>> sources;
    for (std::size_t i = 0; i < stores.size(); ++i) {
      std::vector<std::int64_t> child_budgets;
      for (const std::int64_t budget : budgets) {
        // The surplus is Megatron-LM's. If it is insufficient, with few samples and many corpora, Megatron-LM fails;
        // this takes what the blend reads.
        const auto child_budget =
            static_cast<std::int64_t>(std::ceil(static_cast<double>(budget) * weights[i] * 1.005));
        child_budgets.push_back(std::max(child_budget, order.counts(budget)[i]));
      }
      sources.push_back(make_source(stores[i].store, split, child_budgets));
    }
    return std::make_unique<BlendedSamples>(std::move(order), std::move(sources));
  };
  return {make(Split::train, &SampleBudget::train), make(Split::valid, &SampleBudget::valid),
          make(Split::test, &SampleBudget::test)};
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

Attributes attributes_of_splits(const std::vector<WeightedStore>& stores, std::int64_t seed,
                                std::int64_t sequence_length, const std::array<double, 3>& split_fractions,
                                SplitBy split_by) {
  const auto& [train, valid, test] = split_fractions;
  Attributes attributes;
  attributes.put("data.corpora", content_of(stores));
  attributes.put("data.tokenizer", stores.front().store->info().tokenizer_digest);
  attributes.put("data.seed", seed);
  attributes.put("data.sequence_length", sequence_length);
  attributes.put("data.split", fmt::format("{:.17g},{:.17g},{:.17g} by {}", train, valid, test, name_of(split_by)));
  return attributes;
}

}  // namespace trireme::data
