#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "src/base/attributes.hpp"
#include "src/data/dataset/bert/bert_samples.hpp"
#include "src/data/dataset/index_cache.hpp"
#include "src/data/dataset/sample_splits.hpp"
#include "src/data/dataset/sampler.hpp"
#include "src/data/dataset/split.hpp"

namespace trireme::data {

struct BertDataOptions {
  BertSampleOptions samples;                                   ///< its vocabulary is that of the corpora
  std::array<double, 3> split_fractions{0.969, 0.030, 0.001};  ///< see parse_split
  SplitBy split_by = SplitBy::automatic;
  std::int64_t vocabulary_size = 0;   ///< vocabulary of the model; 0 for the corpora's own
  std::vector<SampleBudget> budgets;  ///< as those of GptDataOptions
  IndexCache* cache = nullptr;        ///< keeps the maps of samples for other ranks and runs; used while they are made
};

/// Returns whether every corpus has a document in `split` that gives a sample. Throws DataError for a corpus without
/// sentences.
bool has_samples(const std::vector<WeightedStore>& stores, const BertDataOptions& options, Split split);

/// BERT's training, validation and test samples of one corpus or a blend of several, as `make_gpt_data` makes GPT's.
/// Splits by tokens leave sentences whole. Throws ConfigError for options and weights that cannot work. Throws
/// DataError for corpora of different tokenizers or without sentences, and where a split that is needed gives no
/// sample.
SampleSplits make_bert_data(const std::vector<WeightedStore>& stores, const BertDataOptions& options);

/// Attributes "data.*" of a checkpoint: all that the samples depend on, beside their budgets.
Attributes attributes_of(const std::vector<WeightedStore>& stores, const BertDataOptions& options);

}  // namespace trireme::data
