#include "src/data/dedup/near_duplicates.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace trireme::data {

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

}  // namespace trireme::data
