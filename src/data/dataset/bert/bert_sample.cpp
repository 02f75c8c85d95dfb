#include "src/data/dataset/bert/bert_sample.hpp"

#include <utility>

#include "src/base/check.hpp"
#include "src/data/dataset/bert/bert_masking.hpp"

namespace trireme::data {
namespace {

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

class SampleWriter {
 public:
  SampleWriter(const TokenStore& store, const BertVocabulary& vocabulary, BertSample& sample)
      : store_(store), vocabulary_(vocabulary), sample_(sample) {
    append(vocabulary.cls, 0);
  }

  void append(const Segment& segment, std::int32_t type) {
    std::vector<std::int32_t>& tokens = sample_.tokens;
    const std::size_t first = tokens.size();
    tokens.resize(first + static_cast<std::size_t>(segment.size()));
    read_checked_tokens(store_, vocabulary_.size, segment.begin, std::span(tokens).subspan(first));
    sample_.token_types.resize(tokens.size(), type);
    append(vocabulary_.sep, type);
  }

 private:
  void append(std::int32_t token, std::int32_t type) {
    sample_.tokens.push_back(token);
    sample_.token_types.push_back(type);
  }

  const TokenStore& store_;
  const BertVocabulary& vocabulary_;
  BertSample& sample_;
};

}  // namespace

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

  SampleWriter writer(store, options.vocabulary, sample);
  writer.append(a, 0);
  if (options.binary_head) writer.append(b, 1);
  sample.labels.resize(sample.tokens.size());
  mask_words(sample.tokens, sample.labels, row.target_length, options.mask_probability, options.vocabulary, random);
  return sample;
}

}  // namespace trireme::data
