#pragma once

#include "src/backend/forwarding_backend.hpp"
#include "src/backend/graphs.hpp"

namespace trireme::plan {

/// A backend that forwards everything to another and reports every kernel call to an observer, if any. Rehearsal counts
/// and GPU timings thus use the same calls.
class ObservedBackend : public ForwardingBackend, public GraphRecorder {
 public:
  using ForwardingBackend::ForwardingBackend;

  /// Sets the observer; null for none.
  void observe(CallObserver* observer) { observer_ = observer; }
  /// Columns of the logits on this rank, which identify their products; 0: none.
  void set_logits_columns(std::int64_t columns) { logits_columns_ = columns; }

  void copy_from_host(Stream& stream, ConstTensorView host, TensorView device) override;
  void copy_to_host(Stream& stream, ConstTensorView device, TensorView host) override;

  // Without graphs in the inner backend they throw ConfigError, and there are 0 launches.
  std::unique_ptr<Graph> record(const std::function<void()>& enqueue) override;
  void copy_within(Stream& stream, ConstTensorView from, TensorView to) override;
  std::size_t launches() const override;

 protected:
  void begin(Stream& stream, const KernelCall& call) override;
  void end(Stream& stream, const KernelCall& call) override;

 private:
  /// Reports a copy made by `copy`.
  template <class Copy>
  void show(Stream& stream, const KernelCall& call, const Copy& copy);
  /// Returns the call, marked as logits if it is a product with their columns.
  KernelCall named(KernelCall call) const;
  GraphRecorder& recorder() const;

  CallObserver* observer_ = nullptr;
  std::int64_t logits_columns_ = 0;
};

}  // namespace trireme::plan
