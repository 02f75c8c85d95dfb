#include "src/model/stage/activation_store.hpp"

#include <algorithm>

namespace trireme::model {

Arena& ActivationStore::open(int chunk, int micro_batch) {
  const std::size_t number = next_number();
  constexpr std::size_t block_bytes = std::size_t{1} << 22;
  if (number == arenas_.size()) {
    arenas_.push_back(
        std::make_unique<Arenas>(Arena(allocator_, block_bytes, growth_), Arena(backend_.host_memory(), block_bytes)));
  }
  free_.erase(number);
  open_[{chunk, micro_batch}] = number;
  return arenas_[number]->device;
}

void ActivationStore::close(int chunk, int micro_batch) {
  const auto found = open_.find({chunk, micro_batch});
  arenas_[found->second]->device.clear();
  arenas_[found->second]->host.clear();
  free_.insert(found->second);
  open_.erase(found);
}

void ActivationStore::close_all() {
  while (!open_.empty()) close(open_.begin()->first.first, open_.begin()->first.second);
  host_.close_all();
}

std::size_t ActivationStore::used_bytes() const {
  std::size_t sum = host_.used_bytes();
  for (const auto& arena : arenas_) sum += arena->device.used_bytes();
  return sum;
}

std::size_t ActivationStore::reserved_bytes() const {
  std::size_t sum = host_.reserved_bytes();
  for (const auto& arena : arenas_) sum += arena->device.reserved_bytes();
  return sum;
}

std::size_t ActivationStore::host_bytes() const {
  std::size_t sum = 0;
  for (const auto& arena : arenas_) sum += arena->host.reserved_bytes();
  return sum;
}

void ActivationStore::note_peak() { peak_bytes_ = std::max(peak_bytes_, used_bytes()); }

}  // namespace trireme::model
