#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

namespace trireme::data {

/// A set of shingles, and a 65,536-bit sketch set by its hashes.
struct SketchedSet {
  explicit SketchedSet(std::vector<std::uint64_t> hashes);
  std::size_t size_bytes() const { return sizeof(*this) + shingles.size() * sizeof(shingles[0]); }

  std::vector<std::uint64_t> shingles;
  std::array<std::uint64_t, 1024> bits{};
};

/// Returns whether the Jaccard similarity of the sets is above `threshold`.
bool are_similar(const SketchedSet& a, const SketchedSet& b, double threshold);

/// Cache of the sets of the latest documents, up to 64 MiB: the documents of one template are compared many times.
/// Thread-safe.
class RecentSets {
 public:
  using Set = std::shared_ptr<const SketchedSet>;
  /// Returns the set of shingles of a document, each once. All threads call it.
  using Read = std::function<std::vector<std::uint64_t>(std::int64_t)>;
  explicit RecentSets(Read read) : read_(std::move(read)) {}

  Set of(std::int64_t document);

 private:
  Read read_;
  std::mutex mutex_;
  std::unordered_map<std::int64_t, Set> sets_;
  std::queue<std::int64_t> order_;
  std::size_t size_bytes_ = 0;
};

}  // namespace trireme::data
