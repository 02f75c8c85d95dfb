#include "bench/step/rehearsal.hpp"

#include <cstring>

#include "src/backend/rehearsal_backend.hpp"
#include "src/base/check.hpp"

namespace trireme::bench {
namespace {

/// A GPU's properties, without kernels.
class GpuProperties final : public Backend {
 public:
  std::string name() const override { return "cuda"; }
  std::string description() const override { return "a GPU"; }
  bool supports(Capability capability) const override { return capability != Capability::fp64_training; }
  Stream& compute_stream() override { return stream_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<ImmediateStream>(); }
  bool memory_is_host() const override { return false; }
  Allocator& host_memory() override { return *this; }
  void copy_from_host(Stream&, ConstTensorView, TensorView) override {}
  void copy_to_host(Stream&, ConstTensorView, TensorView) override {}
  Buffer allocate(std::size_t size_bytes) override {
    return {new std::byte[size_bytes](), size_bytes, [](std::byte* data) { delete[] data; }};
  }
  std::size_t allocated_bytes() const override { return 0; }
  std::size_t peak_allocated_bytes() const override { return 0; }
  std::size_t device_memory_bytes() const override { return 0; }

 private:
  const KernelFamilies& kernels() const override { throw ShapeError("a GPU's properties have no kernels"); }
  ImmediateStream stream_;
};

/// The stand-in: device memory has addresses alone, host memory is real, and all results are 0.
class RehearsedGpu final : public ObservedBackend {
 public:
  RehearsedGpu(RehearsalBackend& rehearsal, GpuProperties& properties)
      : ObservedBackend(rehearsal), properties_(properties) {}
  Allocator& host_memory() override { return properties_.host_memory(); }
  void copy_to_host(Stream& stream, ConstTensorView device, TensorView host) override {
    ObservedBackend::copy_to_host(stream, device, host);
    std::memset(host.data(), 0, host.size_bytes());
  }

 private:
  GpuProperties& properties_;
};

class Recorder final : public CallObserver {
 public:
  void begin(Stream&, const KernelCall& call) override {
    if (call.line != Line::inputs) calls.push_back(call);
  }
  void end(Stream&, const KernelCall&) override {}
  std::vector<KernelCall> calls;
};

}  // namespace

std::vector<KernelCall> rehearse(const StepCase& c) {
  GpuProperties properties;
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
