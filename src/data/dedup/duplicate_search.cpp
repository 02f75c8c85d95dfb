#include "src/data/dedup/duplicate_search.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <memory>
#include <mutex>
#include <queue>
#include <tuple>
#include <utility>

#include "src/comm/host_collectives.hpp"
#include "src/data/dedup/minhash.hpp"

namespace trireme::data {
namespace {

struct DigestEntry {
  Hash128 digest;
  std::int64_t document;
};

/// A list of records per rank.
template <class T>
class Outgoing {
 public:
  explicit Outgoing(const Communicator& comm) : lists_(static_cast<std::size_t>(comm.size())) {}
  std::vector<T>& to(std::uint64_t rank) { return lists_[static_cast<std::size_t>(rank)]; }
  std::vector<T> exchange(Communicator& comm) { return all_to_all(comm, lists_); }

 private:
  std::vector<std::vector<T>> lists_;
};

/// Map from documents to their ranks.
class Owners {
 public:
  Owners(Communicator& comm, const std::vector<std::int64_t>& documents)
      : last_(all_gather_number(comm, documents.empty() ? -1 : documents.back())) {
    for (std::size_t r = 1; r < last_.size(); ++r) last_[r] = std::max(last_[r], last_[r - 1]);
  }
  std::uint64_t of(std::int64_t document) const {
    return static_cast<std::uint64_t>(std::ranges::lower_bound(last_, document) - last_.begin());
  }

 private:
  std::vector<std::int64_t> last_;  // documents of each rank and those before it
};

/// (first document of the same text, document) of this rank's non-first documents, by document.
std::vector<DocumentPair> exact_duplicates(Communicator& comm, const Fingerprints& fingerprints, const Owners& owners) {
  const auto ranks = static_cast<std::uint64_t>(comm.size());
  Outgoing<DigestEntry> entries(comm);
  for (std::size_t i = 0; i < fingerprints.documents.size(); ++i) {
    const Hash128& digest = fingerprints.digests[i];
    entries.to(digest.low % ranks).push_back({digest, fingerprints.documents[i]});
  }
  std::vector<DigestEntry> here = entries.exchange(comm);
  std::ranges::sort(here, {}, [](const DigestEntry& entry) { return std::tuple(entry.digest, entry.document); });
  Outgoing<DocumentPair> found(comm);
  std::size_t first = 0;
  for (std::size_t i = 1; i < here.size(); ++i) {
    if (here[i].digest != here[first].digest) first = i;
    if (i != first) found.to(owners.of(here[i].document)).push_back({here[first].document, here[i].document});
  }
  std::vector<DocumentPair> mine = found.exchange(comm);
  std::ranges::sort(mine, {}, &DocumentPair::second);
  return mine;
}

/// A set of shingles, and a 65,536-bit sketch set by its hashes.
struct SketchedSet {
  explicit SketchedSet(std::vector<std::uint64_t> hashes) : shingles(std::move(hashes)) {
    for (const std::uint64_t hash : shingles) bits[hash / 64 % bits.size()] |= std::uint64_t{1} << hash % 64;
  }
  std::size_t size_bytes() const { return sizeof(*this) + shingles.size() * sizeof(shingles[0]); }

  std::vector<std::uint64_t> shingles;
  std::array<std::uint64_t, 1024> bits{};
};

/// Returns whether the Jaccard similarity of the sets is above `threshold`. A bit set in only one implies a shingle
/// that the other lacks. The bits alone reject most pairs.
bool are_similar(const SketchedSet& a, const SketchedSet& b, double threshold) {
  std::int64_t only_a = 0, only_b = 0;  // at least
  for (std::size_t i = 0; i < a.bits.size(); ++i) {
    only_a += std::popcount(a.bits[i] & ~b.bits[i]);
    only_b += std::popcount(b.bits[i] & ~a.bits[i]);
  }
  const std::int64_t size_a = std::ssize(a.shingles), size_b = std::ssize(b.shingles);
  const std::int64_t common = std::min(size_a - only_a, size_b - only_b);  // at most
  if (static_cast<double>(common) < threshold * static_cast<double>(size_a + size_b - common)) return false;
  return jaccard(a.shingles, b.shingles) > threshold;
}

/// Cache of the sets of the latest documents: neighbours in buckets are compared many times.
class RecentSets {
 public:
  using Set = std::shared_ptr<const SketchedSet>;
  explicit RecentSets(const DuplicateSearchOptions& options) : options_(options) {}

  /// Thread-safe.
  Set of(std::int64_t document) {
    {
      const std::scoped_lock lock(mutex_);
      const auto found = sets_.find(document);
      if (found != sets_.end()) return found->second;
    }
    const auto set = std::make_shared<const SketchedSet>(options_.shingle_set(document));
    const std::scoped_lock lock(mutex_);
    if (!sets_.emplace(document, set).second) return set;
    size_bytes_ += set->size_bytes();
    for (order_.push(document); size_bytes_ > max_bytes; order_.pop()) {
      const auto oldest = sets_.extract(order_.front());
      size_bytes_ -= oldest.mapped()->size_bytes();
    }
    return set;
  }

