#include "src/backend/rehearsal_backend.hpp"

#include <algorithm>
#include <cstdint>

namespace trireme {
namespace {

class RehearsedGraph final : public Graph {
 public:
  void launch(Stream&) override {}
};

}  // namespace

class RehearsalBackend::Memory final : public Allocator {
 public:
  Buffer allocate(std::size_t size_bytes) override {
    constexpr std::size_t line = 64;
    const std::size_t taken = std::max(line, (size_bytes + line - 1) / line * line);
    // Nothing accesses these addresses, but callers compare them.
    std::byte* data = reinterpret_cast<std::byte*>(next_address_);
    next_address_ += taken;
    now_ += taken;
    peak_ = std::max(peak_, now_);
    return {data, size_bytes, [this, taken](std::byte*) { now_ -= taken; }};
  }
  std::size_t now() const { return now_; }
  std::size_t peak() const { return peak_; }

 private:
  std::uintptr_t next_address_ = 4096;
  std::size_t now_ = 0;
  std::size_t peak_ = 0;
};

/// All kernel families. A kernel records at most the extents that determine its memory on a device.
struct RehearsalBackend::Kernels final : GemmKernels,
                                         NormKernels,
                                         AttentionKernels,
                                         ElementwiseKernels,
                                         EmbeddingKernels,
                                         CrossEntropyKernels,
                                         OptimizerKernels,
                                         ReduceKernels,
                                         RotaryKernels {
  KernelExtents extents;
  void note_sums(ConstTensorView dy, ConstTensorView first, ConstTensorView second = {}) {
    extents.summed_rows = std::max(extents.summed_rows, dy.numel() / dy.shape().back());
    extents.summed_columns =
        std::max(extents.summed_columns, (first ? first.numel() : 0) + (second ? second.numel() : 0));
  }

  void linear(Stream&, ConstTensorView, ConstTensorView, ConstTensorView, Activation, TensorView, TensorView) override {
  }
  void linear_backward_input(Stream&, ConstTensorView, ConstTensorView, Activation, ConstTensorView,
                             TensorView) override {}
  void linear_backward_weight(Stream&, ConstTensorView dy, ConstTensorView, TensorView dw, TensorView dbias) override {
    extents.weight_gradient = std::max(extents.weight_gradient, dw.numel());
    note_sums(dy, dbias);
  }

  void normalise(Stream&, ConstTensorView, const NormWeight&, ConstTensorView, double, TensorView,
                 NormStatistics) override {}
  void normalise_backward(Stream&, ConstTensorView dy, ConstTensorView, const NormWeight&, NormStatistics,
                          ConstTensorView, TensorView, TensorView dweight, TensorView dbias) override {
    note_sums(dy, dweight, dbias);
  }
  void bias_dropout_add_norm(Stream&, ConstTensorView, ConstTensorView, ConstTensorView, const Dropout&,
                             const NormWeight&, ConstTensorView, double, TensorView, TensorView,
                             NormStatistics) override {}

  std::string check_head_dim(DType, std::int64_t) const override { return {}; }
  void attention(Stream&, const AttentionProblem&, ConstHeads, ConstHeads, ConstHeads, Heads, TensorView) override {}
  void attention_backward(Stream&, const AttentionProblem&, ConstHeads, ConstHeads, ConstHeads, ConstHeads, ConstHeads,
                          ConstTensorView, TensorView, Heads, Heads, Heads) override {}
  void copy_heads(Stream&, const HeadsShape&, ConstHeads, Heads) override {}

  void fill(Stream&, double, TensorView) override {}
  void convert(Stream&, ConstTensorView, TensorView) override {}
  void add(Stream&, ConstTensorView, TensorView) override {}
  void scale(Stream&, double, TensorView) override {}
  void divide_by_norm(Stream&, ConstTensorView, double, TensorView) override {}
  void bias_dropout_add(Stream&, ConstTensorView, ConstTensorView, ConstTensorView, const Dropout&,
                        TensorView) override {}
  void bias_dropout_add_backward(Stream&, ConstTensorView dsum, const Dropout&, TensorView, TensorView dbias) override {
    note_sums(dsum, dbias);
  }
  void activate(Stream&, Activation, ConstTensorView, TensorView) override {}
  void activate_backward(Stream&, Activation, ConstTensorView, ConstTensorView, TensorView) override {}
  void swiglu(Stream&, ConstTensorView, TensorView) override {}
  void swiglu_backward(Stream&, ConstTensorView, ConstTensorView, TensorView) override {}

  void lookup(Stream&, ConstTensorView, ConstTensorView, std::int64_t, TensorView) override {}
  void lookup_backward(Stream&, ConstTensorView, ConstTensorView, std::int64_t, TensorView) override {}
  void add_positions(Stream&, ConstTensorView, const Positions&, const Dropout&, TensorView) override {}
  void add_positions_backward(Stream&, ConstTensorView, const Positions&, const Dropout&, TensorView,
                              TensorView) override {}

  void statistics(Stream&, ConstTensorView, VocabularyShard, ConstTensorView, TensorView, TensorView,
                  TensorView) override {}
  void rescale(Stream&, ConstTensorView, ConstTensorView, TensorView) override {}
  void losses(Stream&, ConstTensorView, ConstTensorView, ConstTensorView, ConstTensorView, TensorView) override {}
  void rivals(Stream&, ConstTensorView, VocabularyShard, ConstTensorView, ConstTensorView, TensorView) override {}
  void backward(Stream&, VocabularyShard, ConstTensorView, ConstTensorView, ConstTensorView, ConstTensorView,
                TensorView) override {}

  void adamw(Stream&, const AdamWStep&, ConstTensorView, TensorView, TensorView, TensorView, TensorView) override {}
  void sgd(Stream&, const SgdStep&, ConstTensorView, TensorView, TensorView, TensorView) override {}

  void sum_squares(Stream&, ConstTensorView, TensorView) override {}
  void sum(Stream&, ConstTensorView, TensorView) override {}
  void sum_powers(Stream&, ConstTensorView, int, TensorView) override {}
  void max_abs(Stream&, ConstTensorView, TensorView) override {}
  void count_zeros(Stream&, ConstTensorView, TensorView) override {}

  void rotate(Stream&, const RotaryEmbedding&, const RotaryHeads&, Rotation) override {}
};

RehearsalBackend::RehearsalBackend(const Backend& backend)
    : backend_(backend),
      memory_(std::make_unique<Memory>()),
      host_memory_(std::make_unique<Memory>()),
      kernels_(std::make_shared<Kernels>()),
      families_{kernels_, kernels_, kernels_, kernels_, kernels_, kernels_, kernels_, kernels_, kernels_} {}
RehearsalBackend::~RehearsalBackend() = default;

Allocator& RehearsalBackend::host_memory() { return *host_memory_; }
Buffer RehearsalBackend::allocate(std::size_t size_bytes) { return memory_->allocate(size_bytes); }
std::size_t RehearsalBackend::allocated_bytes() const { return memory_->now(); }
std::size_t RehearsalBackend::peak_allocated_bytes() const { return memory_->peak(); }
const KernelExtents& RehearsalBackend::kernel_extents() const { return kernels_->extents; }

std::unique_ptr<Graph> RehearsalBackend::record(const std::function<void()>& enqueue) {
  enqueue();
  return std::make_unique<RehearsedGraph>();
}

}  // namespace trireme
