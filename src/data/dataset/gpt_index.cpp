#include "src/data/dataset/gpt_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <numeric>
#include <vector>

#include "src/base/check.hpp"
#include "src/data/dataset/numpy_random.hpp"

namespace trireme::data {
namespace {

template <class T>
std::span<const T> as_array_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

/// Returns 0 ... size - 1, with the first `first` and the rest shuffled separately.
template <class T>
std::vector<T> shuffled_in_two(std::int64_t size, std::int64_t first, NumpyRandom& random) {
  std::vector<T> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), T{0});
  const std::span all(order);
  random.shuffle(all.first(static_cast<std::size_t>(first)));
  random.shuffle(all.subspan(static_cast<std::size_t>(first)));
  return order;
}

}  // namespace

GptIndex::Plan GptIndex::plan_of(const DocumentRange& range, std::int64_t sequence_length, std::int64_t samples) {
  const std::int64_t tokens = range.tokens();
  std::int64_t tokens_needed = 0;
  TRIREME_CHECK(!__builtin_mul_overflow(samples, sequence_length, &tokens_needed) && tokens_needed < INT64_MAX - tokens,
                ConfigError, "{} samples of {} tokens are more tokens than can be counted", samples, sequence_length);
  TRIREME_CHECK(range.documents <= UINT32_MAX, DataError, "{} documents are more than an index can number",
                range.documents);
  Plan plan;
  plan.epochs = (tokens_needed + tokens) / tokens;  // least e with (e·tokens - 1) / s >= samples
  const auto samples_in = [&](std::int64_t epochs) { return (epochs * tokens - 1) / sequence_length; };
  const std::int64_t before_last = plan.epochs > 1 ? samples_in(plan.epochs - 1) : 0;
  const bool last_apart =
      plan.epochs > 1 && samples - before_last < static_cast<std::int64_t>(0.80 * static_cast<double>(samples_in(1)));
  plan.size = samples_in(plan.epochs);
  plan.apart = last_apart ? before_last : plan.size;
  plan.entries = plan.epochs * range.documents;
  plan.entries_apart = last_apart ? plan.entries - range.documents : plan.entries;
  return plan;
}

GptIndex::GptIndex(const DocumentRange& range, std::int64_t sequence_length, std::int64_t samples, std::uint32_t seed,
                   const TokenStore* store, IndexCache* cache)
    : sequence_length_(sequence_length), plan_(plan_of(range, sequence_length, samples)) {
  if (cache == nullptr) {
    build(range, seed);
    return;
  }
  // The number of samples matters only through the plan.
  const std::string description = fmt::format(
      "GPT sample order, version 1\ncorpus {}\ndocuments {} from {}\ntokens {} to {}\nsequence length {}\nepochs {}\n"
      "shuffled together: {} samples, {} documents\nseed {}\n",
      store->info().content_digest, range.documents, range.first_document, range.begin_token, range.end_token,
      sequence_length, plan_.epochs, plan_.apart, plan_.entries_apart, seed);
  const SampleOrder order{*store, range.name, description};
  if (take(cache->find(order))) return;
  build(range, seed);
  const auto shuffle = std::visit([](const auto& order) { return std::as_bytes(order); }, shuffle_);
  cache->keep(order, {std::as_bytes(document_order_), std::as_bytes(starts_), shuffle});
}

bool GptIndex::take(const IndexCache::Kept& kept) {
  const auto entries = static_cast<std::size_t>(plan_.entries);
  const auto size = static_cast<std::size_t>(plan_.size);
  const bool wide = size > UINT32_MAX;
  if (!kept.owner || kept.arrays.size() != 3 || kept.arrays[0].size() != entries * sizeof(std::uint32_t) ||
      kept.arrays[1].size() != entries * sizeof(std::int64_t) || kept.arrays[2].size() != size * (wide ? 8 : 4)) {
    return false;
  }
  owner_ = kept.owner;
  document_order_ = as_array_of<std::uint32_t>(kept.arrays[0]);
  starts_ = as_array_of<std::int64_t>(kept.arrays[1]);
  if (wide) {
    shuffle_ = as_array_of<std::uint64_t>(kept.arrays[2]);
  } else {
    shuffle_ = as_array_of<std::uint32_t>(kept.arrays[2]);
  }
  return true;
}

void GptIndex::build(const DocumentRange& range, std::uint32_t seed) {
  try {
    compute_with_log(range.name, static_cast<double>(plan_.size) + static_cast<double>(plan_.entries),
                     fmt::format("{} samples, {} epochs of {} documents", plan_.size, plan_.epochs, range.documents),
                     [&] { compute(range, seed); });
  } catch (const std::bad_alloc&) {
    throw EnvironmentError(
        "the order of {} samples, {} epochs of {} documents, takes {} MiB of memory, more than this machine has free: "
        "train for fewer samples, or on a longer text",
        plan_.size, plan_.epochs, range.documents, (plan_.entries * 12 + plan_.size * 4) >> 20);
  }
}

void GptIndex::compute(const DocumentRange& range, std::uint32_t seed) {
  struct Arrays {
    std::vector<std::uint32_t> document_order;
    std::vector<std::int64_t> starts;
    std::variant<std::vector<std::uint32_t>, std::vector<std::uint64_t>> shuffle;
  };
  auto arrays = std::make_shared<Arrays>();
  NumpyRandom random(seed);
  std::vector<std::uint32_t>& documents = arrays->document_order;
  documents.resize(static_cast<std::size_t>(plan_.entries));
  for (auto epoch = documents.begin(); epoch != documents.end(); epoch += range.documents) {
    std::iota(epoch, epoch + range.documents, 0u);
  }
  random.shuffle(std::span(documents).first(static_cast<std::size_t>(plan_.entries_apart)));
  random.shuffle(std::span(documents).subspan(static_cast<std::size_t>(plan_.entries_apart)));

  arrays->starts.reserve(documents.size());
  std::int64_t start = 0;
  for (const std::uint32_t document : documents) {
    arrays->starts.push_back(start);
    start += range.end(document) - range.begin(document);
  }

  if (plan_.size > UINT32_MAX) {
    arrays->shuffle = shuffled_in_two<std::uint64_t>(plan_.size, plan_.apart, random);
  } else {
    arrays->shuffle = shuffled_in_two<std::uint32_t>(plan_.size, plan_.apart, random);
  }
  document_order_ = documents;
  starts_ = arrays->starts;
  std::visit([&](const auto& order) { shuffle_ = std::span(order); }, arrays->shuffle);
  owner_ = std::move(arrays);
}

std::int64_t GptIndex::shuffled(std::int64_t index) const {
  const auto at = [&](const auto& order) { return static_cast<std::int64_t>(order[static_cast<std::size_t>(index)]); };
  return std::visit(at, shuffle_);
}

GptIndex::Position GptIndex::position(std::int64_t sample) const {
  const std::int64_t token = sample * sequence_length_;
  const std::int64_t entry = std::upper_bound(starts_.begin(), starts_.end(), token) - starts_.begin() - 1;
  return {entry, entry < 0 ? 0 : token - starts_[static_cast<std::size_t>(entry)]};
}

}  // namespace trireme::data
