#include "src/data/dataset/bert/bert_sample.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "src/base/check.hpp"

namespace trireme::data {
namespace {

constexpr std::size_t max_words = 3;  // limit of an n-gram

/// Positions of the words of a sample.
class Words {
 public:
  Words(std::span<const std::int32_t> tokens, const BertVocabulary& vocabulary) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] == vocabulary.cls || tokens[i] == vocabulary.sep) continue;
      if (begins_.empty() || !vocabulary.continues_word[static_cast<std::size_t>(tokens[i])]) {
        begins_.push_back(positions_.size());
      }
      positions_.push_back(i);
    }
  }

  std::size_t count() const { return begins_.size(); }

  /// Positions of `n` words from `word` on, or fewer at the end.
  std::span<const std::size_t> ngram(std::size_t word, std::size_t n) const {
    const std::size_t end = word + n < begins_.size() ? begins_[word + n] : positions_.size();
    return std::span(positions_).subspan(begins_[word], end - begins_[word]);
  }

 private:
  std::vector<std::size_t> positions_;  // tokens that may be masked
  std::vector<std::size_t> begins_;     // index in positions_ of each word
};

/// Probabilities of n-grams of at most 1, 2 ... words, rounded as in NumPy's `choice`.
std::array<double, max_words> cumulative_probabilities() {
  std::array<double, max_words> values{};
  for (std::size_t i = 0; i < max_words; ++i) values[i] = 1.0 / static_cast<double>(i + 1);
  // Megatron-LM divides by the sum twice.
  for (int i = 0; i < 2; ++i) {
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    for (double& value : values) value /= sum;
  }
  std::partial_sum(values.begin(), values.end(), values.begin());
  const double last = values.back();
  for (double& value : values) value /= last;
  return values;
}

std::size_t draw_ngram_size(NumpyRandom& random) {
  static const std::array<double, max_words> cumulative = cumulative_probabilities();
  const auto drawn = std::ranges::upper_bound(cumulative, random.random());
  return static_cast<std::size_t>(drawn - cumulative.begin()) + 1;
}

std::int32_t draw_replacement(std::int32_t token, const BertVocabulary& vocabulary, NumpyRandom& random) {
  if (random.random() < 0.8) return vocabulary.mask;
  if (random.random() < 0.5) return token;
  return static_cast<std::int32_t>(random.randint(static_cast<std::uint64_t>(vocabulary.size)));
}

/// Tokens [begin, end) of a corpus.
struct Segment {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
};

/// Removes tokens from the longer segment, `b` of equal ones. Returns whether any were removed.
bool truncate(Segment& a, Segment& b, std::int64_t target_length, NumpyRandom& random) {
  if (a.size() + b.size() <= target_length) return false;
  while (a.size() + b.size() > target_length) {
    Segment& longer = a.size() > b.size() ? a : b;
    if (random.random() < 0.5) {
      ++longer.begin;
    } else {
      --longer.end;
    }
  }
  return true;
}

