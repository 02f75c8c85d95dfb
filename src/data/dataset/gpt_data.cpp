#include "src/data/dataset/gpt_data.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/base/check.hpp"
#include "src/data/dataset/blend.hpp"
#include "src/data/dataset/gpt_samples.hpp"

namespace trireme::data {
namespace {

constexpr Choice<Sampling> sampling_names[] = {{"shuffled", Sampling::shuffled}, {"sequential", Sampling::sequential}};

const char* name_of(SplitBy by) {
  return by == SplitBy::automatic ? "auto" : by == SplitBy::documents ? "documents" : "tokens";
}

void check_options(const std::vector<WeightedStore>& stores, const GptDataOptions& options) {
  TRIREME_CHECK(!stores.empty(), ConfigError, "<data_path> names no corpus");
  TRIREME_CHECK(options.sequence_length > 0, ConfigError, "<seq_length> {} must be at least 1",
                options.sequence_length);
  TRIREME_CHECK(options.seed >= 0 && options.seed <= UINT32_MAX, ConfigError,
                "<seed> {} must be from 0 to {}, as NumPy's generator requires, which shuffles the samples",
                options.seed, UINT32_MAX);
  TRIREME_CHECK(options.sampling == Sampling::shuffled || stores.size() == 1, ConfigError,
                "<sampling> sequential reads one corpus, but <data_path> names {}", stores.size());
}

void check_stores(const std::vector<WeightedStore>& stores, const GptDataOptions& options) {
  const TokenStore& first = *stores.front().store;
  for (const WeightedStore& weighted : stores) {
    const TokenStore& store = *weighted.store;
    TRIREME_CHECK(
        store.info().tokenizer_digest == first.info().tokenizer_digest, DataError,
        "{} was made by tokenizer {} ({}), {} by {} ({}): their ids mean different things. Build them with the "
        "same tokenizer",
        first.name(), first.info().tokenizer, first.info().tokenizer_digest, store.name(), store.info().tokenizer,
        store.info().tokenizer_digest);
    const std::int64_t vocabulary =
        options.vocabulary_size > 0 ? options.vocabulary_size : store.info().vocabulary_size;
    TRIREME_CHECK(store.info().max_id < vocabulary, DataError,
                  "{} holds token {}, but the vocabulary has {} ids, 0 to {}", store.name(), store.info().max_id,
                  vocabulary, vocabulary - 1);
  }
}

class Builder {
 public:
  Builder(const std::vector<WeightedStore>& stores, const GptDataOptions& options)
      : stores_(stores), options_(options) {
    if (stores.size() == 1) return;
    std::vector<double> weights;
    for (const WeightedStore& store : stores) weights.push_back(store.weight);
    weights_ = normalized_weights(weights);
  }

  std::unique_ptr<SampleSource> build(Split split, std::int64_t SampleBudget::*member) const {
    std::vector<std::int64_t> budgets;
    for (const SampleBudget& budget : options_.budgets) {
      TRIREME_CHECK(budget.*member >= 0, ConfigError, "{} {} samples are asked for; 0 is the least", budget.*member,
                    name_of(split));
      budgets.push_back(budget.*member);
    }
    const std::int64_t need = budgets.empty() ? 0 : *std::max_element(budgets.begin(), budgets.end());
    if (need == 0) return nullptr;
    if (stores_.size() == 1) return build_one(stores_.front(), split, budgets);

    BlendOrder order(weights_, need);
    std::vector<std::unique_ptr<SampleSource>> sources;
    for (std::size_t i = 0; i < stores_.size(); ++i) {
      std::vector<std::int64_t> child_budgets;
      for (const std::int64_t budget : budgets) {
        // The surplus is Megatron-LM's. Where it does not reach, because there are few samples and many corpora,
        // Megatron-LM fails and this takes what the blend reads.
        const auto child_budget =
            static_cast<std::int64_t>(std::ceil(static_cast<double>(budget) * weights_[i] * 1.005));
        child_budgets.push_back(std::max(child_budget, order.counts(budget)[i]));
      }
      sources.push_back(build_one(stores_[i], split, child_budgets));
    }
    return std::make_unique<BlendedSamples>(std::move(order), std::move(sources));
  }

