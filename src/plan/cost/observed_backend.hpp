#pragma once

#include <memory>

#include "src/backend/backend.hpp"
#include "src/backend/graphs.hpp"
#include "src/plan/cost/kernel_call.hpp"

namespace trireme::plan {

/// Receives the calls of kernels on a backend.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  /// Called before and after the work of `call` is enqueued on `stream`.
  virtual void begin(Stream& stream, const KernelCall& call) = 0;
  virtual void end(Stream& stream, const KernelCall& call) = 0;
};

/// A backend that passes everything on to another and shows every call of a kernel to an observer, where there is one.
/// So a rehearsal counts and a GPU is timed by the same calls.
class ObservedBackend : public Backend, public GraphRecorder {
 public:
  /// `inner` must live longer.
  explicit ObservedBackend(Backend& inner);
  ~ObservedBackend() override;

  /// Sets the observer; null for none.
  void observe(CallObserver* observer);
  /// Columns of the logits on this rank, by which their products are known; 0: none.
  void set_logits_columns(std::int64_t columns);

  std::string name() const override { return inner_.name(); }
  std::string description() const override { return inner_.description(); }
  bool supports(Capability capability) const override { return inner_.supports(capability); }
  Stream& compute_stream() override { return inner_.compute_stream(); }
  std::unique_ptr<Stream> make_stream() override { return inner_.make_stream(); }
  bool memory_is_host() const override { return inner_.memory_is_host(); }
  Allocator& host_memory() override { return inner_.host_memory(); }
  void release_host_memory() override { inner_.release_host_memory(); }
  void copy_from_host(Stream& stream, ConstTensorView host, TensorView device) override;
  void copy_to_host(Stream& stream, ConstTensorView device, TensorView host) override;

  Buffer allocate(std::size_t size_bytes) override { return inner_.allocate(size_bytes); }
  std::size_t allocated_bytes() const override { return inner_.allocated_bytes(); }
  std::size_t peak_allocated_bytes() const override { return inner_.peak_allocated_bytes(); }
  std::size_t device_memory_bytes() const override { return inner_.device_memory_bytes(); }
  std::size_t free_memory_bytes() const override { return inner_.free_memory_bytes(); }
  std::size_t kernel_memory_bytes(const KernelExtents& extents) const override {
    return inner_.kernel_memory_bytes(extents);
  }

  // Without graphs in the inner backend they throw ConfigError, and there are 0 launches.
  std::unique_ptr<Graph> record(const std::function<void()>& enqueue) override;
  void copy_within(Stream& stream, ConstTensorView from, TensorView to) override;
  std::size_t launches() const override;

 private:
  struct Kernels;
  const KernelFamilies& kernels() const override { return families_; }
  GraphRecorder& recorder() const;

  Backend& inner_;
  std::shared_ptr<Kernels> kernels_;
  KernelFamilies families_;
};

}  // namespace trireme::plan
