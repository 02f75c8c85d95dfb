#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/base/attributes.hpp"
#include "src/data/dataset/bert/bert_sample.hpp"
#include "src/data/dataset/bert/bert_sample_map.hpp"
#include "src/data/dataset/index_cache.hpp"
#include "src/data/dataset/sample_source.hpp"
#include "src/data/dataset/sample_splits.hpp"
#include "src/data/dataset/split.hpp"

namespace trireme::data {

struct BertSampleOptions {
  std::int64_t sequence_length = 0;         ///< at least 5
  std::int64_t seed = 1234;                 ///< 0 to 2^32 - 1, as NumPy takes it
  double short_sequence_probability = 0.1;  ///< 0 to 1
  BertMaskingOptions masking;
  std::int64_t max_epochs = BertSampleMapOptions::no_limit;  ///< limit of a map, regardless of the budget
};

/// Throws ConfigError for an option out of its range.
void validate(const BertSampleOptions& options);

/// Returns whether samples have masked tokens. Short ones may have none, as in Megatron-LM.
bool masks_tokens(std::int64_t sequence_length, double mask_probability);

/// Returns the number of tokens that a sample masks at most; at least 1.
std::int64_t max_predictions(std::int64_t sequence_length, double mask_probability);

/// BERT's pretraining samples of a range of documents, in Megatron-LM's order. Sample `i` is drawn by NumPy's generator
/// of seed + i.
///
/// `budgets` are the samples needed so far, oldest first: as with ShuffledSamples, a later budget that the map does not
/// cover adds another map, of seed + 1, seed + 2 ..., and does not change the samples before it.
class BertSamples final : public SampleSource {
 public:
  /// Throws ConfigError for options out of range. Throws DataError if the corpus has no sentences, or no document of
  /// the range yields a sample.
  BertSamples(std::shared_ptr<const TokenStore> store, const DocumentRange& range, BertSampleOptions options,
              std::span<const std::int64_t> budgets, IndexCache* cache = nullptr);

  std::int64_t size() const override { return firsts_.back(); }
  std::int64_t sequence_length() const override { return options_.sequence_length; }
  SampleFields fields() const override;
  /// Fills tokens after the sample with [PAD], their types with 0 and their labels with -1.
  void read(std::int64_t index, const SampleView& sample) const override;
  void check_unchanged() const override { store_->check_unchanged(); }

  /// Sample `index` before its padding. Throws DataError for an index out of range.
  BertSample make(std::int64_t index) const;

 private:
  std::int64_t max_target_length() const;

  std::shared_ptr<const TokenStore> store_;
  BertSampleOptions options_;
  std::vector<BertSampleMap> maps_;
  std::vector<std::int64_t> firsts_{0};  // sample of each map, and one past the last
};

struct BertDataOptions {
  BertSampleOptions samples;                                   ///< its vocabulary is that of the corpora
  std::array<double, 3> split_fractions{0.969, 0.030, 0.001};  ///< see parse_split
  SplitBy split_by = SplitBy::automatic;
  std::int64_t vocabulary_size = 0;           ///< the model's vocabulary; 0: that of the corpora
  std::vector<SampleBudget> budgets;          ///< as those of GptDataOptions
  std::vector<BlendStage> later_stages = {};  ///< as those of GptDataOptions
  IndexCache* cache = nullptr;                ///< caches sample maps for other ranks and runs; used during construction
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
