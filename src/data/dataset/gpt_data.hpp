#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "src/base/attributes.hpp"
#include "src/data/dataset/gpt/fim_samples.hpp"
#include "src/data/dataset/gpt_samples.hpp"
#include "src/data/dataset/index_cache.hpp"
#include "src/data/dataset/sample_source.hpp"
#include "src/data/dataset/sample_splits.hpp"
#include "src/data/dataset/split.hpp"
#include "src/data/dataset/token_store.hpp"

namespace trireme::data {

enum class Sampling {
  shuffled,   ///< Megatron-LM's order
  cyclic,     ///< that of Megatron-LM's cyclic data loader: see CyclicSamples
  sequential  ///< each split reads the one corpus from its start, whatever `split` says
};

struct GptDataOptions {
  std::int64_t sequence_length = 0;
  std::int64_t seed = 1234;                                    ///< 0 to 2^32 - 1, as NumPy takes it
  std::array<double, 3> split_fractions{0.969, 0.030, 0.001};  ///< see parse_split
  SplitBy split_by = SplitBy::automatic;
  Sampling sampling = Sampling::shuffled;
  DocumentEnds document_ends = DocumentEnds::labelled;
  /// Each document of a sample has its own positions, and attends to no other, where a reader asks for these fields.
  /// Otherwise they go on from one document to the next.
  bool reset_positions = true, reset_attention = true;
  bool conversations_apart = true;   ///< both hold for corpora with learned ranges, whatever the text's
  std::int64_t vocabulary_size = 0;  ///< the model's vocabulary; 0: that of the corpora
  /// Samples that the run needs, last; before it those of the runs that it resumes, oldest first (`extend_budgets`).
  /// Stored with a checkpoint they keep the order of the epochs that were begun; see ShuffledSamples.
  std::vector<SampleBudget> budgets;
  std::vector<BlendStage> later_stages = {};  ///< weights of a blend that change during training
  std::optional<FimOptions> fim = {};         ///< rearranges documents
  IndexCache* cache = nullptr;  ///< caches the sample order for other ranks and runs; used during construction
};

/// Returns the budgets to use and store: the checkpoint's `earlier` ones, and `now` unless they cover it.
std::vector<SampleBudget> extend_budgets(std::vector<SampleBudget> earlier, const SampleBudget& now);

/// Returns whether every corpus has enough text for one sample of `split`.
bool has_samples(const std::vector<WeightedStore>& stores, const GptDataOptions& options, Split split);

/// Training, validation and test samples of one corpus or a blend of several. A corpus with learned ranges has
/// `PackedSamples`, each epoch in another order as `CyclicSamples` read them, unless it is read sequentially. Each
/// split of each corpus is shuffled from the same seed; in a blend (see BlendOrder) a corpus is built for 0.5 % more
/// samples than its weight requires. Every source has at least the samples of the greatest budget. Throws ConfigError
/// for invalid options and weights. Throws DataError for corpora of different tokenizers, ids beyond the vocabulary, or
/// too few tokens for a needed split.
SampleSplits make_gpt_data(const std::vector<WeightedStore>& stores, const GptDataOptions& options);

/// Attributes "data.*" of a checkpoint: everything the sample order depends on, except its budgets. A resumed run
/// compares them with its own as text.
Attributes attributes_of(const std::vector<WeightedStore>& stores, const GptDataOptions& options);
/// Tokens of a sample in training. CheckpointError if they are missing or malformed.
std::int64_t sequence_length_from(const Attributes& attributes);

}  // namespace trireme::data
