#pragma once

#include <type_traits>

#include "src/backend/kernels/kernel_call.hpp"
#include "src/base/check.hpp"
#include "src/tensor/stream.hpp"

namespace trireme {

/// Receives the calls of kernels on a backend.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  /// Called before and after the work of `call` is enqueued on `stream`.
  virtual void begin(Stream& stream, const KernelCall& call) = 0;
  virtual void end(Stream& stream, const KernelCall& call) = 0;
};

/// Base of the interfaces of kernels. A family declares each kernel once, with its costs: the body of the virtual
/// function forwards the call. An object of the family itself thus reports calls to an observer and computes nothing. A
/// backend that computes overrides every kernel.
template <class Family>
class KernelFamily {
 public:
  /// For backends that override every kernel.
  KernelFamily() = default;
  /// Reports each call to `observer`, and runs it on `inner`, which may be null. Both must outlive this.
  KernelFamily(CallObserver& observer, Family* inner) : observer_(&observer), inner_(inner) {}
  virtual ~KernelFamily() = default;

 protected:
  template <class... Parameters>
  void pass_on(void (Family::*kernel)(Stream&, Parameters...), Stream& stream, const KernelCall& call,
               const std::type_identity_t<Parameters>&... arguments) {
    TRIREME_CHECK(observer_ != nullptr, ShapeError, "this backend does not override a kernel that was called");
    observer_->begin(stream, call);
    if (inner_ != nullptr) (inner_->*kernel)(stream, arguments...);
    observer_->end(stream, call);
  }
  Family* inner() const { return inner_; }

 private:
  CallObserver* observer_ = nullptr;
  Family* inner_ = nullptr;
};

}  // namespace trireme
