#include "src/data/dataset/gpt_data.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/base/check.hpp"
#include "src/data/dataset/gpt/packed_samples.hpp"

namespace trireme::data {
namespace {

constexpr Choice<Sampling> sampling_names[] = {
    {"shuffled", Sampling::shuffled}, {"cyclic", Sampling::cyclic}, {"sequential", Sampling::sequential}};

void check_options(const std::vector<WeightedStore>& stores, const GptDataOptions& options) {
  check_has_corpus(stores);
  check_seed(options.seed);
  TRIREME_CHECK(options.sequence_length > 0, ConfigError, "<seq_length> {} must be at least 1",
                options.sequence_length);
  TRIREME_CHECK(options.sampling != Sampling::sequential || stores.size() == 1, ConfigError,
                "<sampling> sequential reads one corpus, but <data_path> names {}", stores.size());
}

/// Samples whose positions, or attention, go on from one document to the next.
class JoinedDocuments final : public SampleSource {
 public:
  JoinedDocuments(std::unique_ptr<SampleSource> samples, bool joins_positions, bool joins_attention)
      : samples_(std::move(samples)), joins_positions_(joins_positions), joins_attention_(joins_attention) {}
  std::int64_t size() const override { return samples_->size(); }
  std::int64_t sequence_length() const override { return samples_->sequence_length(); }
  SampleFields fields() const override { return samples_->fields(); }
  void read(std::int64_t index, const SampleView& sample) const override {
    samples_->read(index, sample);
    if (joins_positions_) std::iota(sample.positions.begin(), sample.positions.end(), 0);
    if (joins_attention_) std::ranges::fill(sample.first_visible, 0);
  }
  void check_unchanged() const override { samples_->check_unchanged(); }

 private:
  std::unique_ptr<SampleSource> samples_;
  bool joins_positions_, joins_attention_;
};

std::unique_ptr<NextTokenSamples> make_source(const std::shared_ptr<const TokenStore>& shared, Split split,
                                              const std::vector<std::int64_t>& budgets, const GptDataOptions& options) {
  const TokenStore& store = *shared;
  const std::int64_t length = options.sequence_length;
  const std::int64_t vocabulary = options.vocabulary_size > 0 ? options.vocabulary_size : store.info().vocabulary_size;
  CheckedTokens tokens(shared, vocabulary);
  const std::int64_t need = *std::max_element(budgets.begin(), budgets.end());
  if (options.sampling == Sampling::sequential) {
    auto source =
        std::make_unique<SequentialSamples>(std::move(tokens), length, Remainder::dropped, options.document_ends);
    TRIREME_CHECK(need <= source->size(), DataError,
                  "<sampling> sequential: {} {} samples of <seq_length> {} are needed, but {} has {} tokens, enough "
                  "for {}. Try "
                  "fewer iterations, or <sampling> shuffled",
                  need, name_of(split), length, store.name(), store.token_count(), source->size());
    return source;
  }
  const DocumentRange range = documents_of(store, split, options.split_fractions, options.split_by);
  if (store.learned_ranges()) {
    return std::make_unique<CyclicSamples>(
        std::make_unique<PackedSamples>(std::move(tokens), range, length, static_cast<std::uint32_t>(options.seed)),
        need);
  }
  TRIREME_CHECK(range.tokens() > length, DataError,
                "the {} split of {} has {} tokens in {} documents (of {} in {}), but one sample of <seq_length> {} "
                "takes {}. Try "
                "another <split>, <split_by> tokens, a shorter <seq_length> or more text",
                name_of(split), store.name(), range.tokens(), range.documents, store.token_count(), store.documents(),
                length, length + 1);
  const bool is_cyclic = options.sampling == Sampling::cyclic;
  const std::vector<std::int64_t> one_epoch = {1};
  auto source =
      std::make_unique<ShuffledSamples>(std::move(tokens), range, length, is_cyclic ? one_epoch : budgets,
                                        static_cast<std::uint32_t>(options.seed), options.cache, options.document_ends);
  if (!is_cyclic) return source;
  return std::make_unique<CyclicSamples>(std::move(source), need, options.document_ends);
}

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
    if (stores.size() > 1 && weighted.weight == 0) return true;  // belongs to a later stage
    const DocumentRange range = documents_of(*weighted.store, split, options.split_fractions, options.split_by);
    if (!weighted.store->learned_ranges()) return range.tokens() > options.sequence_length;
    return !packable_documents(*weighted.store, range, options.sequence_length).empty();
  });
}

SampleSplits make_gpt_data(const std::vector<WeightedStore>& stores, const GptDataOptions& options) {
  check_options(stores, options);
  check_vocabularies(stores, options.vocabulary_size);
  for (const WeightedStore& weighted : stores) {
    TRIREME_CHECK(!options.fim || !weighted.store->learned_ranges(), ConfigError,
                  "<fim_rate> rearranges text, but {} holds conversations. Leave it out", weighted.store->name());
  }
  return make_splits(
      stores, options.later_stages, options.budgets,
      [&](const std::shared_ptr<const TokenStore>& store, Split split,
          const std::vector<std::int64_t>& budgets) -> std::unique_ptr<SampleSource> {
        std::unique_ptr<NextTokenSamples> source = make_source(store, split, budgets, options);
        if (options.fim) {
          source = std::make_unique<FimSamples>(std::move(source), *options.fim, options.seed, options.document_ends);
        }
        const bool is_apart = options.conversations_apart && store->learned_ranges();
        if (is_apart || (options.reset_positions && options.reset_attention)) return source;
        return std::make_unique<JoinedDocuments>(std::move(source), !options.reset_positions, !options.reset_attention);
      });
}

Attributes attributes_of(const std::vector<WeightedStore>& stores, const GptDataOptions& options) {
  Attributes attributes = attributes_of_splits(stores, options.later_stages, options.seed, options.sequence_length,
                                               options.split_fractions, options.split_by);
  attributes.put("data.sampling", options.sampling, sampling_names);
  if (options.fim) attributes.merge(attributes_of(*options.fim));
  return attributes;
}

std::int64_t sequence_length_from(const Attributes& attributes) {
  return attributes.get("data.sequence_length", std::int64_t{1});
}

}  // namespace trireme::data
