#include "src/data/dedup/clusters.hpp"

#include <algorithm>
#include <utility>

namespace trireme::data {

Clusters::Node& Clusters::node_of(std::int64_t document) {
  constexpr std::uint64_t golden_ratio = 0x9E3779B97F4A7C15u;
  std::size_t at = static_cast<std::uint64_t>(document) * golden_ratio >> shift_;
  while (nodes_[at].document != document && nodes_[at].document >= 0) at = (at + 1) & (nodes_.size() - 1);
  return nodes_[at];
}

void Clusters::set_parent(std::int64_t document, std::int64_t parent) {
  if (count_ * 2 >= nodes_.size()) {
    std::vector<Node> old(nodes_.size() * 2);
    old.swap(nodes_);
    --shift_;
    for (const Node& node : old) {
      if (node.document >= 0) node_of(node.document) = node;
    }
  }
  Node& node = node_of(document);
  count_ += node.document < 0 ? 1 : 0;
  node = {document, parent};
}

std::int64_t Clusters::first_of(std::int64_t document) {
  std::int64_t root = document;
  for (const Node* node = &node_of(root); node->document >= 0 && node->parent != root; node = &node_of(root)) {
    root = node->parent;
  }
  while (document != root) document = std::exchange(node_of(document).parent, root);
  return root;
}

void Clusters::unite(DocumentPair pair) {
  const std::int64_t a = first_of(pair.first);
  const std::int64_t b = first_of(pair.second);
  set_parent(std::max(a, b), std::min(a, b));  // chains stay short: first_of points all it passes to the root
}

std::vector<DocumentPair> Clusters::others() {
  std::vector<DocumentPair> result;
  for (const Node& node : nodes_) {
    if (node.document != node.parent) result.push_back({-1, node.document});
  }
  for (DocumentPair& pair : result) pair.first = first_of(pair.second);
  std::ranges::sort(result, {}, &DocumentPair::second);
  return result;
}

}  // namespace trireme::data
