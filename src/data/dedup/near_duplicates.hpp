#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace trireme::data {

/// A document of a bucket of locality-sensitive hashing.
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

/// Each document with those before it in its bucket (entries with the same key), the nearest `neighbours` of them.
/// Sorts the entries: the result depends on which there are, not on their order.
std::vector<DocumentPair> candidate_pairs(std::vector<BucketEntry>& entries, std::int64_t neighbours);

/// Documents that belong together, directly or through others. The first document identifies a cluster, whatever the
/// order of the pairs. Holds only documents that are in some pair.
class Clusters {
 public:
  void unite(DocumentPair pair);
  /// The first document of the cluster; a document that is in no pair is its own.
  std::int64_t first_of(std::int64_t document);
  /// (first of its cluster, document) of every document that is not the first, sorted by document.
  std::vector<DocumentPair> others();

 private:
  std::unordered_map<std::int64_t, std::int64_t> parent_;
};

}  // namespace trireme::data
