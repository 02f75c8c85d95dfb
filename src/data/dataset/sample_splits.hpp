#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/base/attributes.hpp"
#include "src/data/dataset/sample_source.hpp"
#include "src/data/dataset/sampler.hpp"
#include "src/data/dataset/split.hpp"
#include "src/data/dataset/token_store.hpp"

namespace trireme::data {

/// A corpus and its weight in a blend; ignored for a single corpus.
struct WeightedStore {
  std::shared_ptr<const TokenStore> store;
  double weight = 1;
};

/// Samples of a validation set that is evaluated separately.
struct ValidationSet {
  std::string name;
  std::unique_ptr<SampleSource> samples;
};

/// The three splits; null if no budget needs samples.
struct SampleSplits {
  std::unique_ptr<SampleSource> train, valid, test;
  std::vector<ValidationSet> valid_sets = {};  ///< besides `valid`
};

/// Makes the samples of one corpus in `split`, at least as many as the greatest of `budgets`.
using MakeSource = std::function<std::unique_ptr<SampleSource>(const std::shared_ptr<const TokenStore>& store,
                                                               Split split, const std::vector<std::int64_t>& budgets)>;

/// Makes the splits of one corpus or of a blend of several, in which a corpus provides 0.5 % more samples than its
/// share. `budgets` are those of SampleBudget's, oldest first. Throws ConfigError for invalid weights.
SampleSplits make_splits(const std::vector<WeightedStore>& stores, const std::vector<SampleBudget>& budgets,
                         const MakeSource& make_source);

/// Checks that there is a corpus. Throws ConfigError.
void check_has_corpus(const std::vector<WeightedStore>& stores);
/// Checks that NumPy's generator accepts `seed`. Throws ConfigError.
void check_seed(std::int64_t seed);
/// Checks that all corpora share one tokenizer and their ids fit `vocabulary_size`; 0: their own size. Throws
/// DataError.
void check_vocabularies(const std::vector<WeightedStore>& stores, std::int64_t vocabulary_size);

/// Digests of corpora and, of several, their weights: "DIGEST" or "DIGEST*0.7 DIGEST*0.3".
std::string content_of(const std::vector<WeightedStore>& stores);

/// Attributes "data.*" that the order of any model's samples depends on.
Attributes attributes_of_splits(const std::vector<WeightedStore>& stores, std::int64_t seed,
                                std::int64_t sequence_length, const std::array<double, 3>& split_fractions,
                                SplitBy split_by);

}  // namespace trireme::data
