#include "src/data/dataset/bert/bert_data.hpp"

#include <algorithm>
#include <utility>

#include "src/base/check.hpp"

namespace trireme::data {
namespace {

/// Non-text tokens of a sample: [CLS] and two [SEP], even without the binary head, as in Megatron-LM.
constexpr std::int64_t special_tokens = 3;
constexpr std::int64_t min_target_length = 2;

/// Copies `values` and pads `field`; no-op for fields not requested.
void put(const std::vector<std::int32_t>& values, std::int32_t rest, std::span<std::int32_t> field) {
  if (field.empty()) return;
  TRIREME_CHECK(values.size() <= field.size(), ShapeError, "a sample of {} tokens does not fit {} positions",
                values.size(), field.size());
  std::fill(std::ranges::copy(values, field.begin()).out, field.end(), rest);
}

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

void validate(const BertSampleOptions& options) {
  TRIREME_CHECK(options.sequence_length >= min_target_length + special_tokens, ConfigError,
                "<seq_length> {} must be at least {} for BERT: [CLS], two tokens and two [SEP]",
                options.sequence_length, min_target_length + special_tokens);
  check_seed(options.seed);
  const double mask = options.masking.mask_probability;
  TRIREME_CHECK(mask > 0 && mask <= 1, ConfigError,
                "<mask_prob> {} must be above 0 and at most 1: BERT learns from masked tokens alone", mask);
  const double is_short = options.short_sequence_probability;
  TRIREME_CHECK(is_short >= 0 && is_short <= 1, ConfigError, "<short_seq_prob> {} must be from 0 to 1", is_short);
}

BertSamples::BertSamples(std::shared_ptr<const TokenStore> store, const DocumentRange& range, BertSampleOptions options,
                         std::span<const std::int64_t> budgets, IndexCache* cache)
    : store_(std::move(store)), options_(std::move(options)) {
  validate(options_);
  BertSampleMapOptions map;
  map.max_target_length = max_target_length();
  map.short_sequence_probability = options_.short_sequence_probability;
  map.min_sentences = min_sentences_of(options_.masking);
  map.max_epochs = options_.max_epochs;
  for (const std::int64_t budget : budgets) {
    if (budget <= size()) continue;
    map.max_samples = budget - size();
    map.seed = static_cast<std::uint32_t>(options_.seed + std::ssize(maps_));
    maps_.emplace_back(*store_, range, map, cache);
    TRIREME_CHECK(maps_.back().size() > 0, DataError,
                  "none of {} documents of {} gives a BERT sample: one needs at least {} sentences, and several of at "
                  "most 512 tokens each. Try another <split> or more text",
                  range.documents, store_->name(), map.min_sentences);
    firsts_.push_back(size() + maps_.back().size());
  }
}

bool masks_tokens(std::int64_t sequence_length, double mask_probability) {
  return mask_probability * static_cast<double>(sequence_length - special_tokens) >= 1;
}

std::int64_t max_predictions(std::int64_t sequence_length, double mask_probability) {
  const auto target = static_cast<double>(std::max<std::int64_t>(1, sequence_length - special_tokens));
  return static_cast<std::int64_t>(std::clamp(mask_probability * target, 1.0, target));
}

std::int64_t BertSamples::max_target_length() const { return options_.sequence_length - special_tokens; }

SampleFields BertSamples::fields() const {
  return {.token_types = true, .length = true, .is_random = options_.masking.binary_head};
}

void BertSamples::read(std::int64_t index, const SampleView& sample) const {
  const BertSample made = make(index);
  put(made.tokens, options_.masking.vocabulary.pad, sample.tokens);
  put(made.labels, -1, sample.labels);
  put(made.token_types, 0, sample.token_types);
  put({static_cast<std::int32_t>(made.tokens.size())}, 0, sample.length);
  put({options_.masking.binary_head ? static_cast<std::int32_t>(made.is_random) : -1}, 0, sample.is_random);
}

BertSample BertSamples::make(std::int64_t index) const {
  TRIREME_CHECK(index >= 0 && index < size(), DataError, "reading sample {} failed: there are {}", index, size());
  const auto which = static_cast<std::size_t>(std::ranges::upper_bound(firsts_, index) - firsts_.begin() - 1);
  const BertSampleRow row = maps_[which].row(index - firsts_[which]);
  // The map may be a mapped file, which may change during the read.
  TRIREME_CHECK(
      row.first_sentence >= 0 && row.end_sentence < std::ssize(store_->sentence_offsets()) &&
          row.end_sentence - row.first_sentence >= min_sentences_of(options_.masking) &&
          row.target_length >= min_target_length && row.target_length <= max_target_length(),
      DataError,
      "sentences {} to {} of {}, cut to {} tokens, are not a sample: the corpus or the map of its samples, in the "
      "folder index-cache, was changed while it was read. Try to put the corpus back as it was, to delete "
      "that folder and to run again",
      row.first_sentence, row.end_sentence, store_->name(), row.target_length);
  NumpyRandom random(static_cast<std::uint32_t>(options_.seed + index));
  return make_bert_sample(*store_, row, options_.masking, random);
}

bool has_samples(const std::vector<WeightedStore>& stores, const BertDataOptions& options, Split split) {
  return std::ranges::all_of(stores, [&](const WeightedStore& weighted) {
    if (stores.size() > 1 && weighted.weight == 0) return true;  // belongs to a later stage
    const DocumentRange range = documents_of(*weighted.store, split, options.split_fractions, options.split_by);
    return has_bert_samples(*weighted.store, range, min_sentences_of(options.samples.masking));
  });
}

SampleSplits make_bert_data(const std::vector<WeightedStore>& stores, const BertDataOptions& options) {
  check_options(stores, options);
  return make_splits(
      stores, options.later_stages, options.budgets,
      [&](const std::shared_ptr<const TokenStore>& store, Split split, const std::vector<std::int64_t>& budgets) {
        const DocumentRange range = documents_of(*store, split, options.split_fractions, options.split_by);
        return std::make_unique<BertSamples>(store, range, options.samples, budgets, options.cache);
      });
}

Attributes attributes_of(const std::vector<WeightedStore>& stores, const BertDataOptions& options) {
  const BertSampleOptions& samples = options.samples;
  Attributes attributes = attributes_of_splits(stores, options.later_stages, samples.seed, samples.sequence_length,
                                               options.split_fractions, options.split_by);
  attributes.put("data.binary_head", samples.masking.binary_head);
  attributes.put("data.mask_probability", samples.masking.mask_probability);
  attributes.put("data.short_sequence_probability", samples.short_sequence_probability);
  return attributes;
}

}  // namespace trireme::data
