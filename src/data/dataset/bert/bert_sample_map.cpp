#include "src/data/dataset/bert/bert_sample_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <random>
#include <string>

#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/machine.hpp"

namespace trireme::data {
namespace {

constexpr std::int64_t max_sentence_tokens = 512;  // in documents of several sentences
constexpr std::size_t row_numbers = 3;

void check_sentences(const TokenStore& store) {
  TRIREME_CHECK(!store.sentence_offsets().empty(), DataError,
                "{} has no sentences, which BERT's samples consist of. Try to build it again with <split_sentences>",
                store.name());
}

/// One target of this many is short; 0 for none. 2^32 represents all larger numbers: only the draw 0 is a multiple of
/// them.
std::uint64_t short_sequence_ratio(double probability) {
  if (probability <= 0) return 0;
  return static_cast<std::uint64_t>(std::min(std::round(1 / probability), 0x1p32));
}

/// Cuts the documents of a range into samples, deterministically.
class DocumentCutter {
 public:
  DocumentCutter(const TokenStore& store, const DocumentRange& range, const BertSampleMapOptions& options)
      : sentences_(store.sentence_offsets()),
        range_(range),
        options_(options),
        ratio_(short_sequence_ratio(options.short_sequence_probability)),
        first_(std::ranges::lower_bound(sentences_, range.begin_token) - sentences_.begin()) {}

  /// Calls `take` with the sentences of each document that yields samples, until it returns false. Returns whether it
  /// did.
  template <class Take>
  bool each_document(const Take& take) const {
    std::int64_t sentence = first_;
    for (std::int64_t document = 0; document < range_.documents; ++document) {
      const std::int64_t first = sentence;
      while (begin(sentence) < range_.end(document)) ++sentence;
      if (is_used(first, sentence) && !take(first, sentence)) return true;
    }
    return false;
  }

  /// Lower bound of the sentences read and upper bound of the samples they yield.
  double max_steps() const {
    const auto count = static_cast<double>(sentences());
    return count +
           std::min(count * static_cast<double>(options_.max_epochs), static_cast<double>(options_.max_samples));
  }
  /// Map size given by the options, for messages.
  std::string size_text() const {
    return options_.max_samples == BertSampleMapOptions::no_limit
               ? fmt::format("{} epochs of {} sentences", options_.max_epochs, sentences())
               : fmt::format("at least {} samples of {} sentences", options_.max_samples, sentences());
  }

  /// Number of documents that yield samples.
  std::int64_t documents() const {
    std::int64_t count = 0;
    each_document([&](std::int64_t, std::int64_t) { return ++count > 0; });
    return count;
  }

  /// Calls `take` with the row of each sample and returns their number.
  template <class Take>
  std::int64_t each_sample(const Take& take) const {
    std::mt19937 random(options_.seed);
    std::int64_t samples = 0;
    for (std::int64_t epoch = 0; epoch < options_.max_epochs && samples < options_.max_samples; ++epoch) {
      std::int64_t in_epoch = 0;
      each_document([&](std::int64_t first, std::int64_t end) {
        in_epoch += cut(first, end, random, take);
        return true;
      });
      if (in_epoch == 0) break;
      samples += in_epoch;
    }
    return samples;
  }

 private:
  std::int64_t sentences() const {
    return std::ranges::lower_bound(sentences_, range_.end_token) - sentences_.begin() - first_;
  }
  std::int64_t begin(std::int64_t sentence) const { return sentences_[static_cast<std::size_t>(sentence)]; }

  bool is_used(std::int64_t first, std::int64_t end) const {
    if (end - first < std::max<std::int64_t>(options_.min_sentences, 1)) return false;
    if (end - first == 1) return true;
    for (std::int64_t i = first; i < end; ++i) {
      if (begin(i + 1) - begin(i) > max_sentence_tokens) return false;
    }
    return true;
  }

  std::int64_t draw_target(std::mt19937& random) const {
    if (ratio_ == 0) return options_.max_target_length;
    const auto draw = static_cast<std::uint64_t>(random());
    if (draw % ratio_ != 0) return options_.max_target_length;
    return 2 + static_cast<std::int64_t>(draw % static_cast<std::uint64_t>(options_.max_target_length - 1));
  }

  template <class Take>
  std::int64_t cut(std::int64_t first, std::int64_t end, std::mt19937& random, const Take& take) const {
    std::int64_t samples = 0;
    std::int64_t target = draw_target(random);
    std::int64_t start = first;
    for (std::int64_t next = first + 1; next <= end; ++next) {
      const bool is_full =
          begin(next) - begin(start) >= target && end - next > 1 && next - start >= options_.min_sentences;
      if (!is_full && next != end) continue;
      take(BertSampleRow{start, next, target});
      ++samples;
      // The last draw of a document is not used.
      target = draw_target(random);
      start = next;
    }
    return samples;
  }

