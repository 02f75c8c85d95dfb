#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "src/base/timer.hpp"
#include "src/plan/cost/observed_backend.hpp"

namespace trireme::bench {

using namespace plan;

/// Times the calls of a step, each between two events of its stream; on the CPU backend by the host's clock. The time
/// of a call includes the gap before its work, and concurrent work of other streams.
class LineTimer final : public CallObserver {
 public:
  explicit LineTimer(bool on_host) : on_host_(on_host) {}
  ~LineTimer() override;
  LineTimer(const LineTimer&) = delete;
  LineTimer& operator=(const LineTimer&) = delete;

  void begin(Stream& stream, const KernelCall& call) override;
  void end(Stream& stream, const KernelCall& call) override;
  /// Returns calls and milliseconds of each line since the last call; all work must be done.
  struct Sum {
    int calls = 0;
    double ms = 0;
  };
  std::vector<Sum> take();

 private:
  struct Timed {
    KernelKind kind;
    cudaEvent_t begin = nullptr, end = nullptr;
    double ms = 0;  ///< on the host
  };
  void mark(Stream& stream, cudaEvent_t& event);

  bool on_host_;
  Timer timer_;
  std::vector<Timed> calls_;
  std::vector<cudaEvent_t> free_;  ///< reusable events
};

}  // namespace trireme::bench
