#pragma once

#include <memory>

#include "cuda/runtime/device.hpp"
#include "src/base/unique_handle.hpp"
#include "src/tensor/stream.hpp"
#include "src/tensor/tensor_view.hpp"

namespace trireme::cuda {

/// A point in a CUDA stream.
class CudaEvent final : public Event {
 public:
  /// An event after all work enqueued on `stream`.
  CudaEvent(std::shared_ptr<Device> device, cudaStream_t stream);
  bool done() const override;
  void synchronize() const override;
  cudaEvent_t handle() const { return event_.get(); }

 private:
  std::shared_ptr<Device> device_;
  EventHandle event_;
};

/// A point in a CUDA stream, with its time.
class CudaTimedEvent final : public TimedEvent {
 public:
  /// An event after all work enqueued on `stream`.
  CudaTimedEvent(std::shared_ptr<Device> device, cudaStream_t stream);
  /// Throws CudaError if one of the events is not done.
  double ms_since(const TimedEvent& earlier) const override;

 private:
  std::shared_ptr<Device> device_;
  EventHandle event_;
};

/// A CUDA stream of this rank's GPU.
class CudaStream final : public Stream {
 public:
  /// Blocks of kernels that wait for multiprocessors start in this order.
  enum class Priority { low, normal, high };
  explicit CudaStream(std::shared_ptr<Device> device, Priority priority = Priority::normal);

  std::unique_ptr<Event> record() override;
  void record_again(Event& event) override;
  std::unique_ptr<TimedEvent> record_time() override;
  /// Waits on the GPU for a CudaEvent, on the host for any other.
  void wait(const Event& event) override;
  /// For a CudaEvent; source: cudaEventWaitExternal in the CUDA Runtime API.
  void wait_at_launch(const Event& event) override;
  void synchronize() override;

  cudaStream_t handle() const { return stream_.get(); }
  Device& device() const { return *device_; }

 private:
  std::shared_ptr<Device> device_;
  UniqueHandle<ObjectTraits<cudaStream_t, cudaStreamDestroy>> stream_;
};

/// Returns `stream` as a CUDA stream. Throws ShapeError if it belongs to another backend.
CudaStream& cuda_stream(Stream& stream);

/// to = from, ordered on `stream`: between host and GPU or within the GPU, depending on the addresses. Returns
/// immediately if host memory is pinned; pageable host memory may be reused once it returns. Throws ShapeError unless
/// both have the same type and size.
void copy(CudaStream& stream, ConstTensorView from, TensorView to);

}  // namespace trireme::cuda
