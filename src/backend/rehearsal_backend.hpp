#pragma once

#include <cstdint>

#include "src/backend/backend.hpp"
#include "src/backend/graphs.hpp"

namespace trireme {

/// Predicts, before a run, the memory that it will take on another backend. Buffers are counted as that backend counts
/// them; they have addresses but no memory. Kernels and copies do nothing. Results that are read must be in the
/// caller's own memory.
class RehearsalBackend final : public Backend, public GraphRecorder, CallObserver {
 public:
  /// `backend` must live longer.
  explicit RehearsalBackend(const Backend& backend) : backend_(backend) {}

  std::string name() const override { return backend_.name(); }
  std::string description() const override { return "a rehearsal for " + backend_.description(); }
  bool supports(Capability capability) const override {
    return capability != Capability::results && backend_.supports(capability);
  }
  Stream& compute_stream() override { return stream_; }
  std::unique_ptr<Stream> make_stream() override { return std::make_unique<ImmediateStream>(); }
  bool memory_is_host() const override { return backend_.memory_is_host(); }
  Allocator& host_memory() override { return host_memory_; }
  bool is_in_host_memory(ConstTensorView tensor) const override {
    return memory_is_host() || reinterpret_cast<std::uintptr_t>(tensor.data()) >= first_host_address;
  }
  void copy_from_host(Stream&, ConstTensorView, TensorView) override {}
  void copy_to_host(Stream&, ConstTensorView, TensorView) override {}

  Buffer allocate(std::size_t size_bytes) override { return memory_.allocate(size_bytes); }
  std::size_t allocated_bytes() const override { return memory_.now; }
  std::size_t peak_allocated_bytes() const override { return memory_.peak; }
  std::size_t device_memory_bytes() const override { return backend_.device_memory_bytes(); }
  std::size_t free_memory_bytes() const override { return backend_.free_memory_bytes(); }
  /// Extents of all kernels called so far.
  const KernelExtents& kernel_extents() const { return extents_; }

  std::unique_ptr<Graph> record(const std::function<void()>& enqueue) override;
  void copy_within(Stream&, ConstTensorView, TensorView) override {}
  std::size_t launches() const override { return 0; }

 private:
  /// Counts buffers, which have addresses but no memory.
  class Memory final : public Allocator {
   public:
    explicit Memory(std::uintptr_t first_address) : next_address_(first_address) {}
    Buffer allocate(std::size_t size_bytes) override;
    std::size_t now = 0, peak = 0;

   private:
    std::uintptr_t next_address_;
  };
  static constexpr std::uintptr_t first_host_address = std::uintptr_t{1} << 62;
  const KernelFamilies& kernels() const override { return kernels_; }
  void begin(Stream&, const KernelCall& call) override;
  void end(Stream&, const KernelCall&) override {}

  const Backend& backend_;
  Memory memory_{4096}, host_memory_{first_host_address};
  KernelFamilies kernels_ = observed_kernels(*this, nullptr);
  KernelExtents extents_;
  ImmediateStream stream_;
};

}  // namespace trireme
