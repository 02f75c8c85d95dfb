#include "src/data/dataset/gpt_samples.hpp"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "src/base/check.hpp"

namespace trireme::data {
namespace {

/// Writes the optional fields of running text in which documents begin at `starts`, ascending from 1 to s: positions
/// and first_visible count from the start of each token's document. Unlabelled ends lose their labels.
void mark_documents(std::span<const std::int64_t> starts, DocumentEnds ends, const SampleView& sample) {
  auto next = starts.begin();
  std::int64_t begin = 0;
  for (std::int64_t i = 0; i < std::ssize(sample.tokens); ++i) {
    for (; next != starts.end() && *next <= i; ++next) begin = *next;
    const auto position = static_cast<std::size_t>(i);
    if (!sample.positions.empty()) sample.positions[position] = static_cast<std::int32_t>(i - begin);
    if (!sample.first_visible.empty()) sample.first_visible[position] = static_cast<std::int32_t>(begin);
  }
  if (ends == DocumentEnds::labelled) return;
  for (const std::int64_t start : starts) sample.labels[static_cast<std::size_t>(start - 1)] = -1;
}

}  // namespace

void make_next_token_labels(std::span<const std::int32_t> text, const SampleView& sample) {
  TRIREME_CHECK(text.size() == sample.tokens.size() + 1 && text.size() == sample.labels.size() + 1, ShapeError,
                "{} tokens of text do not make {} inputs and {} labels: one token more is needed", text.size(),
                sample.tokens.size(), sample.labels.size());
  std::ranges::transform(text.first(text.size() - 1), sample.tokens.begin(),
                         [](std::int32_t token) { return std::max(token, 0); });
  std::ranges::copy(text.subspan(1), sample.labels.begin());
}

void keep_learned(std::span<const LearnedRange> ranges, std::int64_t first, std::span<std::int32_t> labels) {
  std::int64_t done = 0;
  const auto remove_to = [&](std::int64_t place) {
    for (; done < place; ++done) labels[static_cast<std::size_t>(done)] = -1;
  };
  for_each_learned(ranges, first, first + std::ssize(labels), [&](LearnedRange range) {
    remove_to(range.begin - first);
    done = std::max(done, range.end - first);  // ranges of a file being modified may not ascend
  });
  remove_to(std::ssize(labels));
}

void NextTokenSamples::read(std::int64_t index, const SampleView& sample) const {
  TRIREME_CHECK(index >= 0 && index < size(), DataError, "reading sample {} failed: there are {}", index, size());
  std::vector<std::int32_t> text(static_cast<std::size_t>(sequence_length()) + 1);
  read_text(index, text);
  make_next_token_labels(text, sample);
  unlabel(index, sample.labels);
  const auto end = std::ranges::find_if(text.begin(), text.end() - 1, [](std::int32_t token) { return token < 0; });
  std::ranges::fill(sample.length, static_cast<std::int32_t>(end - text.begin()));
  const bool has_fields = !sample.positions.empty() || !sample.first_visible.empty();
  if (has_fields || ends_ == DocumentEnds::unlabelled) mark_documents(document_starts(index), ends_, sample);
}

CheckedTokens::CheckedTokens(std::shared_ptr<const TokenStore> store, std::int64_t vocabulary_size)
    : store_(std::move(store)), vocabulary_size_(vocabulary_size) {}

SequentialSamples::SequentialSamples(CheckedTokens tokens, std::int64_t sequence_length, Remainder remainder,
                                     DocumentEnds ends)
    : NextTokenSamples(ends), tokens_(std::move(tokens)), sequence_length_(sequence_length) {
  const std::int64_t labels = std::max<std::int64_t>(tokens_.store().token_count() - 1, 0);
  size_ = (labels + (remainder == Remainder::kept ? sequence_length - 1 : 0)) / sequence_length;
}

void SequentialSamples::read_text(std::int64_t index, std::span<std::int32_t> text) const {
  const std::int64_t begin = index * sequence_length_;
  const std::int64_t left = tokens_.store().token_count() - begin;
  const auto count = std::min(text.size(), static_cast<std::size_t>(left));
  tokens_.read(begin, text.first(count));
  std::ranges::fill(text.subspan(count), -1);
}

std::vector<std::int64_t> SequentialSamples::document_starts(std::int64_t index) const {
  const std::int64_t begin = index * sequence_length_;
  const std::span<const std::int64_t> offsets = tokens_.store().document_offsets();
  std::vector<std::int64_t> starts;
  auto offset = std::ranges::upper_bound(offsets, begin);
  for (; offset != offsets.end() && *offset <= begin + sequence_length_; ++offset) {
    if (*offset > begin) starts.push_back(*offset - begin);  // offsets of a file being modified may not ascend
  }
  return starts;
}

void SequentialSamples::unlabel(std::int64_t index, std::span<std::int32_t> labels) const {
  if (const auto ranges = tokens_.store().learned_ranges()) keep_learned(*ranges, index * sequence_length_ + 1, labels);
}

ShuffledSamples::ShuffledSamples(CheckedTokens tokens, const DocumentRange& range, std::int64_t sequence_length,
                                 std::span<const std::int64_t> budgets, std::uint32_t seed, IndexCache* cache,
                                 DocumentEnds ends)
    : NextTokenSamples(ends), tokens_(std::move(tokens)), range_(range), sequence_length_(sequence_length) {
  for (const std::int64_t budget : budgets) {
    if (budget <= size()) continue;
    const auto index_seed = static_cast<std::uint32_t>(seed + indices_.size());
    indices_.emplace_back(range, sequence_length, budget - size(), index_seed, &tokens_.store(), cache);
    firsts_.push_back(size() + indices_.back().size());
  }
}

template <class Visit>
void ShuffledSamples::for_pieces(std::int64_t index, Visit&& visit) const {
  const auto which = std::upper_bound(firsts_.begin(), firsts_.end(), index) - firsts_.begin() - 1;
  const GptIndex& order = indices_[static_cast<std::size_t>(which)];
  auto [entry, offset] = order.position(order.shuffled(index - firsts_[static_cast<std::size_t>(which)]));
  const auto documents = order.document_order();
  // The order and the document starts may be mapped files, which may change during the read.
  const auto check = [&](bool is_good) {
    TRIREME_CHECK(
        is_good, DataError,
        "{} or the order of its samples, in the folder index-cache, was changed while it was read. Try to put the "
        "corpus back as it was, to delete that folder and to run again",
        tokens_.store().name());
  };
  std::int64_t place = 0;
  while (place <= sequence_length_) {
    check(entry >= 0 && entry < std::ssize(documents));
    const std::uint32_t document = documents[static_cast<std::size_t>(entry)];
    check(document < range_.documents);
    const std::int64_t begin = range_.begin(document) + offset;
    const std::int64_t left = range_.end(document) - begin;
    check(left >= 0);
    const std::int64_t count = std::min(left, sequence_length_ + 1 - place);
    if (count > 0) visit(place, begin, count);
    place += count;
    ++entry;
    offset = 0;
  }
}

void ShuffledSamples::read_text(std::int64_t index, std::span<std::int32_t> text) const {
  for_pieces(index, [&](std::int64_t place, std::int64_t token, std::int64_t count) {
    tokens_.read(token, text.subspan(static_cast<std::size_t>(place), static_cast<std::size_t>(count)));
  });
}

std::vector<std::int64_t> ShuffledSamples::document_starts(std::int64_t index) const {
  std::vector<std::int64_t> starts;
  for_pieces(index, [&](std::int64_t place, std::int64_t, std::int64_t) {
    if (place > 0) starts.push_back(place);
  });
  return starts;
}

std::vector<std::uint32_t> torch_permutation(std::int64_t count, std::int64_t seed) {
  TRIREME_CHECK(count >= 0 && count <= UINT32_MAX, ConfigError,
                "an epoch of {} samples has no permutation of 32 bits. Try <dataloader_type> single", count);
  std::mt19937 generator(static_cast<std::uint32_t>(seed));
  std::vector<std::uint32_t> order(static_cast<std::size_t>(count));
  // Both forms are at::native::randperm_cpu's; the second one draws 64 bits, high half first.
  if (count < UINT32_MAX / 20) {
    std::iota(order.begin(), order.end(), 0u);
    for (std::size_t i = 0; i + 1 < order.size(); ++i) {
      std::swap(order[i], order[i + generator() % (order.size() - i)]);
    }
    return order;
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::uint64_t high = generator();
    const std::uint64_t draw = high << 32 | generator();
    const std::size_t place = draw % (i + 1);
    order[i] = order[place];
    order[place] = static_cast<std::uint32_t>(i);
  }
  return order;
}

CyclicSamples::CyclicSamples(std::unique_ptr<NextTokenSamples> epoch, std::int64_t size, DocumentEnds ends)
    : NextTokenSamples(ends), epoch_(std::move(epoch)), size_(size) {
  TRIREME_CHECK(epoch_->size() > 0, DataError, "an epoch without samples cannot be repeated");
}

std::int64_t CyclicSamples::sample_at(std::int64_t index) const {
  const std::int64_t size = epoch_->size(), epoch = index / size;
  return (*orders_.at(epoch, [&] { return torch_permutation(size, epoch); }))[static_cast<std::size_t>(index % size)];
}

void CyclicSamples::read_text(std::int64_t index, std::span<std::int32_t> text) const {
  epoch_->read_text(sample_at(index), text);
}

void CyclicSamples::unlabel(std::int64_t index, std::span<std::int32_t> labels) const {
  epoch_->unlabel(sample_at(index), labels);
}

std::vector<std::int64_t> CyclicSamples::document_starts(std::int64_t index) const {
  return epoch_->document_starts(sample_at(index));
}

}  // namespace trireme::data
