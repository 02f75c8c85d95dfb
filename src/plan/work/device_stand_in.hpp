#pragma once

#include <algorithm>

#include "src/backend/backend.hpp"

namespace trireme::plan {

/// Properties of a GPU for rehearsals, without kernels. Host memory is real.
class DeviceStandIn final : public Backend {
 public:
  /// `memory_bytes` of the device; 0: not known.
  explicit DeviceStandIn(std::size_t memory_bytes = 0) : memory_bytes_(memory_bytes) {}
  std::string name() const override { return "cuda"; }
  std::string description() const override { return "a GPU"; }
  bool supports(Capability capability) const override { return capability != Capability::fp64_training; }
  Stream& compute_stream() override { return stream_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<ImmediateStream>(); }
  bool memory_is_host() const override { return false; }
  Allocator& host_memory() override { return *this; }
  void copy_from_host(Stream&, ConstTensorView, TensorView) override {}
  void copy_to_host(Stream&, ConstTensorView, TensorView) override {}
  void copy_within(Stream&, ConstTensorView, TensorView) override {}
  Buffer allocate(std::size_t size_bytes) override {
    return {new std::byte[size_bytes](), size_bytes, [](std::byte* data) { delete[] data; }};
  }
  std::size_t allocated_bytes() const override { return 0; }
  std::size_t peak_allocated_bytes() const override { return 0; }
  std::size_t device_memory_bytes() const override { return memory_bytes_; }
  /// That of the CUDA backend except the small buffers of bias sums and routers: cuBLASLt's workspaces, also of four
  /// streams for grouped products, and trial operands of products, an L2 cache of 50 MiB and the largest gradient.
  std::size_t kernel_memory_bytes(const KernelExtents& extents) const override {
    constexpr std::size_t workspace_bytes = std::size_t{32} << 20, l2_bytes = std::size_t{50} << 20;
    const std::int64_t streams = 1 + (extents.groups < 2 ? 0 : std::min<std::int64_t>(extents.groups, 4));
    return static_cast<std::size_t>(streams) * workspace_bytes + l2_bytes +
           static_cast<std::size_t>(extents.weight_gradient) * sizeof(float) +
           static_cast<std::size_t>(extents.fp8_bytes + extents.mask_bytes);
  }

 private:
  const KernelFamilies& kernels() const override { throw ShapeError("a stand-in for a GPU has no kernels"); }
  std::size_t memory_bytes_;
  ImmediateStream stream_;
};

}  // namespace trireme::plan
