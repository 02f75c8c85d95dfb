#include "src/data/dedup/duplicate_search.hpp"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "src/comm/host_collectives.hpp"
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

/// Filter of pairs that several bands name, which keeps those met last.
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
  std::vector<DocumentPair> slots_ = std::vector<DocumentPair>(std::size_t{1} << 18, no_pair);
};

/// Compares pairs of documents and unites similar ones. Skips pairs already united or known to differ.
class Comparer {
 public:
  Comparer(ThreadPool& pool, const DuplicateSearchOptions& options)
      : pool_(pool), options_(options), sets_(options.shingle_set) {}

  void compare(std::vector<DocumentPair> pairs) {
    std::erase_if(pairs, [&](const DocumentPair& pair) { return is_known(pair); });
    std::ranges::sort(pairs, {}, [](const DocumentPair& pair) { return std::tuple(pair.second, pair.first); });
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    pairs = likely_pairs(pairs);
    std::vector<DocumentPair> rejected;
    for (std::span<const DocumentPair> rest = pairs; !rest.empty();) {
      std::vector<std::span<const DocumentPair>> pairs_of;  // by later document
      while (!rest.empty() && pairs_of.size() < documents_at_once) {
        const auto end =
            std::ranges::find_if(rest, [&](const DocumentPair& pair) { return pair.second != rest.front().second; });
        pairs_of.push_back(rest.first(static_cast<std::size_t>(end - rest.begin())));
        rest = rest.subspan(pairs_of.back().size());
      }
      compare_documents(pairs_of, rejected);
    }
    std::ranges::sort(rejected);
    const auto middle = static_cast<std::ptrdiff_t>(rejected_.size());
    rejected_.insert(rejected_.end(), rejected.begin(), rejected.end());
    std::inplace_merge(rejected_.begin(), rejected_.begin() + middle, rejected_.end());
  }

  Clusters& clusters() { return clusters_; }
  /// Unites documents that another rank has found to be in one cluster.
  void take_as_similar(const DocumentPair& pair) { clusters_.unite(pair); }
  std::int64_t compared_pairs() const { return compared_pairs_; }

 private:
  /// Returns the pairs whose sketches may be those of similar documents. Connected ones, such as those of one template,
  /// follow each other, which keeps their documents in the cache. Of a later document those come first that are most
  /// likely similar.
  std::vector<DocumentPair> likely_pairs(const std::vector<DocumentPair>& pairs) {
    struct Candidate {
      std::int64_t kind;
      DocumentPair pair;
      int agreeing;
    };
    std::vector<Candidate> candidates(pairs.size());
    pool_.parallel_ranges(std::ssize(pairs), sketches_at_once, [&](std::int64_t begin, std::int64_t end) {
      // The sketches read last, by document: neighbours share them.
      std::vector<std::pair<std::int64_t, std::string>> read(sketches_at_once, {-1, {}});
      const auto sketch_of = [&](std::int64_t document) -> const std::string& {
        auto& [of, sketch] = read[static_cast<std::size_t>(document % sketches_at_once)];
        if (std::exchange(of, document) != document) sketch = options_.sketch(document);
        return sketch;
      };
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        const std::string later = sketch_of(pairs[i].second);
        candidates[i] = {0, pairs[i], agreeing_bytes(sketch_of(pairs[i].first), later)};
        if (!may_be_similar(candidates[i].agreeing, later.size(), options_.jaccard)) candidates[i].pair = no_pair;
      }
    });
    std::erase_if(candidates, [](const Candidate& candidate) { return candidate.pair == no_pair; });
    Clusters kinds;
    for (const Candidate& candidate : candidates) kinds.unite(candidate.pair);
    for (Candidate& candidate : candidates) candidate.kind = kinds.first_of(candidate.pair.second);
    std::ranges::sort(candidates, {}, [](const Candidate& candidate) {
      return std::tuple(candidate.kind, candidate.pair.second, -candidate.agreeing, -candidate.pair.first);
    });
    std::vector<DocumentPair> likely(candidates.size());
    std::ranges::transform(candidates, likely.begin(), &Candidate::pair);
    return likely;
  }

  bool is_known(const DocumentPair& pair) {
    return clusters_.first_of(pair.first) == clusters_.first_of(pair.second) ||
           std::ranges::binary_search(rejected_, pair);
  }

  /// Compares some documents with the earlier ones in their pairs: each with one of them at a time, since most of the
  /// others are in the same cluster.
  void compare_documents(std::vector<std::span<const DocumentPair>>& pairs_of, std::vector<DocumentPair>& rejected) {
    for (;;) {
      std::vector<DocumentPair> batch;
      for (std::span<const DocumentPair>& pairs : pairs_of) {
        while (!pairs.empty() && is_known(pairs.front())) pairs = pairs.subspan(1);
        if (pairs.empty()) continue;
        batch.push_back(pairs.front());
        pairs = pairs.subspan(1);
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
          rejected.push_back(batch[i]);
        }
      }
      compared_pairs_ += std::ssize(batch);
    }
  }

  static constexpr std::int64_t sketches_at_once = 1024;
  static constexpr std::size_t documents_at_once = 64;
  ThreadPool& pool_;
  const DuplicateSearchOptions& options_;
  RecentSets sets_;
  Clusters clusters_;
  std::vector<DocumentPair> rejected_;  // sorted
  std::int64_t compared_pairs_ = 0;
};

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
  std::vector<BucketEntry> here = entries.exchange(comm);
  Outgoing<DocumentPair> pairs(comm);
  MetPairs met;
  candidate_pairs(here, options.neighbours, [&](const DocumentPair& pair) {
    if (met.add(pair)) pairs.to(owners.of(pair.second)).push_back(pair);  // where most of its cluster is known
  });
  std::vector<DocumentPair> mine = pairs.exchange(comm);
  const auto across = std::ranges::partition(
      mine, [&](const DocumentPair& pair) { return owners.of(pair.first) == static_cast<std::uint64_t>(comm.rank()); });
  const std::vector<DocumentPair> of_ranks(across.begin(), across.end());
  mine.erase(across.begin(), across.end());
  collectively(comm, [&] { comparer.compare(std::move(mine)); });
  if (comm.size() == 1) return;
  take_clusters_of_owners(comm, owners, of_ranks, comparer);
  collectively(comm, [&] { comparer.compare(of_ranks); });
}

}  // namespace

void candidate_pairs(std::vector<BucketEntry>& entries, std::int64_t neighbours,
                     const std::function<void(const DocumentPair&)>& take) {
  std::ranges::sort(entries, {}, [](const BucketEntry& entry) { return std::tuple(entry.key, entry.document); });
  for (std::size_t i = 0; i < entries.size(); ++i) {
    for (std::size_t back = 1; back <= i && static_cast<std::int64_t>(back) <= neighbours; ++back) {
      if (entries[i - back].key != entries[i].key) break;
      take({entries[i - back].document, entries[i].document});
    }
  }
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
