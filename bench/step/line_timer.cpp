#include "bench/step/line_timer.hpp"

#include "cuda/runtime/stream.hpp"
#include "src/base/check.hpp"

namespace trireme::bench {

LineTimer::~LineTimer() {
  for (const Timed& call : calls_) {
    cudaEventDestroy(call.begin);
    cudaEventDestroy(call.end);
  }
  for (cudaEvent_t event : free_) cudaEventDestroy(event);
}

void LineTimer::mark(Stream& stream, cudaEvent_t& event) {
  cuda::CudaStream& on = cuda::cuda_stream(stream);
  if (free_.empty()) {
    on.device().check(cudaEventCreateWithFlags(&event, cudaEventDefault), "cudaEventCreateWithFlags");
  } else {
    event = free_.back();
    free_.pop_back();
  }
  on.device().check(cudaEventRecord(event, on.handle()), "cudaEventRecord");
}

void LineTimer::begin(Stream& stream, const KernelCall& call) {
  calls_.push_back({call.kind});
  if (on_host_) {
    timer_.restart();
  } else {
    mark(stream, calls_.back().begin);
  }
}

void LineTimer::end(Stream& stream, const KernelCall&) {
  if (on_host_) {
    calls_.back().ms = timer_.elapsed_ms();
  } else {
    mark(stream, calls_.back().end);
  }
}

std::vector<LineTimer::Sum> LineTimer::take() {
  std::vector<Sum> sums(kernel_kind_count);
  for (const Timed& call : calls_) {
    float ms = static_cast<float>(call.ms);
    if (!on_host_) {
      const cudaError_t status = cudaEventElapsedTime(&ms, call.begin, call.end);
      TRIREME_CHECK(status == cudaSuccess, cuda::CudaError, "cudaEventElapsedTime failed: {}",
                    cudaGetErrorString(status));
      free_.insert(free_.end(), {call.begin, call.end});
    }
    Sum& sum = sums[static_cast<std::size_t>(call.kind)];
    ++sum.calls;
    sum.ms += ms;
  }
  calls_.clear();
  return sums;
}

}  // namespace trireme::bench
