#pragma once

#include "src/backend/backend.hpp"

namespace trireme {

/// Backend that forwards everything to another, which must live longer; the base of those that observe or modify one.
/// It observes its own kernel calls: a derived class overrides `begin` and `end`.
class ForwardingBackend : public Backend, protected CallObserver {
 public:
  explicit ForwardingBackend(Backend& inner) : inner_(inner), kernels_(observed_kernels(*this, &inner)) {}
  ForwardingBackend& operator=(ForwardingBackend&&) = delete;

  std::string name() const override { return inner_.name(); }
  std::string description() const override { return inner_.description(); }
  std::string device_identity() const override { return inner_.device_identity(); }
  bool supports(Capability capability) const override { return inner_.supports(capability); }
  Stream& compute_stream() override { return inner_.compute_stream(); }
  std::unique_ptr<Stream> make_stream() override { return inner_.make_stream(); }
  std::unique_ptr<Stream> make_background_stream() override { return inner_.make_background_stream(); }
  bool memory_is_host() const override { return inner_.memory_is_host(); }
  Allocator& host_memory() override { return inner_.host_memory(); }
  bool is_in_host_memory(ConstTensorView tensor) const override { return inner_.is_in_host_memory(tensor); }
  void release_host_memory() override { inner_.release_host_memory(); }
  void copy_from_host(Stream& stream, ConstTensorView host, TensorView device) override {
    inner_.copy_from_host(stream, host, device);
  }
  void copy_to_host(Stream& stream, ConstTensorView device, TensorView host) override {
    inner_.copy_to_host(stream, device, host);
  }
  void copy_within(Stream& stream, ConstTensorView from, TensorView to) override {
    inner_.copy_within(stream, from, to);
  }

  Buffer allocate(std::size_t size_bytes) override { return inner_.allocate(size_bytes); }
  std::size_t allocated_bytes() const override { return inner_.allocated_bytes(); }
  std::size_t peak_allocated_bytes() const override { return inner_.peak_allocated_bytes(); }
  std::size_t device_memory_bytes() const override { return inner_.device_memory_bytes(); }
  std::size_t free_memory_bytes() const override { return inner_.free_memory_bytes(); }
  std::size_t kernel_memory_bytes(const KernelExtents& extents) const override {
    return inner_.kernel_memory_bytes(extents);
  }

 protected:
  Backend& inner() const { return inner_; }
  void begin(Stream&, const KernelCall&) override {}
  void end(Stream&, const KernelCall&) override {}

 private:
  const KernelFamilies& kernels() const override { return kernels_; }

  Backend& inner_;
  KernelFamilies kernels_;
};

}  // namespace trireme
