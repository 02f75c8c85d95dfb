#include "src/data/dedup/recent_sets.hpp"

#include <algorithm>
#include <bit>

#include "src/data/dedup/minhash.hpp"

namespace trireme::data {
namespace {
constexpr std::size_t max_bytes = std::size_t{64} << 20;
}  // namespace

SketchedSet::SketchedSet(std::vector<std::uint64_t> hashes) : shingles(std::move(hashes)) {
  for (const std::uint64_t hash : shingles) bits[hash / 64 % bits.size()] |= std::uint64_t{1} << hash % 64;
}

bool are_similar(const SketchedSet& a, const SketchedSet& b, double threshold) {
  // A bit set in only one implies a shingle that the other lacks. The bits alone reject most pairs.
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

RecentSets::Set RecentSets::of(std::int64_t document) {
  {
    const std::scoped_lock lock(mutex_);
    const auto found = sets_.find(document);
    if (found != sets_.end()) return found->second;
  }
  const auto set = std::make_shared<const SketchedSet>(read_(document));
  const std::scoped_lock lock(mutex_);
  if (!sets_.emplace(document, set).second) return set;
  size_bytes_ += set->size_bytes();
  for (order_.push(document); size_bytes_ > max_bytes; order_.pop()) {
    const auto oldest = sets_.extract(order_.front());
    size_bytes_ -= oldest.mapped()->size_bytes();
  }
  return set;
}

}  // namespace trireme::data
