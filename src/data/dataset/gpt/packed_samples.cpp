#include "src/data/dataset/gpt/packed_samples.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "src/base/check.hpp"
#include "src/base/log.hpp"
#include "src/base/text.hpp"
#include "src/data/dataset/numpy_random.hpp"

namespace trireme::data {

std::vector<std::uint32_t> packable_documents(const TokenStore& store, const DocumentRange& range,
                                              std::int64_t sequence_length) {
  TRIREME_CHECK(range.documents <= UINT32_MAX, DataError, "{} documents are more than an index can number",
                range.documents);
  std::vector<std::uint32_t> documents;
  for (std::int64_t d = 0; d < range.documents; ++d) {
    const std::int64_t begin = range.begin(d), end = std::min(range.end(d), begin + sequence_length + 1);
    if (begin + 1 < end && learned_tokens(store, begin + 1, end) > 0)
      documents.push_back(static_cast<std::uint32_t>(d));
  }
  return documents;
}

PackedSamples::PackedSamples(CheckedTokens tokens, const DocumentRange& range, std::int64_t sequence_length,
                             std::uint32_t seed)
    : tokens_(std::move(tokens)), range_(range), sequence_length_(sequence_length) {
  std::vector<std::uint32_t> documents = packable_documents(tokens_.store(), range, sequence_length);
  TRIREME_CHECK(!documents.empty(), DataError,
                "the {} have no learned token in the first {} tokens of {} documents. Try another <split>, a longer "
                "<seq_length> or more text",
                range.name, sequence_length + 1, range.documents);
  NumpyRandom random(seed);
  random.shuffle(std::span(documents));
  std::ranges::stable_sort(documents, std::greater(), [&](std::uint32_t document) { return tokens_of(document); });

  std::vector<std::vector<std::uint32_t>> samples;
  std::multimap<std::int64_t, std::size_t> rooms;  // room of each sample that has any
  for (const std::uint32_t document : documents) {
    const std::int64_t count = tokens_of(document);
    const auto best = rooms.lower_bound(count);
    std::int64_t room = sequence_length + 1;
    std::size_t sample = samples.size();
    if (best == rooms.end()) {
      samples.emplace_back();
    } else {
      std::tie(room, sample) = *best;
      rooms.erase(best);
    }
    samples[sample].push_back(document);
    if (room > count) rooms.emplace(room - count, sample);
  }
  random.shuffle(std::span(samples));
  for (const std::vector<std::uint32_t>& sample : samples) {
    documents_.insert(documents_.end(), sample.begin(), sample.end());
    firsts_.push_back(std::ssize(documents_));
  }
  log_packing();
}

void PackedSamples::log_packing() const {
  std::int64_t tokens = 0, shortened = 0, lost_tokens = 0;
  for (const std::uint32_t document : documents_) {
    const std::int64_t lost = range_.end(document) - range_.begin(document) - tokens_of(document);
    tokens += tokens_of(document);
    shortened += lost > 0 ? 1 : 0;
    lost_tokens += lost;
  }
  const double room = static_cast<double>(size()) * static_cast<double>(sequence_length_ + 1);
  log::info("{}: {} in {} of {} tokens, {:.1f} % padding", range_.name, counted(std::ssize(documents_), "conversation"),
            counted(size(), "sample"), sequence_length_ + 1, 100 - 100 * static_cast<double>(tokens) / room);
  if (shortened > 0) {
    log::info("{}: cut {} tokens from the ends of {}, longer than a sample. Try a longer <seq_length>", range_.name,
              lost_tokens, counted(shortened, "conversation"));
  }
  if (const std::int64_t left_out = range_.documents - std::ssize(documents_); left_out > 0) {
    log::info("{}: left out {} without a learned token in the first {}", range_.name, counted(left_out, "conversation"),
              sequence_length_ + 1);
  }
}

template <class Visit>
std::int64_t PackedSamples::for_documents(std::int64_t index, const Visit& visit) const {
  const auto first = static_cast<std::size_t>(firsts_[static_cast<std::size_t>(index)]);
  const auto last = static_cast<std::size_t>(firsts_[static_cast<std::size_t>(index) + 1]);
  std::int64_t place = 0;
  for (std::size_t i = first; i < last; ++i) {
    const std::int64_t count = tokens_of(documents_[i]);
    // The corpus is a mapped file, which may change during the read.
    TRIREME_CHECK(count > 0 && count <= sequence_length_ + 1 - place, DataError,
                  "{} was changed while it was read. Try to put it back as it was", tokens_.store().name());
    visit(place, range_.begin(documents_[i]), count);
    place += count;
  }
  return place;
}

void PackedSamples::read_text(std::int64_t index, std::span<std::int32_t> text) const {
  const std::int64_t end = for_documents(index, [&](std::int64_t place, std::int64_t token, std::int64_t count) {
    tokens_.read(token, text.subspan(static_cast<std::size_t>(place), static_cast<std::size_t>(count)));
  });
  std::ranges::fill(text.subspan(static_cast<std::size_t>(end)), -1);
}

std::vector<std::int64_t> PackedSamples::document_starts(std::int64_t index) const {
  std::vector<std::int64_t> starts;
  const auto add = [&](std::int64_t place) {
    if (place > 0 && place <= sequence_length_) starts.push_back(place);
  };
  add(for_documents(index, [&](std::int64_t place, std::int64_t, std::int64_t) { add(place); }));
  return starts;
}

void PackedSamples::unlabel(std::int64_t index, std::span<std::int32_t> labels) const {
  for_documents(index, [&](std::int64_t place, std::int64_t token, std::int64_t count) {
    const auto first = static_cast<std::size_t>(place), last = first + static_cast<std::size_t>(count) - 1;
    keep_learned(*tokens_.store().learned_ranges(), token + 1, labels.subspan(first, last - first));
    if (last < labels.size()) labels[last] = -1;
  });
}

}  // namespace trireme::data
