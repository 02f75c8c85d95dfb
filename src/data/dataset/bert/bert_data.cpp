#include "src/data/dataset/bert/bert_data.hpp"

#include <algorithm>
#include <memory>

#include "src/base/check.hpp"

namespace trireme::data {
namespace {

void check_options(const std::vector<WeightedStore>& stores, const BertDataOptions& options) {
  check_has_corpus(stores);
  check_vocabularies(stores, options.vocabulary_size);
  const TokenStore& store = *stores.front().store;
  const std::int64_t size = options.samples.masking.vocabulary.size;
  TRIREME_CHECK(size == store.info().vocabulary_size, DataError,
                "the vocabulary has {} ids, but the tokenizer of {} has {}", size, store.name(),
                store.info().vocabulary_size);
  TRIREME_CHECK(options.vocabulary_size == 0 || options.vocabulary_size >= size, ConfigError,
                "<vocab_size> {} must be at least {}, the tokenizer's: masking draws tokens from all of them",
                options.vocabulary_size, size);
}

}  // namespace

bool has_samples(const std::vector<WeightedStore>& stores, const BertDataOptions& options, Split split) {
  return std::ranges::all_of(stores, [&](const WeightedStore& weighted) {
    const DocumentRange range = documents_of(*weighted.store, split, options.split_fractions, options.split_by);
    return has_bert_samples(*weighted.store, range, min_sentences_of(options.samples.masking));
  });
}

SampleSplits make_bert_data(const std::vector<WeightedStore>& stores, const BertDataOptions& options) {
  check_options(stores, options);
  return make_splits(
      stores, options.budgets,
      [&](const std::shared_ptr<const TokenStore>& store, Split split, const std::vector<std::int64_t>& budgets) {
        const DocumentRange range = documents_of(*store, split, options.split_fractions, options.split_by);
        return std::make_unique<BertSamples>(store, range, options.samples, budgets, options.cache);
      });
}

Attributes attributes_of(const std::vector<WeightedStore>& stores, const BertDataOptions& options) {
  const BertSampleOptions& samples = options.samples;
  Attributes attributes =
      attributes_of_splits(stores, samples.seed, samples.sequence_length, options.split_fractions, options.split_by);
  attributes.put("data.binary_head", samples.masking.binary_head);
  attributes.put("data.mask_probability", samples.masking.mask_probability);
  attributes.put("data.short_sequence_probability", samples.short_sequence_probability);
  return attributes;
}

}  // namespace trireme::data
