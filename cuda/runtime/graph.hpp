#pragma once

#include <functional>
#include <memory>

#include "cuda/runtime/stream.hpp"
#include "src/backend/graphs.hpp"

namespace trireme::cuda {

/// A CUDA graph, ready to run.
class CudaGraph final : public Graph {
 public:
  /// Records the work that `enqueue` puts on `stream`, and on streams forked from it and joined again. If recording
  /// fails, throws CudaError and restores the streams.
  static std::unique_ptr<CudaGraph> record(std::shared_ptr<Device> device, CudaStream& stream,
                                           const std::function<void()>& enqueue);
  void launch(Stream& stream) override;

 private:
  CudaGraph(std::shared_ptr<Device> device, cudaGraphExec_t graph) : device_(std::move(device)), graph_(graph) {}

  std::shared_ptr<Device> device_;
  UniqueHandle<ObjectTraits<cudaGraphExec_t, cudaGraphExecDestroy>> graph_;
};

}  // namespace trireme::cuda
