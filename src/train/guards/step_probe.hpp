#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/model/stage/stage_probe.hpp"
#include "src/train/parallel_model.hpp"

namespace trireme::train {

/// Sums of squares over what this rank computes in a training step, by which two runs of the step are compared, bit by
/// bit. There is one for each chunk's results, one for each chunk's gradients of its input, and one for each bucket's
/// gradients before data ranks reduce them. They cost one more read of these tensors, and no communication.
class StepProbe final : public model::StageProbe {
 public:
  /// Observes the runs of `model`, which must live longer.
  explicit StepProbe(ParallelModel& model);
  ~StepProbe() override;
  StepProbe(const StepProbe&) = delete;

  /// Begins a step. `search`: also looks for a layer whose result is not finite, and waits for the device after each
  /// layer.
  void begin(bool search);

  enum class Step { latest, before };
  /// The sums of the latest step, or of the one before. Waits for the device.
  std::vector<double> sums(Step step = Step::latest) const;
  /// Position of sum `i` in the order in which the ranks of a replica compute: forward through the stages, the losses,
  /// backward, and all gradients last.
  std::int64_t order_of(std::size_t i) const;
  /// The losses' position in that order, and that of the gradients after their reduction.
  std::int64_t order_of_losses() const { return virtual_stages_; }
  std::int64_t order_of_reduced() const { return 2 * virtual_stages_ + 2; }
  /// Index in `sums` of the gradients of a bucket.
  std::size_t index_of(std::size_t bucket) const { return 2 * chunks_ + bucket; }

  /// Result of a layer with elements that are infinite or NaN.
  struct BadOutput {
    int layer = 0;  ///< number in the model; -1: the embeddings
    std::int64_t bad = 0;
    std::int64_t elements = 0;
  };
  /// Bad output of the first layer that has one, if a search found any.
  const std::optional<BadOutput>& bad_output() const { return bad_output_; }

  void after_layer(int layer, ConstTensorView y) override;
  void after_forward(int chunk, ConstTensorView y) override;
  void after_backward(int chunk, ConstTensorView dx) override;

 private:
  void add(std::size_t i, ConstTensorView x);

  ParallelModel& model_;
  std::size_t chunks_;
  int stages_;
  int stage_;
  std::int64_t virtual_stages_;
  Tensor sums_;    // [2 chunks + buckets], and one more as work space
  Tensor before_;  // those of the step before
  bool search_ = false;
  std::optional<BadOutput> bad_output_;
};

}  // namespace trireme::train
