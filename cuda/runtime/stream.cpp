#include "cuda/runtime/stream.hpp"

#include <algorithm>

#include "src/base/check.hpp"

namespace trireme::cuda {

CudaEvent::CudaEvent(std::shared_ptr<Device> device, cudaStream_t stream)
    : device_(std::move(device)), event_(device_->make_event()) {
  device_->check(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
}

bool CudaEvent::done() const {
  const cudaError_t status = cudaEventQuery(event_.get());
  if (status == cudaErrorNotReady) return false;
  device_->check(status, "cudaEventQuery");
  return true;
}

void CudaEvent::synchronize() const {
  device_->wait_until([this] { return cudaEventQuery(event_.get()); }, "cudaEventQuery");
}

CudaTimedEvent::CudaTimedEvent(std::shared_ptr<Device> device, cudaStream_t stream)
    : device_(std::move(device)), event_(device_->make_event(cudaEventDefault)) {
  device_->check(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
}

double CudaTimedEvent::ms_since(const TimedEvent& earlier) const {
  float ms = 0;
  const EventHandle& begin = dynamic_cast<const CudaTimedEvent&>(earlier).event_;
  device_->check(cudaEventElapsedTime(&ms, begin.get(), event_.get()), "cudaEventElapsedTime");
  return ms;
}

CudaStream::CudaStream(std::shared_ptr<Device> device, Priority priority) : device_(std::move(device)) {
  int lowest = 0;
  int highest = 0;
  device_->check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  // Numbers fall with priority: from 0, the lowest, to -5 on GPUs since Volta.
  const int number = priority == Priority::high  ? highest
                     : priority == Priority::low ? lowest
                                                 : std::max(lowest - 1, highest);
  cudaStream_t stream = nullptr;
  device_->check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, number), "cudaStreamCreateWithPriority");
  stream_.reset(stream);
}

std::unique_ptr<Event> CudaStream::record() { return std::make_unique<CudaEvent>(device_, stream_.get()); }

void CudaStream::record_again(Event& event) {
  device_->check(cudaEventRecord(dynamic_cast<CudaEvent&>(event).handle(), stream_.get()), "cudaEventRecord");
}

std::unique_ptr<TimedEvent> CudaStream::record_time() {
  return std::make_unique<CudaTimedEvent>(device_, stream_.get());
}

void CudaStream::wait(const Event& event) {
  if (const auto* on_device = dynamic_cast<const CudaEvent*>(&event)) {
    device_->check(cudaStreamWaitEvent(stream_.get(), on_device->handle(), 0), "cudaStreamWaitEvent");
  } else {
    event.synchronize();
  }
}

void CudaStream::wait_at_launch(const Event& event) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  device_->check(cudaStreamIsCapturing(stream_.get(), &status), "cudaStreamIsCapturing");
  if (status == cudaStreamCaptureStatusNone) return wait(event);
  device_->check(
      cudaStreamWaitEvent(stream_.get(), dynamic_cast<const CudaEvent&>(event).handle(), cudaEventWaitExternal),
      "cudaStreamWaitEvent");
}

void CudaStream::synchronize() {
  device_->wait_until([this] { return cudaStreamQuery(stream_.get()); }, "cudaStreamQuery");
}

CudaStream& cuda_stream(Stream& stream) {
  auto* on_device = dynamic_cast<CudaStream*>(&stream);
  TRIREME_CHECK(on_device != nullptr, ShapeError, "work for a GPU cannot run on a stream of another backend");
  return *on_device;
}

void copy(CudaStream& stream, ConstTensorView from, TensorView to) {
  TRIREME_CHECK(from.dtype() == to.dtype() && from.numel() == to.numel(), ShapeError, "copy of {} {} to {} {}",
                name_of(from.dtype()), to_string(from.shape()), name_of(to.dtype()), to_string(to.shape()));
  if (from.size_bytes() == 0) return;
  stream.device().check(cudaMemcpyAsync(to.data(), from.data(), from.size_bytes(), cudaMemcpyDefault, stream.handle()),
                        "cudaMemcpyAsync");
  stream.device().launched(stream.handle(), "cudaMemcpyAsync");
}

}  // namespace trireme::cuda