 private:
  static constexpr std::size_t max_bytes = std::size_t{64} << 20;
  const DuplicateSearchOptions& options_;
  std::mutex mutex_;
  std::unordered_map<std::int64_t, Set> sets_;
  std::queue<std::int64_t> order_;
  std::size_t size_bytes_ = 0;
};

/// Compares pairs of documents and unites similar ones. Skips pairs already united or known to differ.
class Comparer {
 public:
  Comparer(ThreadPool& pool, const DuplicateSearchOptions& options) : pool_(pool), options_(options), sets_(options) {}

  void compare(std::vector<DocumentPair> pairs) {
    std::ranges::sort(pairs, {}, [](const DocumentPair& pair) { return std::tuple(pair.second, pair.first); });
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    keep_similar_sketches(pairs);
    gather_kinds(pairs);
    const auto batch_size = static_cast<std::size_t>(16 * pool_.threads());
    std::vector<DocumentPair> rejected;
    for (std::size_t next = 0; next < pairs.size();) {
      std::vector<DocumentPair> batch;
      for (; next < pairs.size() && batch.size() < batch_size; ++next) {
        const bool known = clusters_.first_of(pairs[next].first) == clusters_.first_of(pairs[next].second) ||
                           std::ranges::binary_search(rejected_, pairs[next]);
        if (!known) batch.push_back(pairs[next]);
      }
      compare_batch(batch, rejected);
    }
    std::ranges::sort(rejected);
    const auto middle = static_cast<std::ptrdiff_t>(rejected_.size());
    rejected_.insert(rejected_.end(), rejected.begin(), rejected.end());
    std::inplace_merge(rejected_.begin(), rejected_.begin() + middle, rejected_.end());
  }

  Clusters& clusters() { return clusters_; }
  std::int64_t compared_pairs() const { return compared_pairs_; }

 private:
  /// Removes the pairs whose sketches differ too much.
  void keep_similar_sketches(std::vector<DocumentPair>& pairs) {
    constexpr std::int64_t of_a_task = 1024;
    const std::int64_t count = std::ssize(pairs);
    pool_.parallel_for((count + of_a_task - 1) / of_a_task, [&](std::int64_t task) {
      const std::int64_t end = std::min(count, (task + 1) * of_a_task);
      std::int64_t later = -1;
      std::string sketch;
      for (std::int64_t i = task * of_a_task; i < end; ++i) {
        DocumentPair& pair = pairs[static_cast<std::size_t>(i)];
        if (pair.second != later) sketch = options_.sketch(later = pair.second);
        if (!may_be_similar(options_.sketch(pair.first), sketch, options_.jaccard)) pair = differing;
      }
    });
    std::erase(pairs, differing);
  }

  /// Sorts connected pairs, such as those of one template, next to each other, which keeps their documents in the
  /// cache.
  static void gather_kinds(std::vector<DocumentPair>& pairs) {
    Clusters kinds;
    for (const DocumentPair& pair : pairs) kinds.unite(pair);
    std::vector<std::pair<std::int64_t, DocumentPair>> ordered;
    ordered.reserve(pairs.size());
    for (const DocumentPair& pair : pairs) ordered.emplace_back(kinds.first_of(pair.second), pair);
    std::ranges::stable_sort(ordered, {}, &std::pair<std::int64_t, DocumentPair>::first);
    std::ranges::transform(ordered, pairs.begin(), &std::pair<std::int64_t, DocumentPair>::second);
  }

  void compare_batch(const std::vector<DocumentPair>& batch, std::vector<DocumentPair>& rejected) {
    std::vector<std::size_t> first_pairs;  // first pair of each later document
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (i == 0 || batch[i].second != batch[i - 1].second) first_pairs.push_back(i);
    }
    first_pairs.push_back(batch.size());
    std::vector<char> similar(batch.size());
    pool_.parallel_for(static_cast<std::int64_t>(first_pairs.size()) - 1, [&](std::int64_t document) {
      const std::size_t begin = first_pairs[static_cast<std::size_t>(document)];
      const std::size_t end = first_pairs[static_cast<std::size_t>(document) + 1];
      const RecentSets::Set later = sets_.of(batch[begin].second);
      for (std::size_t i = begin; i < end; ++i) {
        similar[i] = are_similar(*sets_.of(batch[i].first), *later, options_.jaccard) ? 1 : 0;
      }
    });
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (similar[i] != 0) {
        clusters_.unite(batch[i]);
      } else {
        rejected.push_back(batch[i]);
      }
    }
    compared_pairs_ += static_cast<std::int64_t>(batch.size());
  }

  static constexpr DocumentPair differing = {-1, -1};

  ThreadPool& pool_;
  const DuplicateSearchOptions& options_;
  RecentSets sets_;
  Clusters clusters_;
  std::vector<DocumentPair> rejected_;  // sorted
  std::int64_t compared_pairs_ = 0;
};

