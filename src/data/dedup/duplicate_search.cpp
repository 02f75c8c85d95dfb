#include "src/data/dedup/duplicate_search.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "src/comm/host_collectives.hpp"
#include "src/data/dedup/clusters.hpp"
#include "src/data/dedup/minhash.hpp"
#include "src/data/dedup/recent_sets.hpp"

namespace trireme::data {
namespace {

constexpr DocumentPair no_pair = {-1, -1};

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
  std::vector<T> exchange(Communicator& comm) {
    return lists_.size() == 1 ? std::move(lists_[0]) : all_to_all(comm, lists_);
  }

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

/// Filter of pairs that several bands name, which keeps those met last. Of one later document it keeps nearly all.
class MetPairs {
 public:
  /// Returns whether the pair is not one of those kept, and keeps it.
  bool add(const DocumentPair& pair) {
    const std::uint64_t hash =
        splitmix64(static_cast<std::uint64_t>(pair.first), static_cast<std::uint64_t>(pair.second));
    DocumentPair& slot = slots_[hash % slots_.size()];
    return std::exchange(slot, pair) != pair;
  }

 private:
  std::vector<DocumentPair> slots_ = std::vector<DocumentPair>(std::size_t{1} << 12, no_pair);
};

/// Cache of the sketches read last.
class RecentSketches {
 public:
  explicit RecentSketches(const std::function<std::string(std::int64_t)>& read) : read_(read) {}
  std::string_view of(std::int64_t document) {
    auto& [cached, sketch] = sketches_[static_cast<std::size_t>(document) % sketches_.size()];
    if (std::exchange(cached, document) != document) sketch = read_(document);
    return sketch;
  }

 private:
  const std::function<std::string(std::int64_t)>& read_;
  std::vector<std::pair<std::int64_t, std::string>> sketches_ =
      std::vector<std::pair<std::int64_t, std::string>>(std::size_t{1} << 13, {-1, {}});
};

/// A document, and earlier ones that it may be similar to.
struct Candidates {
  std::int64_t document;
  std::span<DocumentPair> pairs;
  std::int64_t kind = 0;
};

/// Compares pairs of documents and unites similar ones. Skips pairs already united or known to differ.
class Comparer {
 public:
  Comparer(ThreadPool& pool, const DuplicateSearchOptions& options)
      : pool_(pool), options_(options), sets_(options.shingle_set) {}

  /// A pair may be named several times.
  void compare(std::vector<DocumentPair> pairs) {
    sort_rejected();
    std::erase_if(pairs, [&](const DocumentPair& pair) { return is_known(pair); });
    if (!std::ranges::is_sorted(pairs, {}, &DocumentPair::second)) {
      std::ranges::stable_sort(pairs, {}, &DocumentPair::second);
    }
    std::vector<Candidates> candidates;
    for (auto begin = pairs.begin(); begin != pairs.end();) {
      const auto end = std::find_if(begin, pairs.end(), [&](const auto& pair) { return pair.second != begin->second; });
      candidates.push_back({begin->second, std::span(begin, end)});
      begin = end;
    }
    keep_likely(candidates);
    for (std::span<Candidates> rest = candidates; !rest.empty();) {
      const std::span<Candidates> batch = rest.first(std::min(rest.size(), documents_at_once));
      compare_documents(batch);
      rest = rest.subspan(batch.size());
    }
  }

  Clusters& clusters() { return clusters_; }
  /// Unites documents that another rank has found to be in one cluster.
  void take_as_similar(const DocumentPair& pair) { clusters_.unite(pair); }
  std::int64_t compared_pairs() const { return compared_pairs_; }

 private:
  /// Keeps the pairs whose sketches may be those of similar documents, once each. Connected documents, such as those of
  /// one template, follow each other, which keeps them in the cache. Of each those pairs come first that are most
  /// likely similar.
  void keep_likely(std::vector<Candidates>& candidates) {
    pool_.parallel_ranges(std::ssize(candidates), documents_per_cache, [&](std::int64_t begin, std::int64_t end) {
      RecentSketches sketches(options_.sketch);
      for (std::int64_t i = begin; i < end; ++i) {
        Candidates& of = candidates[static_cast<std::size_t>(i)];
        of.pairs = of.pairs.first(likely_pairs(of.pairs, sketches));
      }
    });
    std::erase_if(candidates, [](const Candidates& of) { return of.pairs.empty(); });
    Clusters kinds;
    for (const Candidates& of : candidates) {
      for (const DocumentPair& pair : of.pairs) kinds.unite(pair);
    }
    for (Candidates& of : candidates) of.kind = kinds.first_of(of.document);
    std::ranges::sort(candidates, {}, [](const Candidates& of) { return std::tuple(of.kind, of.document); });
  }

