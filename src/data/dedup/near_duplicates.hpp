#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace trireme::data {

/// A document in a bucket of locality-sensitive hashing.
struct BucketEntry {
  std::uint64_t key;
  std::int64_t document;
};

/// Two documents; the first comes before the second in the input.
struct DocumentPair {
  std::int64_t first;
  std::int64_t second;
  auto operator<=>(const DocumentPair&) const = default;
};

/// Pairs each document with the nearest `neighbours` before it in its bucket (entries with the same key). Sorts the
/// entries: the result does not depend on their order.
std::vector<DocumentPair> candidate_pairs(std::vector<BucketEntry>& entries, std::int64_t neighbours);

/// Disjoint-set forest of documents. The first document identifies a cluster, independent of the order of pairs. Holds
/// only documents that occur in a pair.
class Clusters {
 public:
  void unite(DocumentPair pair);
  /// Returns the first document of the cluster; a document in no pair is its own.
  std::int64_t first_of(std::int64_t document);
  /// Returns (first of its cluster, document) for every non-first document, sorted by document.
  std::vector<DocumentPair> others();

 private:
  std::unordered_map<std::int64_t, std::int64_t> parent_;
};

}  // namespace trireme::data
