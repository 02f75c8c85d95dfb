#pragma once

#include "src/backend/forwarding_backend.hpp"
#include "src/backend/graphs.hpp"

namespace trireme::plan {

/// A backend that passes everything on to another and shows every call of a kernel to an observer, if any.
/// So a rehearsal counts and a GPU is timed by the same calls.
class ObservedBackend : public ForwardingBackend, public GraphRecorder {
 public:
  using ForwardingBackend::ForwardingBackend;

  /// Sets the observer; null for none.
  void observe(CallObserver* observer) { observer_ = observer; }
  /// Columns of the logits on this rank, by which their products are known; 0: none.
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
  /// Shows a copy that `copy` makes.
  template <class Copy>
  void show(Stream& stream, const KernelCall& call, const Copy& copy);
  /// The call, whose kind is that of logits where it is a product of their columns.
  KernelCall named(KernelCall call) const;
  GraphRecorder& recorder() const;

  CallObserver* observer_ = nullptr;
  std::int64_t logits_columns_ = 0;
};

}  // namespace trireme::plan