  /// Moves those of a document's pairs to the front, and returns their number.
  std::size_t likely_pairs(std::span<DocumentPair> pairs, RecentSketches& sketches) const {
    struct Likely {
      int agreeing;
      std::int64_t first;
      auto operator<=>(const Likely&) const = default;
    };
    const std::int64_t document = pairs.front().second;
    const std::string sketch = options_.sketch(document);
    std::vector<Likely> likely;
    for (const DocumentPair& pair : pairs) {
      const int agreeing = agreeing_bytes(sketches.of(pair.first), sketch);
      if (may_be_similar(agreeing, sketch.size(), options_.jaccard)) likely.push_back({agreeing, pair.first});
    }
    std::ranges::sort(likely, std::greater());
    likely.erase(std::unique(likely.begin(), likely.end()), likely.end());
    for (std::size_t i = 0; i < likely.size(); ++i) pairs[i] = {likely[i].first, document};
    return likely.size();
  }

  void sort_rejected() {
    const auto middle = rejected_.begin() + static_cast<std::ptrdiff_t>(sorted_rejected_);
    std::sort(middle, rejected_.end());
    std::inplace_merge(rejected_.begin(), middle, rejected_.end());
    sorted_rejected_ = rejected_.size();
  }

  bool is_known(const DocumentPair& pair) {
    return clusters_.first_of(pair.first) == clusters_.first_of(pair.second) ||
           std::ranges::binary_search(rejected_, pair);
  }

  /// Compares each of some documents with one of its candidates at a time, since most of the others are in the same
  /// cluster.
  void compare_documents(std::span<Candidates> candidates) {
    for (;;) {
      std::vector<DocumentPair> batch;
      for (Candidates& of : candidates) {
        while (!of.pairs.empty() && clusters_.first_of(of.pairs.front().first) == clusters_.first_of(of.document)) {
          of.pairs = of.pairs.subspan(1);
        }
        if (of.pairs.empty()) continue;
        batch.push_back(of.pairs.front());
        of.pairs = of.pairs.subspan(1);
      }
      if (batch.empty()) return;
      std::vector<char> similar(batch.size());
      pool_.parallel_for(std::ssize(batch), [&](std::int64_t i) {
        const auto& [first, second] = batch[static_cast<std::size_t>(i)];
        similar[static_cast<std::size_t>(i)] =
            are_similar(*sets_.of(first), *sets_.of(second), options_.jaccard) ? 1 : 0;
      });
      for (std::size_t i = 0; i < batch.size(); ++i) {
        if (similar[i] != 0) {
          clusters_.unite(batch[i]);
        } else {
          rejected_.push_back(batch[i]);
        }
      }
      compared_pairs_ += std::ssize(batch);
    }
  }

