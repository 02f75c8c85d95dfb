#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/base/hash.hpp"
#include "src/base/thread_pool.hpp"
#include "src/comm/communicator.hpp"
#include "src/data/dedup/clusters.hpp"

namespace trireme::data {

/// A document in a bucket of locality-sensitive hashing.
struct BucketEntry {
  std::uint64_t key;
  std::int64_t document;
};

/// Calls `take` for each document with each of the nearest `neighbours` before it in its bucket (entries with the same
/// key), in the order of the later documents. Entries are in the order of documents.
void candidate_pairs(std::span<const BucketEntry> entries, std::int64_t neighbours,
                     const std::function<void(const DocumentPair&)>& take);

/// Fingerprints of a rank's documents, by which duplicates are found: 24 + 8 x bands bytes per document of any length.
struct Fingerprints {
  std::vector<std::int64_t> documents;  ///< numbers in the entire input; ascending within and across ranks
  std::vector<Hash128> digests;         ///< digests of the texts
  int bands = 0;
  std::vector<std::uint64_t> band_keys;  ///< [documents, bands], of MinHash; without bands finds only exact duplicates
};

struct DuplicateSearchOptions {
  double jaccard = 0.7;          ///< documents more similar than this are duplicates
  std::int64_t neighbours = 16;  ///< documents of one bucket that a document is compared with: the nearest before it
  /// Returns the MinHash sketch of any rank's document, which rejects most candidates without their texts. All threads
  /// call it.
  std::function<std::string(std::int64_t)> sketch;
  /// Returns the set of shingles of any rank's document, each once. Must be thread-safe.
  std::function<std::vector<std::uint64_t>(std::int64_t)> shingle_set;
};

struct Duplicate {
  std::int64_t document;
  std::int64_t kept;      ///< the first document of its cluster
  std::int64_t is_exact;  ///< 1 if an earlier document has the same text
};

struct DuplicateSearchResult {
  std::vector<Duplicate> duplicates;  ///< duplicates among this rank's documents, ascending
  std::int64_t compared_pairs = 0;    ///< shingle sets compared by this rank
};

/// Finds the documents that repeat an earlier one. Equal texts are found by their digests. The first document of each
/// text enters the search for near duplicates. Documents with an equal key in some band are candidates. The sketches
/// reject most of them; the sets of shingles of the others are compared. Pairs above the threshold are united
/// transitively into clusters, of which the first document is kept. The result is independent of the number of ranks.
///
/// Collective. A rank holds the entries of one band of its share of the documents at a time, or of several up to some
/// megabytes. It also holds the compared pairs and, on rank 0, the duplicates of all ranks.
DuplicateSearchResult find_duplicates(Communicator& comm, ThreadPool& pool, const Fingerprints& fingerprints,
                                      const DuplicateSearchOptions& options);

}  // namespace trireme::data