/// Whole-word masking as in Megatron-LM: sets `labels` to the token at each masked position and to -1 elsewhere, and
/// replaces masked `tokens` by [MASK] (80 %), a token drawn from the vocabulary (10 %), or leaves them (10 %).
///
/// A word is a piece and the "##" pieces after it, excluding [CLS] and [SEP]; a "##" piece after [SEP] continues the
/// word before it. Words are tried in shuffled order. Each begins an n-gram of 1, 2 or 3 words, n drawn with p
/// proportional to 1/n, and reduced while the n-gram exceeds the budget. An n-gram that touches a masked one is
/// skipped. The budget is min(probability · target_length, max(1, round(probability · tokens))), compared as a
/// fraction: short targets mask nothing.
void mask_words(std::span<std::int32_t> tokens, std::span<std::int32_t> labels, std::int64_t target_length,
                double probability, const BertVocabulary& vocabulary, NumpyRandom& random) {
  std::ranges::fill(labels, -1);
  // nearbyint rounds half to even, as Python does.
  const double budget = std::min(probability * static_cast<double>(target_length),
                                 std::max(1.0, std::nearbyint(static_cast<double>(tokens.size()) * probability)));
  const Words words(tokens, vocabulary);
  std::vector<std::size_t> order(words.count());
  std::iota(order.begin(), order.end(), std::size_t{0});
  random.shuffle(std::span(order));

  std::size_t masked = 0;
  for (const std::size_t word : order) {
    if (static_cast<double>(masked) >= budget) return;
    std::span<const std::size_t> ngram;
    const auto exceeds = [&] { return static_cast<double>(masked + ngram.size()) > budget; };
    for (std::size_t n = draw_ngram_size(random); n > 0; --n) {
      ngram = words.ngram(word, n);
      if (!exceeds()) break;
    }
    if (exceeds() || std::ranges::any_of(ngram, [&](std::size_t i) { return labels[i] >= 0; })) continue;
    for (const std::size_t i : ngram) {
      labels[i] = tokens[i];
      tokens[i] = draw_replacement(tokens[i], vocabulary, random);
    }
    masked += ngram.size();
  }
}

}  // namespace

BertVocabulary bert_vocabulary_of(std::span<const std::string> tokens) {
  const auto id_of = [&](const char* token) {
    const auto found = std::ranges::find(tokens, token);
    TRIREME_CHECK(found != tokens.end(), DataError,
                  "the vocabulary of {} tokens has no {}, which BERT's samples need. Try BERT's own vocabulary",
                  tokens.size(), token);
    return static_cast<std::int32_t>(found - tokens.begin());
  };
  BertVocabulary vocabulary{std::ssize(tokens), id_of("[PAD]"), id_of("[CLS]"), id_of("[SEP]"), id_of("[MASK]"), {}};
  vocabulary.continues_word.reserve(tokens.size());
  for (const std::string& token : tokens) vocabulary.continues_word.push_back(token.starts_with("##"));
  return vocabulary;
}

BertSample make_bert_sample(const TokenStore& store, const BertSampleRow& row, const BertMaskingOptions& options,
                            NumpyRandom& random) {
  const auto offsets = store.sentence_offsets();
  const std::int64_t sentences = row.end_sentence - row.first_sentence;
  const auto offset = [&](std::int64_t sentence) { return offsets[static_cast<std::size_t>(sentence)]; };
  Segment a{offset(row.first_sentence), offset(row.end_sentence)};
  Segment b{a.end, a.end};
  BertSample sample;
  sample.row = row;
  if (options.binary_head) {
    std::int64_t a_sentences = 1;
    if (sentences > 2)
      a_sentences += static_cast<std::int64_t>(random.randint(static_cast<std::uint64_t>(sentences - 1)));
    a.end = b.begin = offset(row.first_sentence + a_sentences);
    sample.is_random = random.random() < 0.5;
    if (sample.is_random) std::swap(a, b);
  }
  TRIREME_CHECK(a.size() > 0 && (b.size() > 0 || !options.binary_head), DataError,
                "{}: an empty sentence among {} to {}. Try to build the corpus again", store.name(), row.first_sentence,
                row.end_sentence);
  sample.is_truncated = truncate(a, b, row.target_length, random);

  sample.tokens = {options.vocabulary.cls};
  const auto append = [&](const Segment& segment, std::int32_t type) {
    const std::size_t first = sample.tokens.size();
    sample.tokens.resize(first + static_cast<std::size_t>(segment.size()));
    read_checked_tokens(store, options.vocabulary.size, segment.begin, std::span(sample.tokens).subspan(first));
    sample.tokens.push_back(options.vocabulary.sep);
    sample.token_types.resize(sample.tokens.size(), type);
  };
  append(a, 0);
  if (options.binary_head) append(b, 1);
  sample.labels.resize(sample.tokens.size());
  mask_words(sample.tokens, sample.labels, row.target_length, options.mask_probability, options.vocabulary, random);
  return sample;
}

}  // namespace trireme::data