 private:
  std::unique_ptr<SampleSource> build_one(const WeightedStore& weighted, Split split,
                                          const std::vector<std::int64_t>& budgets) const {
    const TokenStore& store = *weighted.store;
    const std::int64_t length = options_.sequence_length;
    const std::int64_t vocabulary =
        options_.vocabulary_size > 0 ? options_.vocabulary_size : store.info().vocabulary_size;
    CheckedTokens tokens(weighted.store, vocabulary);
    if (options_.sampling == Sampling::sequential) {
      auto source = std::make_unique<SequentialSamples>(std::move(tokens), length);
      const std::int64_t need = *std::max_element(budgets.begin(), budgets.end());
      TRIREME_CHECK(need <= source->size(), DataError,
                    "<sampling> sequential: {} {} samples of <seq_length> {} are needed, but {} has {} tokens, enough "
                    "for {}. Try "
                    "fewer iterations, or <sampling> shuffled",
                    need, name_of(split), length, store.name(), store.token_count(), source->size());
      return source;
    }
    const DocumentRange range = documents_of(store, split, options_.split_fractions, options_.split_by);
    TRIREME_CHECK(range.tokens() > length, DataError,
                  "the {} split of {} has {} tokens in {} documents (of {} in {}), but one sample of <seq_length> {} "
                  "takes {}. Try "
                  "another <split>, <split_by> tokens, a shorter <seq_length> or more text",
                  name_of(split), store.name(), range.tokens(), range.documents, store.token_count(), store.documents(),
                  length, length + 1);
    return std::make_unique<ShuffledSamples>(std::move(tokens), range, length, budgets,
                                             static_cast<std::uint32_t>(options_.seed), options_.cache);
  }

  const std::vector<WeightedStore>& stores_;
  const GptDataOptions& options_;
  std::vector<double> weights_;
};

}  // namespace

std::vector<SampleBudget> extend_budgets(std::vector<SampleBudget> earlier, const SampleBudget& now) {
  SampleBudget max_budget;
  for (const SampleBudget& budget : earlier) {
    max_budget.train = std::max(max_budget.train, budget.train);
    max_budget.valid = std::max(max_budget.valid, budget.valid);
    max_budget.test = std::max(max_budget.test, budget.test);
  }
  if (now.train > max_budget.train || now.valid > max_budget.valid || now.test > max_budget.test)
    earlier.push_back(now);
  return earlier;
}

bool has_samples(const std::vector<WeightedStore>& stores, const GptDataOptions& options, Split split) {
  return std::ranges::all_of(stores, [&](const WeightedStore& weighted) {
    const DocumentRange range = documents_of(*weighted.store, split, options.split_fractions, options.split_by);
    return range.tokens() > options.sequence_length;
  });
}

GptData make_gpt_data(const std::vector<WeightedStore>& stores, const GptDataOptions& options) {
  check_options(stores, options);
  check_stores(stores, options);
  const Builder builder(stores, options);
  return {builder.build(Split::train, &SampleBudget::train), builder.build(Split::valid, &SampleBudget::valid),
          builder.build(Split::test, &SampleBudget::test)};
}

Attributes attributes_of(const std::vector<WeightedStore>& stores, const GptDataOptions& options) {
  std::string corpora;
  for (const WeightedStore& store : stores) {
    corpora += (corpora.empty() ? "" : " ") + store.store->info().content_digest;
    if (stores.size() > 1) corpora += fmt::format("*{:.17g}", store.weight);
  }
  const auto& [train, valid, test] = options.split_fractions;
  Attributes attributes;
  attributes.put("data.corpora", corpora);
  attributes.put("data.tokenizer", stores.front().store->info().tokenizer_digest);
  attributes.put("data.seed", options.seed);
  attributes.put("data.sequence_length", options.sequence_length);
  attributes.put("data.sampling", options.sampling, sampling_names);
  attributes.put("data.split",
                 fmt::format("{:.17g},{:.17g},{:.17g} by {}", train, valid, test, name_of(options.split_by)));
  return attributes;
}

std::int64_t sequence_length_from(const Attributes& attributes) {
  return attributes.get("data.sequence_length", std::int64_t{1});
}

}  // namespace trireme::data
