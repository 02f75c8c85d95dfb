#include "cuda/runtime/graph.hpp"

#include <exception>

namespace trireme::cuda {

std::unique_ptr<CudaGraph> CudaGraph::record(std::shared_ptr<Device> device, CudaStream& stream,
                                             const std::function<void()>& enqueue) {
  try {
    // Other threads may continue to call CUDA.
    device->check(cudaStreamBeginCapture(stream.handle(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    std::exception_ptr error;
    try {
      enqueue();
    } catch (...) {
      error = std::current_exception();
    }
    cudaGraph_t made = nullptr;
    const cudaError_t end = cudaStreamEndCapture(stream.handle(), &made);
    const UniqueHandle<ObjectTraits<cudaGraph_t, cudaGraphDestroy>> recorded(made);
    if (error) {
      cudaGetLastError();  // clears the error, which is not one of a later launch
      std::rethrow_exception(error);
    }
    device->check(end, "cudaStreamEndCapture");
    cudaGraphExec_t ready = nullptr;
    device->check(cudaGraphInstantiate(&ready, recorded.get(), 0), "cudaGraphInstantiate");
    return std::unique_ptr<CudaGraph>(new CudaGraph(std::move(device), ready));
  } catch (const CudaError& error) {
    throw CudaError("{}; it happened while work was recorded as a CUDA graph: leave out <cuda_graphs>", error.what());
  }
}

void CudaGraph::launch(Stream& stream) {
  CudaStream& on = cuda_stream(stream);
  device_->check(cudaGraphLaunch(graph_.get(), on.handle()), "cudaGraphLaunch");
  device_->launched(on.handle(), "cudaGraphLaunch");
}

}  // namespace trireme::cuda
