#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::data {

/// Two documents; the first comes before the second in the input.
struct DocumentPair {
  std::int64_t first;
  std::int64_t second;
  auto operator<=>(const DocumentPair&) const = default;
};

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
  struct Node {
    std::int64_t document = -1;
    std::int64_t parent = -1;
  };
  /// Returns the node of a document, or the free one for it.
  Node& node_of(std::int64_t document);
  void set_parent(std::int64_t document, std::int64_t parent);

  std::vector<Node> nodes_ = std::vector<Node>(16);  // hash table with open addressing
  int shift_ = 60;                                   // from a hash to the index of a node
  std::size_t count_ = 0;
};

}  // namespace trireme::data
