#pragma once

#include <vector>

#include "src/backend/backend.hpp"

namespace trireme {

/// Host counterparts of a backend's tensors: data written there is uploaded, data to be read is downloaded. A tensor in
/// host memory is its own counterpart and is not copied, unless Allocation::always.
class HostCopies {
 public:
  enum class Allocation {
    where_needed,  ///< the tensors themselves if they are in host memory
    always         ///< separate memory: downloaded data stays while the tensors change
  };
  /// `device` are tensors of `backend`, which must live longer.
  HostCopies(Backend& backend, std::vector<TensorView> device, Allocation allocation = Allocation::where_needed);

  /// Tensor i, for the host.
  TensorView host(std::size_t i) const { return host_[i]; }

  /// Enqueues the copies of all tensors to the device; with `count`, of the first count[i] elements of tensor i in
  /// memory order. The host may write again after `wait`.
  void upload(Stream& stream, const std::vector<std::int64_t>& count = {});
  /// Enqueues the copies of all tensors to the host, which may read them after `wait`.
  void download(Stream& stream);
  /// Blocks the host until the latest copies are done.
  void wait();
  /// Returns whether the copies are complete.
  bool done() const { return copied_ == nullptr || copied_->done(); }
  /// Orders later work on `stream` after the latest copies.
  void order_before(Stream& stream) const {
    if (copied_ != nullptr) stream.wait(*copied_);
  }

 private:
  Backend& backend_;
  std::vector<TensorView> device_;
  std::vector<TensorView> host_;
  Buffer memory_;
  std::unique_ptr<Event> copied_;
};

}  // namespace trireme
