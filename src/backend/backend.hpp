#pragma once

#include <memory>
#include <string>

#include "src/backend/kernels/attention.hpp"
#include "src/backend/kernels/cross_entropy.hpp"
#include "src/backend/kernels/elementwise.hpp"
#include "src/backend/kernels/embedding.hpp"
#include "src/backend/kernels/experts.hpp"
#include "src/backend/kernels/gemm.hpp"
#include "src/backend/kernels/norm.hpp"
#include "src/backend/kernels/optimizer.hpp"
#include "src/backend/kernels/reduce.hpp"
#include "src/backend/kernels/rotary.hpp"
#include "src/tensor/memory.hpp"
#include "src/tensor/stream.hpp"

namespace trireme {

/// Settings of a rank's backend. A setting that a backend does not support (Capability) has no effect there.
struct BackendOptions {
  int world_rank = 0;
  int local_rank = 0;                    ///< number among the ranks of this machine; selects the device
  bool check_launches = false;           ///< wait for every kernel, so that an error names its cause: slow
  bool allow_reduced_precision = false;  ///< fp32 products may round their inputs to TF32
  bool deterministic = false;            ///< the same bits in every run: no algorithm is chosen by its time
  double max_wait_s = 0;                 ///< after which the device counts as hung; 0: no limit
  std::string algorithm_cache = {};      ///< file of the algorithms chosen for products; empty: none
};

/// The kernel families of a backend, all of them set. Shared, so that one object may implement several.
struct KernelFamilies {
  std::shared_ptr<GemmKernels> gemm;
  std::shared_ptr<NormKernels> norm;
  std::shared_ptr<AttentionKernels> attention;
  std::shared_ptr<ElementwiseKernels> elementwise;
  std::shared_ptr<EmbeddingKernels> embedding;
  std::shared_ptr<CrossEntropyKernels> cross_entropy;
  std::shared_ptr<OptimizerKernels> optimizer;
  std::shared_ptr<ReduceKernels> reduce;
  std::shared_ptr<RotaryKernels> rotary;
  std::shared_ptr<ExpertKernels> experts;
};

class Backend;
/// Families that report every call to `observer`, and run it on `inner` if not null. Both must live longer.
KernelFamilies observed_kernels(CallObserver& observer, Backend* inner);

/// Abilities that some backends have and others lack.
enum class Capability {
  fp64_training,         ///< trains in fp64
  fp8,                   ///< rounds the operands of products to FP8
  fp8_blocks,            ///< with scales of blocks
  fp8_copies,            ///< computes in FP8, and keeps operands in it (Fp8Copy)
  graphs,                ///< records work, to be replayed: the backend is a GraphRecorder
  device_communicators,  ///< ranks communicate between devices: the backend is a DeviceCommunicators
  reduced_precision,     ///< BackendOptions::allow_reduced_precision
  algorithm_cache,       ///< BackendOptions::algorithm_cache
  launch_checks,         ///< BackendOptions::check_launches
  profiler,              ///< a profiler records its work: the backend is a ProfiledDevice
  results,               ///< copies to the host return results; not in a rehearsal
  repeatable,            ///< the same calls give the same bits in every run, sums over ranks included
};

/// A device and the kernels that run on it. All code above uses this interface, whatever the device. Kernels come in
/// small families, each declared in src/backend/kernels.
class Backend : public Allocator {
 public:
  /// "cpu" or "cuda", for the log; use `supports` to decide.
  virtual std::string name() const = 0;
  /// The device, for the log: "2 threads, AVX-512 ...".
  virtual std::string description() const = 0;
  /// Text that differs between devices of a machine, and is the same in all ranks that use one.
  virtual std::string device_identity() const { return description(); }
  virtual bool supports(Capability capability) const = 0;

  /// The stream on which a rank computes.
  virtual Stream& compute_stream() = 0;
  virtual std::unique_ptr<Stream> make_stream() = 0;
  /// A stream for kernels that use what the compute stream's leave free.
  virtual std::unique_ptr<Stream> make_background_stream() { return make_stream(); }

  /// Returns whether its memory is host memory. Tensors may then be read and written there whenever the stream is
  /// synchronized.
  virtual bool memory_is_host() const = 0;
  /// Host memory for the fastest copies, which overlap with host work: pinned if the backend supports it. Kernels may
  /// use it, at the rate of the link to the host.
  virtual Allocator& host_memory() = 0;
  /// Returns whether a tensor is in host memory: any if `memory_is_host`, else one in memory from `host_memory`.
  virtual bool is_in_host_memory(ConstTensorView) const { return memory_is_host(); }
  /// Returns cached free blocks of host memory to the system.
  virtual void release_host_memory() {}

  /// Copies between host and device memory, ordered on `stream`; sizes and types must agree. Memory from `host_memory`
  /// must stay unchanged until the stream has reached the copy. All other host memory is read or filled on return.
  virtual void copy_from_host(Stream& stream, ConstTensorView host, TensorView device) = 0;
  virtual void copy_to_host(Stream& stream, ConstTensorView device, TensorView host) = 0;
  /// to = from, within the backend's memory; sizes and types must agree. Stream-ordered.
  virtual void copy_within(Stream& stream, ConstTensorView from, TensorView to) = 0;

  /// Bytes allocated and not yet freed: now, and the maximum so far.
  virtual std::size_t allocated_bytes() const = 0;
  virtual std::size_t peak_allocated_bytes() const = 0;
  /// All memory of the device, used or free.
  virtual std::size_t device_memory_bytes() const = 0;
  /// Free bytes. For host memory, the total: other programs may release theirs.
  virtual std::size_t free_memory_bytes() const { return device_memory_bytes(); }
  /// Maximum device memory of kernels beyond the tensors they work on.
  virtual std::size_t kernel_memory_bytes(const KernelExtents&) const { return 0; }

  GemmKernels& gemm() { return *kernels().gemm; }
  NormKernels& norm() { return *kernels().norm; }
  AttentionKernels& attention() { return *kernels().attention; }
  ElementwiseKernels& elementwise() { return *kernels().elementwise; }
  EmbeddingKernels& embedding() { return *kernels().embedding; }
  CrossEntropyKernels& cross_entropy() { return *kernels().cross_entropy; }
  OptimizerKernels& optimizer() { return *kernels().optimizer; }
  ReduceKernels& reduce() { return *kernels().reduce; }
  RotaryKernels& rotary() { return *kernels().rotary; }
  ExpertKernels& experts() { return *kernels().experts; }

 private:
  virtual const KernelFamilies& kernels() const = 0;
};

enum class BackendChoice { automatic, cpu, cuda };

/// Makes the requested backend. `automatic` takes the GPU if there is one, else the CPU; `reason`, if not
/// null, receives the reason why it is not the GPU. `threads` is the size of the CPU backend's pool. Throws
/// BackendUnavailable, with the reason and the remedy, if `choice` names a backend that cannot run here.
std::unique_ptr<Backend> make_backend(BackendChoice choice, int threads, std::string* reason = nullptr,
                                      const BackendOptions& options = {});

}  // namespace trireme
