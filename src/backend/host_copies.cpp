#include "src/backend/host_copies.hpp"

namespace trireme {

HostCopies::HostCopies(Backend& backend, std::vector<TensorView> device, Allocation allocation)
    : backend_(backend), device_(std::move(device)), host_(device_) {
  constexpr std::size_t line = 64;
  const auto space = [&](const TensorView& tensor) {
    const bool is_copied = allocation == Allocation::always || !backend.is_in_host_memory(tensor);
    return is_copied ? (tensor.size_bytes() + line - 1) / line * line : 0;
  };
  std::size_t total = 0;
  for (const TensorView& tensor : device_) total += space(tensor);
  if (total == 0) return;
  memory_ = backend.host_memory().allocate(total);
  std::byte* next = memory_.data();
  for (TensorView& tensor : host_) {
    const std::size_t size_bytes = space(tensor);
    if (size_bytes == 0) continue;
    tensor = TensorView(next, tensor.dtype(), tensor.shape());
    next += size_bytes;
  }
}

void HostCopies::upload(Stream& stream, const std::vector<std::int64_t>& count) {
  for (std::size_t i = 0; i < device_.size(); ++i) {
    if (host_[i].data() == device_[i].data()) continue;
    const std::int64_t n = count.empty() ? device_[i].numel() : count[i];
    backend_.copy_from_host(stream, host_[i].flat(0, n), device_[i].flat(0, n));
  }
  copied_ = stream.record();
}

void HostCopies::download(Stream& stream) {
  for (std::size_t i = 0; i < device_.size(); ++i) {
    if (host_[i].data() != device_[i].data()) backend_.copy_to_host(stream, device_[i], host_[i]);
  }
  copied_ = stream.record();
}

void HostCopies::wait() {
  if (copied_ != nullptr) copied_->synchronize();
  copied_.reset();
}

}  // namespace trireme
