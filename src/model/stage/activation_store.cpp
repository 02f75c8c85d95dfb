#include "src/model/stage/activation_store.hpp"

#include <algorithm>

namespace trireme::model {

Arena& ActivationStore::open(int chunk, int micro_batch) {
  const std::size_t number = next_number();
  if (number == arenas_.size()) arenas_.push_back(std::make_unique<Arena>(allocator_, std::size_t{1} << 22));
  free_.erase(number);
  open_[{chunk, micro_batch}] = number;
  return *arenas_[number];
}

void ActivationStore::close(int chunk, int micro_batch) {
  const auto found = open_.find({chunk, micro_batch});
  arenas_[found->second]->clear();
  free_.insert(found->second);
  open_.erase(found);
}

void ActivationStore::close_all() {
  while (!open_.empty()) close(open_.begin()->first.first, open_.begin()->first.second);
}

std::size_t ActivationStore::used_bytes() const {
  std::size_t sum = 0;
  for (const auto& arena : arenas_) sum += arena->used_bytes();
  return sum;
}

std::size_t ActivationStore::reserved_bytes() const {
  std::size_t sum = 0;
  for (const auto& arena : arenas_) sum += arena->reserved_bytes();
  return sum;
}

void ActivationStore::note_peak() { peak_bytes_ = std::max(peak_bytes_, used_bytes()); }

}  // namespace trireme::model
