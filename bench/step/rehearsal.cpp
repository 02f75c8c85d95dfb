#include "bench/step/rehearsal.hpp"

#include <cstring>

#include "src/backend/rehearsal_backend.hpp"
#include "src/plan/work/device_stand_in.hpp"

namespace trireme::bench {
namespace {

/// Stand-in GPU: device memory has only addresses, host memory is real, and all results are 0.
class RehearsedGpu final : public ObservedBackend {
 public:
  RehearsedGpu(RehearsalBackend& rehearsal, plan::DeviceStandIn& properties)
      : ObservedBackend(rehearsal), properties_(properties) {}
  Allocator& host_memory() override { return properties_.host_memory(); }
  void copy_to_host(Stream& stream, ConstTensorView device, TensorView host) override {
    ObservedBackend::copy_to_host(stream, device, host);
    std::memset(host.data(), 0, host.size_bytes());
  }

 private:
  plan::DeviceStandIn& properties_;
};

class Recorder final : public CallObserver {
 public:
  void begin(Stream&, const KernelCall& call) override {
    if (call.kind != KernelKind::inputs) calls.push_back(call);
  }
  void end(Stream&, const KernelCall&) override {}
  std::vector<KernelCall> calls;
};

}  // namespace

std::vector<KernelCall> rehearse(const StepCase& c) {
  plan::DeviceStandIn properties;
  RehearsalBackend rehearsal(properties);
  RehearsedGpu gpu(rehearsal, properties);
  SelfCommunicator devices("world", [](Stream&, ConstTensorView, TensorView) {});
  StepRig rig(c, gpu, devices);
  rig.step();  // the first one prepares later ones
  Recorder recorder;
  gpu.observe(&recorder);
  rig.step();
  gpu.observe(nullptr);
  return std::move(recorder.calls);
}

}  // namespace trireme::bench
