#pragma once

#include <functional>
#include <memory>

#include "src/backend/backend.hpp"

namespace trireme::test {

/// A backend whose products may be changed or delayed by a test; everything else is that of another
/// backend, on host memory.
class FaultyBackend final : public Backend {
 public:
  using AfterProduct = std::function<void(int call, TensorView result)>;

  explicit FaultyBackend(Backend& inner) : inner_(inner) {
    families_ = {.gemm = std::make_shared<Gemm>(*this),
                 .norm = borrowed(inner.norm()),
                 .attention = borrowed(inner.attention()),
                 .elementwise = borrowed(inner.elementwise()),
                 .embedding = borrowed(inner.embedding()),
                 .cross_entropy = borrowed(inner.cross_entropy()),
                 .optimizer = borrowed(inner.optimizer()),
                 .reduce = borrowed(inner.reduce()),
                 .rotary = borrowed(inner.rotary())};
  }

  /// Called after every product with its number, from 1, and its result; may change the result, wait or throw.
  AfterProduct after_product;
  bool repeatable = true;  ///< false: lacks that capability

  std::string name() const override { return inner_.name(); }
  std::string description() const override { return inner_.description(); }
  bool supports(Capability capability) const override {
    return inner_.supports(capability) && (repeatable || capability != Capability::repeatable);
  }
  Stream& compute_stream() override { return inner_.compute_stream(); }
  std::unique_ptr<Stream> make_stream() override { return inner_.make_stream(); }
  bool memory_is_host() const override { return inner_.memory_is_host(); }
  Allocator& host_memory() override { return inner_.host_memory(); }
  void copy_from_host(Stream& stream, ConstTensorView host, TensorView device) override {
    inner_.copy_from_host(stream, host, device);
  }
  void copy_to_host(Stream& stream, ConstTensorView device, TensorView host) override {
    inner_.copy_to_host(stream, device, host);
  }
  Buffer allocate(std::size_t size_bytes) override { return inner_.allocate(size_bytes); }
  std::size_t allocated_bytes() const override { return inner_.allocated_bytes(); }
  std::size_t peak_allocated_bytes() const override { return inner_.peak_allocated_bytes(); }
  std::size_t device_memory_bytes() const override { return inner_.device_memory_bytes(); }

 private:
  class Gemm final : public GemmKernels {
   public:
    explicit Gemm(FaultyBackend& owner) : owner_(owner) {}
    void linear(Stream& stream, ConstTensorView x, ConstTensorView w, ConstTensorView bias, Activation activation,
                TensorView pre_activation, TensorView y) override {
      owner_.inner_.gemm().linear(stream, x, w, bias, activation, pre_activation, y);
      owner_.end_product(y);
    }
    void linear_backward_input(Stream& stream, ConstTensorView dy, ConstTensorView w, Activation activation,
                               ConstTensorView pre_activation, TensorView dx) override {
      owner_.inner_.gemm().linear_backward_input(stream, dy, w, activation, pre_activation, dx);
      owner_.end_product(dx);
    }
    void linear_backward_weight(Stream& stream, ConstTensorView dy, ConstTensorView x, TensorView dw,
                                TensorView dbias) override {
      owner_.inner_.gemm().linear_backward_weight(stream, dy, x, dw, dbias);
      owner_.end_product(dw);
    }

   private:
    FaultyBackend& owner_;
  };

  template <class Kernels>
  static std::shared_ptr<Kernels> borrowed(Kernels& kernels) {
    return {std::shared_ptr<void>(), &kernels};
  }
  void end_product(TensorView result) {
    if (after_product) after_product(++products_, result);
  }
  const KernelFamilies& kernels() const override { return families_; }

  Backend& inner_;
  KernelFamilies families_;
  int products_ = 0;
};

}  // namespace trireme::test