  static constexpr std::int64_t documents_per_cache = 1024;
  static constexpr std::size_t documents_at_once = 64;
  ThreadPool& pool_;
  const DuplicateSearchOptions& options_;
  RecentSets sets_;
  Clusters clusters_;
  std::vector<DocumentPair> rejected_;
  std::size_t sorted_rejected_ = 0;  // number of sorted ones, at the front
  std::int64_t compared_pairs_ = 0;
};

/// An entry in the order of keys.
struct Place {
  std::uint64_t key;
  std::int64_t document;
  std::size_t entry;
};

/// Sorts entries by key, those of one key in their order. Their highest bits divide keys, which are hashes, into about
/// as many buckets as entries: linear time.
std::vector<Place> by_key(std::span<const BucketEntry> entries) {
  constexpr int digit_bits = 11;
  std::vector<Place> places(entries.size()), sorted(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) places[i] = {entries[i].key, entries[i].document, i};
  const int digits = (std::bit_width(entries.size()) + digit_bits - 1) / digit_bits;
  const auto highest = [&](std::uint64_t key, int count) { return key >> (64 - digit_bits * count); };
  for (int digit = digits; digit > 0; --digit) {
    const auto bucket_of = [&](const Place& place) { return highest(place.key, digit) % (1u << digit_bits); };
    std::vector<std::size_t> ends(std::size_t{1} << digit_bits);  // end of each bucket; at first its begin
    for (const Place& place : places) ++ends[bucket_of(place)];
    std::exclusive_scan(ends.begin(), ends.end(), ends.begin(), std::size_t{0});
    for (const Place& place : places) sorted[ends[bucket_of(place)]++] = place;
    places.swap(sorted);
  }
  for (auto begin = places.begin(); begin != places.end();) {
    const auto end = std::find_if(begin, places.end(), [&](const Place& place) {
      return digits > 0 && highest(place.key, digits) != highest(begin->key, digits);
    });
    if (!std::ranges::is_sorted(begin, end, {}, &Place::key)) std::ranges::stable_sort(begin, end, {}, &Place::key);
    begin = end;
  }
  return places;
}

/// Asks the ranks of the first documents of `pairs` for the first ones of their clusters there. All others of that
/// cluster are then known to be similar, however many pairs have them.
void take_clusters_of_owners(Communicator& comm, const Owners& owners, const std::vector<DocumentPair>& pairs,
                             Comparer& comparer) {
  Outgoing<DocumentPair> questions(comm);  // this rank, document
  for (const DocumentPair& pair : pairs) questions.to(owners.of(pair.first)).push_back({comm.rank(), pair.first});
  Outgoing<DocumentPair> answers(comm);
  for (const auto& [asking, document] : questions.exchange(comm)) {
    const std::int64_t first = comparer.clusters().first_of(document);
    if (first != document) answers.to(static_cast<std::uint64_t>(asking)).push_back({first, document});
  }
  for (const DocumentPair& pair : answers.exchange(comm)) comparer.take_as_similar(pair);
}

/// Compares first documents of one rank, then those of several: the clusters of their ranks are known by then.
/// Keys are hashes that include the band: several bands can share a list.
void compare_bands(Communicator& comm, const Fingerprints& fingerprints, const Owners& owners,
                   const std::vector<char>& is_exact, int begin, int end, const DuplicateSearchOptions& options,
                   Comparer& comparer) {
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
  const std::vector<BucketEntry> here = entries.exchange(comm);
  Outgoing<DocumentPair> pairs(comm);
  MetPairs met;
  candidate_pairs(here, options.neighbours, [&](const DocumentPair& pair) {
    if (met.add(pair)) pairs.to(owners.of(pair.second)).push_back(pair);  // where most of its cluster is known
  });
  std::vector<DocumentPair> mine = pairs.exchange(comm);
  const auto across = std::ranges::stable_partition(
      mine, [&](const DocumentPair& pair) { return owners.of(pair.first) == static_cast<std::uint64_t>(comm.rank()); });
  const std::vector<DocumentPair> of_ranks(across.begin(), across.end());
  mine.erase(across.begin(), across.end());
  collectively(comm, [&] { comparer.compare(std::move(mine)); });
  if (comm.size() == 1) return;
  take_clusters_of_owners(comm, owners, of_ranks, comparer);
  collectively(comm, [&] { comparer.compare(of_ranks); });
}

}  // namespace

void candidate_pairs(std::span<const BucketEntry> entries, std::int64_t neighbours,
                     const std::function<void(const DocumentPair&)>& take) {
  const std::vector<Place> places = by_key(entries);
  std::vector<std::size_t> place_of(entries.size());  // 0 of entries that are the first of their keys
  for (std::size_t at = 1; at < places.size(); ++at) {
    if (places[at - 1].key == places[at].key) place_of[places[at].entry] = at;
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::size_t at = place_of[i];
    for (std::size_t back = 1; back <= at && static_cast<std::int64_t>(back) <= neighbours; ++back) {
      if (places[at - back].key != entries[i].key) break;
      take({places[at - back].document, entries[i].document});
    }
  }
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
    compare_bands(comm, fingerprints, owners, is_exact, band, std::min(band + step, fingerprints.bands), options,
                  comparer);
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
