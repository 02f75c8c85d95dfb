#include "src/data/dataset/gpt/cyclic_samples.hpp"

#include <numeric>
#include <random>
#include <utility>

#include "src/base/check.hpp"

namespace trireme::data {

std::vector<std::uint32_t> torch_permutation(std::int64_t count, std::int64_t seed) {
  TRIREME_CHECK(count >= 0 && count <= UINT32_MAX, ConfigError,
                "an epoch of {} samples has no permutation of 32 bits. Try <dataloader_type> single", count);
  std::mt19937 generator(static_cast<std::uint32_t>(seed));
  std::vector<std::uint32_t> order(static_cast<std::size_t>(count));
  // Both forms are at::native::randperm_cpu's; the second one draws 64 bits, high half first.
  if (count < UINT32_MAX / 20) {
    std::iota(order.begin(), order.end(), 0u);
    for (std::size_t i = 0; i + 1 < order.size(); ++i) {
      std::swap(order[i], order[i + generator() % (order.size() - i)]);
    }
    return order;
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::uint64_t high = generator();
    const std::uint64_t draw = high << 32 | generator();
    const std::size_t place = draw % (i + 1);
    order[i] = order[place];
    order[place] = static_cast<std::uint32_t>(i);
  }
  return order;
}

CyclicSamples::CyclicSamples(std::unique_ptr<NextTokenSamples> epoch, std::int64_t size, DocumentEnds ends)
    : NextTokenSamples(ends), epoch_(std::move(epoch)), size_(size) {
  TRIREME_CHECK(epoch_->size() > 0, DataError, "an epoch without samples cannot be repeated");
}

CyclicSamples::Order CyclicSamples::order(std::int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  Order& order = orders_[epoch];
  if (!order) order = std::make_shared<std::vector<std::uint32_t>>(torch_permutation(epoch_->size(), epoch));
  const Order found = order;
  // A batch may begin in one epoch and end in the next.
  if (orders_.size() > 2) orders_.erase(epoch == orders_.begin()->first ? std::prev(orders_.end()) : orders_.begin());
  return found;
}

std::int64_t CyclicSamples::sample_at(std::int64_t index) const {
  const std::int64_t place = index % epoch_->size();
  return (*order(index / epoch_->size()))[static_cast<std::size_t>(place)];
}

void CyclicSamples::read_text(std::int64_t index, std::span<std::int32_t> text) const {
  epoch_->read_text(sample_at(index), text);
}

std::vector<std::int64_t> CyclicSamples::document_starts(std::int64_t index) const {
  return epoch_->document_starts(sample_at(index));
}

}  // namespace trireme::data