  std::span<const std::int64_t> sentences_;
  const DocumentRange& range_;
  const BertSampleMapOptions& options_;
  std::uint64_t ratio_;
  std::int64_t first_;  // sentence of the range
};

template <class Number>
void shuffle_rows(std::span<Number> rows, std::uint32_t seed) {
  std::mt19937_64 random(std::uint64_t{seed} + 1);
  for (std::size_t i = rows.size() / row_numbers; i-- > 1;) {
    const std::size_t j = random() % (i + 1);
    std::swap_ranges(&rows[i * row_numbers], &rows[i * row_numbers] + row_numbers, &rows[j * row_numbers]);
  }
}

/// Returns an empty list with capacity for the rows of `samples`.
template <class Number>
std::vector<Number> make_room(std::int64_t samples) {
  constexpr std::size_t row_bytes = row_numbers * sizeof(Number);
  const std::size_t machine = machine_memory_bytes();
  std::vector<Number> rows;
  try {
    // Linux overcommits memory, and kills the process that writes to it.
    if (samples > static_cast<std::int64_t>(machine / 4 * 3 / row_bytes)) throw std::bad_alloc();
    rows.reserve(static_cast<std::size_t>(samples) * row_numbers);
  } catch (const std::bad_alloc&) {
    throw EnvironmentError(
        "the map of {} BERT samples takes {:.1f} GiB of memory, too much for this machine of {:.1f} GiB. Try fewer "
        "iterations",
        samples, static_cast<double>(samples) * row_bytes / 0x1p30, static_cast<double>(machine) / 0x1p30);
  }
  return rows;
}

void log_left_out(const TokenStore& store, const DocumentRange& range, std::int64_t used, std::int64_t min_sentences) {
  if (used == range.documents || used == 0) return;  // without any the caller throws
  log::info(
      "{}: {} of {} documents give no BERT sample: they have fewer than {} sentences, or one of more than {} tokens",
      store.name(), range.documents - used, range.documents, min_sentences, max_sentence_tokens);
}

template <class Number>
std::vector<Number> shuffled_rows(const DocumentCutter& cutter, const TokenStore& store, const DocumentRange& range,
                                  const BertSampleMapOptions& options) {
  const std::int64_t documents = cutter.documents();
  log_left_out(store, range, documents, options.min_sentences);
  // Fails on too many samples before counting them. Each epoch has at least one of each document.
  std::int64_t min_samples = 0;
  if (__builtin_mul_overflow(documents, options.max_epochs, &min_samples)) min_samples = options.max_samples;
  make_room<Number>(std::min(min_samples, options.max_samples));
  std::vector<Number> rows = make_room<Number>(cutter.each_sample([](const BertSampleRow&) {}));
  cutter.each_sample([&](const BertSampleRow& row) {
    for (const std::int64_t number : {row.first_sentence, row.end_sentence, row.target_length}) {
      rows.push_back(static_cast<Number>(number));
    }
  });
  shuffle_rows(std::span(rows), options.seed);
  return rows;
}

std::string description_of(const TokenStore& store, const DocumentRange& range, const BertSampleMapOptions& options) {
  return fmt::format(
      "BERT sample map, version 1\ncorpus {}\ndocuments {} from {}\ntokens {} to {}\ntarget length {}\n"
      "one short target of {}\nat least {} sentences\nepochs {}\nsamples {}\nseed {}\n",
      store.info().content_digest, range.documents, range.first_document, range.begin_token, range.end_token,
      options.max_target_length, short_sequence_ratio(options.short_sequence_probability), options.min_sentences,
      options.max_epochs, options.max_samples, options.seed);
}

}  // namespace

bool has_bert_samples(const TokenStore& store, const DocumentRange& range, std::int64_t min_sentences) {
  check_sentences(store);
  BertSampleMapOptions options;
  options.min_sentences = min_sentences;
  return DocumentCutter(store, range, options).each_document([](std::int64_t, std::int64_t) { return false; });
}

BertSampleMap::BertSampleMap(const TokenStore& store, const DocumentRange& range, const BertSampleMapOptions& options,
                             IndexCache* cache) {
  check_sentences(store);
  if (store.sentence_offsets().size() > UINT32_MAX) {
    make<std::uint64_t>(store, range, options, cache);
  } else {
    make<std::uint32_t>(store, range, options, cache);
  }
}

template <class Number>
void BertSampleMap::make(const TokenStore& store, const DocumentRange& range, const BertSampleMapOptions& options,
                         IndexCache* cache) {
  const SampleOrder order{store, range.name, cache == nullptr ? "" : description_of(store, range, options)};
  if (cache != nullptr && take<Number>(cache->find(order))) return;
  const DocumentCutter cutter(store, range, options);
  const auto rows = std::make_shared<std::vector<Number>>();
  compute_with_log(range.name, cutter.max_steps(), cutter.size_text(),
                   [&] { *rows = shuffled_rows<Number>(cutter, store, range, options); });
  // Mapped pages are shared between ranks and reclaimable.
  if (cache != nullptr && take<Number>(cache->keep(order, {std::as_bytes(std::span(*rows))}))) return;
  rows_ = Rows<Number>(*rows);
  owner_ = rows;
}

template <class Number>
bool BertSampleMap::take(const IndexCache::Kept& kept) {
  if (!kept.owner || kept.arrays.size() != 1 || kept.arrays[0].size() % (row_numbers * sizeof(Number)) != 0) {
    return false;
  }
  owner_ = kept.owner;
  rows_ = Rows<Number>{reinterpret_cast<const Number*>(kept.arrays[0].data()), kept.arrays[0].size() / sizeof(Number)};
  return true;
}

std::int64_t BertSampleMap::size() const {
  return static_cast<std::int64_t>(std::visit([](const auto& rows) { return rows.size(); }, rows_) / row_numbers);
}

BertSampleRow BertSampleMap::row(std::int64_t index) const {
  const auto at = [&](const auto& rows) {
    const auto row = rows.subspan(static_cast<std::size_t>(index) * row_numbers, row_numbers);
    return BertSampleRow{static_cast<std::int64_t>(row[0]), static_cast<std::int64_t>(row[1]),
                         static_cast<std::int64_t>(row[2])};
  };
  return std::visit(at, rows_);
}

}  // namespace trireme::data
