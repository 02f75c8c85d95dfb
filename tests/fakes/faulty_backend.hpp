#pragma once

#include <functional>

#include "src/backend/forwarding_backend.hpp"

namespace trireme::test {

/// A backend whose products may be changed or delayed by a test; everything else is that of another backend, on host
/// memory.
class FaultyBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  /// Called after every product with its number, from 1, and its result; may change the result, wait or throw.
  std::function<void(int call, TensorView result)> after_product;
  bool repeatable = true;  ///< false: lacks that capability

  bool supports(Capability capability) const override {
    return inner().supports(capability) && (repeatable || capability != Capability::repeatable);
  }

 private:
  void end(Stream&, const KernelCall& call) override {
    if (call.product && after_product) after_product(++products_, call.product->result);
  }
  int products_ = 0;
};

}  // namespace trireme::test
