#include "src/model/stage/host_activations.hpp"

namespace trireme::model {

HostActivations::HostActivations(Backend& backend) : backend_(backend) {
  for (int i = 0; i < slots; ++i) slots_.push_back({.arena = Arena(backend, std::size_t{1} << 22)});
}

HostActivations::~HostActivations() {
  if (!copying_) return;
  try {
    copying_->synchronize();  // before its memory is freed
  } catch (const Error&) {
    // No one reads the copies after this point.
  }
}

Stream& HostActivations::copying() {
  if (!copying_) copying_ = backend_.make_stream();
  return *copying_;
}

Arena& HostActivations::open(int number) {
  Slot& slot = slots_[static_cast<std::size_t>(number)];
  if (std::exchange(slot.open, true)) return slot.arena;
  for (std::unique_ptr<Event>* copied : {&slot.stored, &slot.fetched}) {
    if (*copied) backend_.compute_stream().wait(**copied);
    copied->reset();
  }
  slot.arena.clear();
  slot.content = ++contents_;
  return slot.arena;
}

HostActivations::Layer HostActivations::store(int number, Arena& host) {
  Slot& slot = slots_[static_cast<std::size_t>(number)];
  slot.open = false;
  Layer layer{.slot = number, .content = slot.content, .copies = {}};
  const std::vector<TensorView> ranges = slot.arena.used_ranges();
  std::int64_t total = 0;
  for (const TensorView range : ranges) total += range.numel();
  // One allocation: the backend may round up each.
  const TensorView memory = host.allocate(DType::uint8, {total});
  std::int64_t begin = 0;
  for (const TensorView range : ranges) {
    layer.copies.emplace_back(range, memory.flat(begin, range.numel()));
    begin += range.numel();
  }
  store(layer);
  return layer;
}

void HostActivations::store(const Layer& layer) {
  copying().wait(*backend_.compute_stream().record());
  for (const auto& [device, kept] : layer.copies) backend_.copy_to_host(copying(), device, kept);
  slot(layer).stored = copying().record();
}

void HostActivations::close_all() {
  for (Slot& slot : slots_) slot.open = false;
}

void HostActivations::begin_fetch(const Layer& layer) {
  if (slot(layer).content == layer.content) return;
  copying().wait(*backend_.compute_stream().record());
  for (const auto& [device, kept] : layer.copies) backend_.copy_from_host(copying(), kept, device);
  slot(layer).content = layer.content;
  slot(layer).fetched = copying().record();
}

void HostActivations::finish_fetch(const Layer& layer) {
  std::unique_ptr<Event>& fetched = slot(layer).fetched;
  if (fetched) backend_.compute_stream().wait(*fetched);
  fetched.reset();
}

std::size_t HostActivations::used_bytes() const {
  std::size_t sum = 0;
  for (const Slot& slot : slots_) sum += slot.arena.used_bytes();
  return sum;
}

std::size_t HostActivations::reserved_bytes() const {
  std::size_t sum = 0;
  for (const Slot& slot : slots_) sum += slot.arena.reserved_bytes();
  return sum;
}

}  // namespace trireme::model
