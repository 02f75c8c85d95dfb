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
  std::int64_t vocabulary_size = 0;   ///< the model's vocabulary; 0: that of the corpora
  std::vector<SampleBudget> budgets;  ///< as those of GptDataOptions
  IndexCache* cache = nullptr;        ///< caches sample maps for other ranks and runs; used during construction
};

/// Returns whether every corpus has a document in `split` that yields a sample. Throws DataError for a corpus without
/// sentences.
bool has_samples(const std::vector<WeightedStore>& stores, const BertDataOptions& options, Split split);

/// BERT's training, validation and test samples of one corpus or a blend of several, as `make_gpt_data` makes GPT's.
/// Splits by tokens do not divide sentences. Throws ConfigError for invalid options and weights. Throws DataError for
/// corpora of different tokenizers or without sentences, and if a needed split yields no sample.
SampleSplits make_bert_data(const std::vector<WeightedStore>& stores, const BertDataOptions& options);

/// Attributes "data.*" of a checkpoint: everything the samples depend on, except their budgets.
Attributes attributes_of(const std::vector<WeightedStore>& stores, const BertDataOptions& options);

}  // namespace trireme::data
