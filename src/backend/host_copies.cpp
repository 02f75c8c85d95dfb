#include "src/backend/host_copies.hpp"

namespace trireme {

HostCopies::HostCopies(Backend& backend, std::vector<TensorView> device, Allocation allocation)
    : backend_(backend),
      device_(std::move(device)),
      host_(device_),
      are_the_tensors_(backend.memory_is_host() && allocation == Allocation::where_needed) {
  if (are_the_tensors_) return;
  constexpr std::size_t line = 64;
  const auto space = [](const TensorView& tensor) { return (tensor.size_bytes() + line - 1) / line * line; };
  std::size_t total = 0;
  for (const TensorView& tensor : device_) total += space(tensor);
  memory_ = backend.host_memory().allocate(total);
  std::byte* next = memory_.data();
  for (TensorView& tensor : host_) {
    const TensorView device = tensor;
    tensor = TensorView(next, device.dtype(), device.shape());
    next += space(device);
  }
}

void HostCopies::upload(Stream& stream, const std::vector<std::int64_t>& count) {
  if (are_the_tensors_) return;
  for (std::size_t i = 0; i < device_.size(); ++i) {
    const std::int64_t n = count.empty() ? device_[i].numel() : count[i];
    backend_.copy_from_host(stream, host_[i].flat(0, n), device_[i].flat(0, n));
  }
  copied_ = stream.record();
}

void HostCopies::download(Stream& stream) {
  if (!are_the_tensors_) {
    for (std::size_t i = 0; i < device_.size(); ++i) backend_.copy_to_host(stream, device_[i], host_[i]);
  }
  copied_ = stream.record();
}

void HostCopies::wait() {
  if (copied_ != nullptr) copied_->synchronize();
  copied_.reset();
}

}  // namespace trireme