/// Keys are hashes that include the band: several bands can share a list.
void compare_bands(Communicator& comm, const Fingerprints& fingerprints, const std::vector<char>& is_exact, int begin,
                   int end, const DuplicateSearchOptions& options, Comparer& comparer) {
  const auto ranks = static_cast<std::uint64_t>(comm.size());
  Outgoing<BucketEntry> entries(comm);
  for (std::size_t i = 0; i < fingerprints.documents.size(); ++i) {
    if (is_exact[i] != 0) continue;
    for (int band = begin; band < end; ++band) {
      const std::size_t at = i * static_cast<std::size_t>(fingerprints.bands) + static_cast<std::size_t>(band);
      const std::uint64_t key = fingerprints.band_keys[at];
      entries.to(key % ranks).push_back({key, fingerprints.documents[i]});
    }
  }
  std::vector<BucketEntry> here = entries.exchange(comm);
  Outgoing<DocumentPair> pairs(comm);
  for (const DocumentPair& pair : candidate_pairs(here, options.neighbours)) {
    pairs.to(mix64(static_cast<std::uint64_t>(pair.second)) % ranks).push_back(pair);
  }
  std::vector<DocumentPair> mine = pairs.exchange(comm);
  collectively(comm, [&] { comparer.compare(std::move(mine)); });
}

}  // namespace

std::vector<DocumentPair> candidate_pairs(std::vector<BucketEntry>& entries, std::int64_t neighbours) {
  std::ranges::sort(entries, {}, [](const BucketEntry& entry) { return std::tuple(entry.key, entry.document); });
  std::vector<DocumentPair> pairs;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    for (std::size_t back = 1; back <= i && static_cast<std::int64_t>(back) <= neighbours; ++back) {
      if (entries[i - back].key != entries[i].key) break;
      pairs.push_back({entries[i - back].document, entries[i].document});
    }
  }
  return pairs;
}

std::int64_t Clusters::first_of(std::int64_t document) {
  std::int64_t root = document;
  for (auto found = parent_.find(root); found != parent_.end() && found->second != root; found = parent_.find(root)) {
    root = found->second;
  }
  while (document != root) document = std::exchange(parent_[document], root);
  return root;
}

void Clusters::unite(DocumentPair pair) {
  const std::int64_t a = first_of(pair.first);
  const std::int64_t b = first_of(pair.second);
  parent_[std::max(a, b)] = std::min(a, b);  // chains stay short: first_of points all it passes to the root
}

std::vector<DocumentPair> Clusters::others() {
  std::vector<DocumentPair> result;
  for (const auto& entry : parent_) {
    if (entry.first != entry.second) result.push_back({-1, entry.first});
  }
  for (DocumentPair& pair : result) pair.first = first_of(pair.second);
  std::ranges::sort(result, {}, &DocumentPair::second);
  return result;
}

DuplicateSearchResult find_duplicates(Communicator& comm, ThreadPool& pool, const Fingerprints& fingerprints,
                                      const DuplicateSearchOptions& options) {
  const Owners owners(comm, fingerprints.documents);
  const std::vector<DocumentPair> exact = exact_duplicates(comm, fingerprints, owners);
  std::vector<char> is_exact(fingerprints.documents.size());
  for (const DocumentPair& pair : exact) {
    const auto at = std::ranges::lower_bound(fingerprints.documents, pair.second) - fingerprints.documents.begin();
    is_exact[static_cast<std::size_t>(at)] = 1;
  }
  Comparer comparer(pool, options);
  // One band at a time keeps the lists short; several are faster for few documents.
  constexpr std::int64_t wanted_entries = std::int64_t{1} << 20;
  const std::int64_t max_documents =
      std::ranges::max(all_gather_number(comm, static_cast<std::int64_t>(fingerprints.documents.size())));
  const auto step = static_cast<int>(
      std::clamp<std::int64_t>(wanted_entries / std::max<std::int64_t>(max_documents, 1), 1, fingerprints.bands + 1));
  for (int band = 0; band < fingerprints.bands; band += step) {
    compare_bands(comm, fingerprints, is_exact, band, std::min(band + step, fingerprints.bands), options, comparer);
  }

  // Rank 0 merges the ranks' clusters and sends the results to the documents' owners.
  Outgoing<DocumentPair> to_first(comm);
  to_first.to(0) = comparer.clusters().others();
  to_first.to(0).insert(to_first.to(0).end(), exact.begin(), exact.end());
  Clusters clusters;
  for (const DocumentPair& pair : to_first.exchange(comm)) clusters.unite(pair);
  Outgoing<DocumentPair> to_owners(comm);
  for (const DocumentPair& pair : clusters.others()) to_owners.to(owners.of(pair.second)).push_back(pair);

  DuplicateSearchResult result;
  result.compared_pairs = comparer.compared_pairs();
  for (const DocumentPair& pair : to_owners.exchange(comm)) {
    const bool same_text = std::ranges::binary_search(exact, pair.second, {}, &DocumentPair::second);
    result.duplicates.push_back({pair.second, pair.first, same_text ? 1 : 0});
  }
  return result;
}

}  // namespace trireme::data
