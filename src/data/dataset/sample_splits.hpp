#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/attributes.hpp"
#include "src/data/dataset/sample_source.hpp"
#include "src/data/dataset/split.hpp"
#include "src/data/dataset/token_store.hpp"

namespace trireme::data {

/// Number of samples that a run reads from each split.
struct SampleBudget {
  std::int64_t train = 0, valid = 0, test = 0;
  bool operator==(const SampleBudget&) const = default;
};

/// Length of a run and its evaluation interval.
struct RunLength {
  std::int64_t train_iters = 0;
  std::int64_t train_samples = 0;  ///< samples of a training by samples; 0: train_iters global batches
  std::int64_t global_batch_size = 1;
  std::int64_t eval_interval = 1;
  std::int64_t eval_iters = 0;
};

/// Samples of an entire run, as counted by Megatron-LM. Training has train_samples, or train_iters global batches. Each
/// evaluation has eval_iters global batches; one follows every eval_interval iterations, and one the end. The test has
/// eval_iters. Throws ConfigError for a negative number, a global batch or an eval_interval of 0, or too many samples
/// to count.
SampleBudget samples_needed(const RunLength& run);

/// Position of a rank among those that divide the global batch.
struct SamplerGrid {
  std::int64_t micro_batch_size = 1;
  std::int64_t data_parallel_size = 1;
};

/// First of the micro_batch_size consecutive samples that data rank `data_rank` reads as its micro-batch `micro_batch`
/// of an iteration that starts after `consumed_samples`:
///   consumed_samples + (micro_batch · data_parallel_size + data_rank) · micro_batch_size.
/// Micro-batches 0 .. m-1 of all data ranks cover the m · data_parallel_size · micro_batch_size samples of the global
/// batch exactly once, on any grid (Megatron-LM's "single" data loader).
constexpr std::int64_t first_sample(std::int64_t consumed_samples, std::int64_t micro_batch, std::int64_t data_rank,
                                    const SamplerGrid& grid) {
  return consumed_samples + (micro_batch * grid.data_parallel_size + data_rank) * grid.micro_batch_size;
}

/// Converts the budgets of a run and its predecessors, oldest first, to the attribute "data_budgets" of a checkpoint
/// and back. CheckpointError if it is missing or malformed.
Attributes attributes_of(const std::vector<SampleBudget>& budgets);
std::vector<SampleBudget> budgets_from(const Attributes& attributes);

/// Returns weights that sum to 1. Throws ConfigError for a weight that is not a positive number.
std::vector<double> normalized_weights(std::span<const double> weights);

/// A corpus and its weight in a blend; ignored for a single corpus.
struct WeightedStore {
  std::shared_ptr<const TokenStore> store;
  double weight = 1;  ///< weight in the first stage; 0: not in it
};

/// Weights of a blend's corpora from a sample on.
struct BlendStage {
  std::int64_t first_sample = 0;
  std::vector<double> weights;  ///< [corpora]; 0: not in this stage
};

/// Returns the stages of a blend with normalized weights: that of `stores`, from sample 0 on, and the `later` ones.
/// Throws ConfigError for invalid weights, and for stages that are not in the order of their first samples.
std::vector<BlendStage> blend_stages(const std::vector<WeightedStore>& stores, const std::vector<BlendStage>& later);

/// Corpus of each sample of a blend. Sample k of a stage, counted from its first, comes from the corpus with the
/// greatest w_i · max(k, 1) - (samples taken from i in this stage), the first on ties, as in Megatron-LM, which has
/// one stage. A corpus continues after its last sample of earlier stages. Independent of the number of samples.
class BlendOrder {
 public:
  /// `stages` are those of `blend_stages`.
  BlendOrder(std::vector<BlendStage> stages, std::int64_t samples);
  std::int64_t size() const { return size_; }
  const std::vector<BlendStage>& stages() const { return stages_; }
  /// Corpus of sample k, and its number among that corpus' samples.
  std::pair<std::size_t, std::int64_t> at(std::int64_t k) const;
  /// Number of samples from each corpus among the first k <= size().
  std::vector<std::int64_t> counts(std::int64_t k) const;

 private:
  /// Number of the stage of sample k.
  std::size_t stage_of(std::int64_t k) const;
  std::size_t choose(std::size_t stage, std::int64_t k, std::span<const std::int64_t> counts) const;

  std::vector<BlendStage> stages_;
  std::vector<std::vector<std::int64_t>> stage_counts_;  // [stages, corpora]: before each stage that is reached
  std::int64_t size_;
  std::vector<std::int64_t> block_counts_;  // [blocks, corpora]: before each block of samples
};

/// Samples of a validation set that is evaluated separately.
struct ValidationSet {
  std::string name;
  std::unique_ptr<SampleSource> samples;
};

/// The three splits; null if no budget needs samples.
struct SampleSplits {
  std::unique_ptr<SampleSource> train, valid, test;
  std::vector<ValidationSet> valid_sets = {};         ///< besides `valid`
  std::shared_ptr<const BlendOrder> blend = nullptr;  ///< order of `train`; null for a single corpus
};

/// Makes the samples of one corpus in `split`, at least as many as the greatest of `budgets`.
using MakeSource = std::function<std::unique_ptr<SampleSource>(const std::shared_ptr<const TokenStore>& store,
                                                               Split split, const std::vector<std::int64_t>& budgets)>;

/// Makes the splits of one corpus or of a blend of several, in which a corpus provides 0.5 % more samples than its
/// share. Training has the stages of the blend; validation and test have the weights of the first. `budgets` are those
/// of SampleBudget's, oldest first. Throws as `blend_stages` does.
SampleSplits make_splits(const std::vector<WeightedStore>& stores, const std::vector<BlendStage>& later_stages,
                         const std::vector<SampleBudget>& budgets, const MakeSource& make_source);

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
Attributes attributes_of_splits(const std::vector<WeightedStore>& stores, const std::vector<BlendStage>& later_stages,
                                std::int64_t seed, std::int64_t sequence_length,
                                const std::array<double, 3>& split_fractions, SplitBy split_by);

}  // namespace trireme::data
